"""vLLM inside the worker's process. No other module imports vLLM."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from vllm import LLM, RequestOutput, SamplingParams
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import VLLMClientError
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.reasoning import ReasoningParser, ReasoningParserManager
from vllm.sampling_params import StructuredOutputsParams

from engine.domain.conversations import SYSTEM, USER, Message, as_json
from engine.generation.base import (
    BackendError,
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
    Take,
    take_from,
    unanswerable,
)
from engine.generation.child_processes import NewChildren
from engine.generation.remote.replies import split_thinking, without_marks

logger = logging.getLogger(__name__)

_PROBE = "Is there a system role?"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the engine; vLLM chooses the empty ones.

    Attributes
    ----------
    model : str
        A folder, or a name on the Hugging Face hub.
    tensor_parallel : int
        GPUs that share the model's layers.
    adapters : mapping
        LoRA adapters by the names that policies ask for: ``{name: folder}``.
    chat_template : str
        A Jinja file, for models that bring no template of their own.
    options : mapping
        Anything else that ``vllm.LLM`` takes; with ``reasoning_parser``, vLLM's parser of that name tells
        thinking from the text.
    """

    model: str
    dtype: str = "auto"
    max_length: int | None = None
    tensor_parallel: int = 1
    quantization: str | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _UnderWay:
    """A request in the engine, and the ``engine_id`` by which the engine knows it."""

    request: GenerationRequest
    engine_id: str
    started: float


