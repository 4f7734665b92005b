"""The vLLM backend: the real engine, on a GPU or on the CPU.
`.ci/vllm-tests` makes the environment it needs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.tinylm.runtime import MODEL_FOLDER
from engine.generation.base import BackendError, Fault, GenerationFailure, GenerationResult
from tests.generation.contract import BackendContract, StreamContract, answer, ask, mixed, texts
from tests.workers import has_ended, wait_until

pytest.importorskip("vllm", reason="vLLM is not installed; .ci/vllm-tests runs these")

import torch

import engine.generation.vllm
from engine.generation.vllm import EngineSettings, VLLMBackend

pytestmark = pytest.mark.slow

SMALL = {"enforce_eager": True, "kv_cache_memory_bytes": 64 << 20}


@pytest.fixture(scope="module")
def backend() -> VLLMBackend:
    return VLLMBackend(
        EngineSettings(
            str(MODEL_FOLDER), dtype="float32", max_length=512, options=SMALL | {"max_num_seqs": 32}
        )
    )


@pytest.fixture
def enqueued(backend, monkeypatch):
    """The conversations that the engine is given from now on, each with its sampling parameters."""
    given = []
    enqueue = backend._llm.enqueue_chat

    def noting(conversations, *, sampling_params, **kwargs):
        given.extend(zip(conversations, sampling_params, strict=True))
        return enqueue(conversations, sampling_params=sampling_params, **kwargs)

    monkeypatch.setattr(backend._llm, "enqueue_chat", noting)
    return given


class TestContract(BackendContract, StreamContract):
    pass


class TestEngine:
    def test_prompts_that_begin_alike_sit_together(self, backend, enqueued):
        requests = [ask(key=i, system=("Be kind.", "Be brief.")[i % 2]) for i in range(6)]
        assert len(list(backend.generate(requests))) == 6
        admitted = [conversation[0]["content"] for conversation, _ in enqueued]
        assert admitted == ["Be brief."] * 3 + ["Be kind."] * 3

    def test_the_engine_is_not_asked_for_log_probabilities(self, backend, enqueued):
        """Nothing reads them, and on a GPU they cost a quarter of the speed."""
        assert answer(backend, ask()).text
        assert [sampling.logprobs for _, sampling in enqueued] == [None]

    def test_the_engine_does_not_copy_what_is_made_for_each_request(self, backend, enqueued):
        assert len(list(backend.generate([ask(key=1), ask(key=2)]))) == 2
        (_, one), (_, other) = enqueued
        assert one.skip_clone
        assert other.skip_clone
        assert one is not other

    def test_a_schema_goes_to_the_engine(self, backend, enqueued):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        list(backend.generate([ask(response_format=schema), ask(key=1)]))
        assert [each and each.json for each in (s.structured_outputs for _, s in enqueued)] == [schema, None]

    @pytest.mark.parametrize(
        ("written", "parts"),
        [
            ("<think>Hm.</think>Two.", ("Hm.", "Two.")),
            ("Hm.</think>Two.", ("Hm.", "Two.")),
            ("<think>Hm", ("Hm", "")),
        ],
    )
    def test_thinking_is_told_from_the_text(self, written, parts, backend):
        assert backend._parts(written) == parts
        parsed = VLLMBackend(EngineSettings(str(MODEL_FOLDER)))
        parsed.__dict__["_parser"] = SimpleNamespace(extract_reasoning=lambda text, request: ("A ", " B"))
        assert parsed._parts(written) == ("A", "B")

    def test_a_parser_that_vllm_does_not_know_is_named(self):
        unknown = VLLMBackend(EngineSettings(str(MODEL_FOLDER), options={"reasoning_parser": "nobody"}))
        unknown.__dict__["_llm"] = SimpleNamespace(get_tokenizer=lambda: None)
        with pytest.raises(BackendError, match="no reasoning parser 'nobody'"):
            _ = unknown._parser
        # At the end of the process it would be closed like a real one.
        del unknown.__dict__["_llm"]

    def test_the_memory_of_a_gpu_is_told_where_there_is_one(self, backend, monkeypatch):
        if torch.cuda.is_available():
            used, total = backend.gpu_memory()
            assert 0 < used <= total
            return
        assert backend.gpu_memory() is None
        monkeypatch.setattr(engine.generation.vllm.current_platform, "is_cuda", lambda: True)
        # A driver that cannot be asked costs the figure, and nothing else.
        assert backend.gpu_memory() is None

    def test_more_than_the_engine_takes_at_once_are_all_written(self, backend):
        rooms = []
        requests = mixed(80)
        waiting = list(requests)

        def take(room):
            rooms.append(room)
            return [waiting.pop() for _ in range(min(room, len(waiting)))]

        assert len(texts(list(backend.stream(take)))) == 80
        assert max(rooms) == 32

    def test_closing_ends_the_engine(self):
        ended = []
        core = SimpleNamespace(shutdown=lambda: ended.append(True))
        backend = VLLMBackend(EngineSettings(str(MODEL_FOLDER)))
        backend.__dict__["_llm"] = SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core))
        backend.close()
        backend.close()
        assert ended == [True]
        assert not backend.loaded

    def test_an_engine_that_breaks_down_is_replaced(self, backend, monkeypatch):
        broken = backend._llm

        def break_down():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        with monkeypatch.context() as patch:
            patch.setattr(broken.llm_engine, "step", break_down)
            with pytest.raises(RuntimeError, match="illegal memory"):
                list(backend.generate([ask()]))
        assert "_llm" not in backend.__dict__
        # The engine is sound in truth: put it back rather than build a second one beside it.
        backend.__dict__["_llm"] = broken
        for request_id in list(broken.llm_engine.output_processor.request_states):
            broken.llm_engine.abort_request([request_id], internal=True)
        assert answer(backend, ask()).text


# Django, too, has something to finish before multiprocessing is imported. At the end that comes last.
LAST_ORDERS = """
import weakref
class Early: pass
early = Early()
weakref.finalize(early, int)
from tests.generation.test_vllm import MODEL_FOLDER, SMALL, EngineSettings, VLLMBackend
backend = VLLMBackend(EngineSettings(str(MODEL_FOLDER), dtype="float32", max_length=512, options=SMALL))
backend._llm
"""


def test_a_process_ends_though_its_engine_has_one_of_its_own():
    environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", LAST_ORDERS], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


KILLED = """
import multiprocessing, os, pathlib, signal, sys
from tests.generation.test_vllm import MODEL_FOLDER, SMALL, EngineSettings, VLLMBackend
backend = VLLMBackend(EngineSettings(str(MODEL_FOLDER), dtype="float32", max_length=512, options=SMALL))
backend._llm
(engine,) = multiprocessing.active_children()
pathlib.Path(sys.argv[1]).write_text(str(engine.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_engine_in_a_process_of_its_own_ends_with_a_killed_worker(tmp_path):
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "pid")],
        env=os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    engine = int((tmp_path / "pid").read_text())
    wait_until(lambda: has_ended(engine), 60, "the engine outlived its worker")