class VLLMBackend:
    """Drives vLLM's engine step by step, so that responses come as they finish and new ones join at once.

    The engine is built at the first batch and kept; that takes from seconds to minutes and is logged. On a
    GPU it runs in a process of its own, which goes on computing while the caller stores results.
    """

    name = "vllm"

    def __init__(self, settings: EngineSettings) -> None:
        self.model = settings.model
        self._settings = settings
        self._children = NewChildren()
        atexit.register(self.close)

    @cached_property
    def _llm(self) -> LLM:
        settings = self._settings
        logger.info("Building the vLLM engine for %s; a large model takes minutes", settings.model)
        started = time.monotonic()
        if settings.chat_template and not Path(settings.chat_template).is_file():
            raise BackendError(f"The chat template {settings.chat_template} is not a file.")
        options = {
            "model": settings.model,
            "dtype": settings.dtype,
            "max_model_len": settings.max_length,
            "tensor_parallel_size": settings.tensor_parallel,
            "quantization": settings.quantization,
            "chat_template": settings.chat_template,
            "enable_prefix_caching": True,
            "enable_lora": bool(settings.adapters),
            # Do not mix the model author's suggested settings into the policy's.
            "generation_config": "vllm",
            **settings.options,
        }
        try:
            # They would keep the GPU's memory, which the next worker needs.
            with NewChildren() as children:
                llm = LLM(**options)
        except Exception as error:
            # vLLM's process writes the cause into the log, and only "See root cause above" into its error.
            raise BackendError(
                f"vLLM cannot load {settings.model} (the worker's log says more): {error}"
            ) from error
        logger.info("The vLLM engine is ready after %.0f s", time.monotonic() - started)
        self._children.let_go()
        self._children = children
        return llm

    @cached_property
    def _adapters(self) -> dict[str, LoRARequest]:
        return {
            name: LoRARequest(name, number, folder)
            for number, (name, folder) in enumerate(self._settings.adapters.items(), start=1)
        }

    @cached_property
    def _parser(self) -> ReasoningParser | None:
        name = self._settings.options.get("reasoning_parser")
        if not name:
            return None
        try:
            return ReasoningParserManager.get_reasoning_parser(name)(self._llm.get_tokenizer())
        except (KeyError, RuntimeError, ValueError) as error:
            raise BackendError(f"vLLM has no reasoning parser {name!r} for this model: {error}") from error

    @cached_property
    def _has_system_role(self) -> bool:
        """True if the model's chat template shows system messages: some refuse them, some drop them."""
        tokenizer = self._llm.get_tokenizer()
        messages = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hi"}]
        template = self._settings.chat_template
        try:
            text = tokenizer.apply_chat_template(
                messages,
                chat_template=Path(template).read_text() if template else None,
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception:
            logger.info("The chat template takes no system messages; system prompts go before the task")
            return False
        return _PROBE in text

    @cached_property
    def _most_at_once(self) -> int:
        most: int = self._llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
        return most

    def close(self) -> None:
        """End the engine; the next batch builds another.

        At its end Python waits for the processes that it started. vLLM may end them only later: where other
        code, such as Django's, comes before it in the list of things to do at the end.
        """
        llm = self.__dict__.pop("_llm", None)
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
            self._children.let_go()

    @property
    def loaded(self) -> bool:
        """True if the engine is ready. While it is built, its worker is silent for a while."""
        return "_llm" in self.__dict__

    def gpu_memory(self) -> tuple[int, int] | None:
        """Used and total bytes of the first GPU, over all processes; ``None`` without a GPU.

        Asked of the driver, as the torch call for it would take memory of its own in this process.
        """
        if not (self.loaded and current_platform.is_cuda()):
            return None
        try:
            return torch.cuda.device_memory_used(0), current_platform.get_device_total_memory(0)
        except Exception:
            # Only a figure for the dashboard, so no reason to stop writing.
            logger.warning("The GPU's memory cannot be told", exc_info=True)
            return None

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Write every request once; see :class:`~engine.generation.base.Backend`."""
        return self.stream(take_from(requests))

    def stream(self, take: Take) -> Outcomes:
        """Write what ``take`` returns; see :class:`~engine.generation.base.ContinuousBackend`.

        An engine that breaks down is dropped, so that the next batch builds another. Its error is passed to
        the caller, as one of the requests may have caused it.
        """
        engine = self._llm.llm_engine
        under_way: dict[str, _UnderWay] = {}
        try:
            while True:
                for outcome in self._admit(take(max(0, self._most_at_once - len(under_way)))):
                    if isinstance(outcome, _UnderWay):
                        under_way[_name_in_outputs(outcome.engine_id)] = outcome
                    else:
                        yield outcome
                if not under_way:
                    return
                for output in self._step():
                    if output.finished:
                        yield self._result(under_way.pop(output.request_id), output)
        finally:
            if under_way and self.loaded:
                engine.abort_request([each.engine_id for each in under_way.values()], internal=True)

    def _step(self) -> list[RequestOutput]:
        try:
            outputs: list[RequestOutput] = self._llm.llm_engine.step()
        except Exception:
            logger.exception("The vLLM engine broke down; the next batch builds another")
            del self._llm
            raise
        return outputs

    def _admit(self, requests: Sequence[GenerationRequest]) -> Iterator[_UnderWay | Outcome]:
        # Side by side, prompts that begin alike share what the engine has computed of them.
        for request in sorted(requests, key=lambda request: (request.model, request.messages)):
            adapter = self._adapters.get(request.model)
            if adapter is None and request.model not in ("", self.model):
                served = ", ".join([self.model, *self._adapters])
                reason = (
                    f"The worker serves no model {request.model!r}, only {served}. Adapters are named in "
                    "GENERATION_ADAPTERS."
                )
                yield GenerationFailure(request.key, reason, Fault.SETTINGS)
                continue
            started = time.monotonic()
            try:
                (engine_id,) = self._llm.enqueue_chat(
                    [self._messages(request)],
                    sampling_params=[_sampling(request)],
                    lora_request=adapter,
                    use_tqdm=False,
                )
            except (VLLMClientError, ValueError) as error:
                yield unanswerable(request.key, str(error))
            else:
                yield _UnderWay(request, engine_id, started)

    def _messages(self, request: GenerationRequest) -> list[dict[str, str]]:
        first, *others = request.messages
        if first.role != SYSTEM or self._has_system_role:
            return as_json(request.messages)
        # The messages after it may begin with the assistant; the system prompt is then a message of its own.
        if others[0].role != USER:
            return as_json([Message(USER, first.content), *others])
        return as_json([Message(USER, f"{first.content}\n\n{others[0].content}"), *others[1:]])

    def _result(self, done: _UnderWay, output: RequestOutput) -> GenerationResult:
        written = output.outputs[0]
        thinking, text = self._parts(written.text)
        text, marks = without_marks(text)
        return GenerationResult(
            key=done.request.key,
            text=text,
            prompt_tokens=len(output.prompt_token_ids or ()),
            completion_tokens=len(written.token_ids),
            finish_reason=Finish.LENGTH if written.finish_reason == "length" else Finish.STOP,
            latency_seconds=time.monotonic() - done.started,
            model=done.request.model,
            thinking=thinking,
            marks=marks,
            cached_tokens=output.num_cached_tokens,
            thinking_tokens=self._count(thinking),
            served_model=done.request.model or self.model,
        )

    def _parts(self, written: str) -> tuple[str, str]:
        """The thinking and the text of an answer, split at its tags where no parser is named."""
        if self._parser is None:
            return split_thinking(written)
        asked = ChatCompletionRequest(messages=[], model=self.model)
        thinking, text = self._parser.extract_reasoning(written, asked)
        return (thinking or "").strip(), (text or "").lstrip()

    def _count(self, thinking: str) -> int:
        return len(self._llm.get_tokenizer().encode(thinking, add_special_tokens=False)) if thinking else 0


def _name_in_outputs(engine_id: str) -> str:
    """The engine makes each id unique by a suffix, which its outputs leave out."""
    return engine_id.rsplit("-", 1)[0]


def _sampling(request: GenerationRequest) -> SamplingParams:
    sampling = request.sampling
    return SamplingParams(
        temperature=sampling.drawing.temperature,
        top_p=sampling.drawing.top_p,
        top_k=sampling.drawing.top_k,
        max_tokens=sampling.drawing.max_tokens,
        stop=list(sampling.stop),
        seed=request.seed,
        # The engine refuses a schema that it does not know with a ValueError.
        structured_outputs=StructuredOutputsParams(json=dict(sampling.response_format))
        if sampling.response_format
        else None,
        # Each request has its own already, and vLLM's deep copy takes a tenth of the time to add a request.
        skip_clone=True,
    )