def copied_model(folder: Path, **tokenizer_config: object) -> str:
    """The model under another tokenizer configuration."""
    for file in MODEL_FOLDER.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | tokenizer_config))
    return str(folder)


class TestLoading:
    def test_a_model_that_is_not_there_is_the_backends_error(self, tmp_path):
        backend = VLLMBackend(EngineSettings(str(tmp_path)))
        with pytest.raises(BackendError, match=r"cannot load .*the worker's log"):
            list(backend.generate([ask()]))

    def test_a_template_that_is_not_there_too(self, tmp_path):
        backend = VLLMBackend(EngineSettings(str(MODEL_FOLDER), chat_template=str(tmp_path / "none.jinja")))
        with pytest.raises(BackendError, match="not a file"):
            list(backend.generate([ask()]))

    def test_without_a_system_role_the_system_prompt_goes_before_the_task(self, tmp_path):
        template = (
            "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
            "{{ raise_exception('System role not supported') }}{% endif %}"
            "<|user|>{{ message['content'] }}<|end|>{% endfor %}<|assistant|>"
        )
        backend = VLLMBackend(
            EngineSettings(
                copied_model(tmp_path, chat_template=template), dtype="float32", max_length=256, options=SMALL
            )
        )
        asked = [ask(key=1), ask(key=2, system="Be kind.")]
        alone, with_system = sorted(backend.generate(asked), key=lambda outcome: outcome.key)
        assert isinstance(with_system, GenerationResult), with_system
        assert with_system.prompt_tokens > alone.prompt_tokens

    def test_a_policy_may_ask_for_the_usual_model_by_name(self, backend):
        assert answer(backend, ask(model=str(MODEL_FOLDER))).text == answer(backend, ask()).text

    def test_adapters_are_named_where_one_is_missing(self, backend):
        (outcome,) = backend.generate([ask(model="tone")])
        assert isinstance(outcome, GenerationFailure)
        assert outcome.fault == Fault.SETTINGS
        assert "GENERATION_ADAPTERS" in outcome.reason
