"""Runs of other tools as ready-made responses; tests/fixtures/runs holds invented files."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.domain.limits import FILE_BYTES
from engine.importing.found_files import FoundFile
from engine.importing.other_tools import found_in
from engine.importing.reading_process import source_at, source_of
from engine.importing.rows import ImportingError
from tests.tables import archive

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
BATCH = [FIXTURES / "batch" / name for name in ("input.jsonl", "output.jsonl")]
LOG = FIXTURES / "inspect" / "log.json"
MT_BENCH = [FIXTURES / "mtbench" / name for name in ("question.jsonl", "answers.jsonl")]
[SAMPLES] = (FIXTURES / "lmeval" / "Acme__tiny-1b").iterdir()


def found(files: Mapping[str, Any], **wishes: bool) -> FoundFile:
    """What is found in files of these names: bytes, or rows of JSON Lines."""
    parts = [
        (name, io.BytesIO(data if isinstance(data, bytes) else lines(*data))) for name, data in files.items()
    ]
    told = found_in(source_of(parts, FILE_BYTES), **wishes)
    assert told is not None
    assert all(each["found"] == each["taken"] + each["left_out"] for each in told.findings.counts())
    return told


def lines(*rows: Any) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def counts(told: FoundFile) -> dict[str, tuple[int, int]]:
    """What was taken and left out, by its kind."""
    return {each["what"]: (each["taken"], each["left_out"]) for each in told.findings.counts()}


def reasons(told: FoundFile) -> list[str]:
    return [each["reason"] for each in told.findings.left_out()]


def answers(told: FoundFile) -> list[tuple[str, str, str]]:
    """The task, the policy and the text of each response, in their order."""
    return sorted((told.spec.tasks[r.task].prompt, r.policy, r.response) for r in told.spec.ready_made)


def policies(told: FoundFile) -> list[str]:
    return list(dict.fromkeys(r.policy for r in told.spec.ready_made))


# ---------------------------------------------------------------- batches


def files(*paths: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    "given",
    [
        files(*BATCH),
        files(*reversed(BATCH)),
        {"both.zip": archive(files(*BATCH))},
        {"one.jsonl": b"\n".join(files(*reversed(BATCH)).values())},
    ],
)
def test_a_batch_is_joined_whatever_its_order(given):
    told = found(given)
    assert counts(told) == {"response": (4, 4), "task": (3, 0), "policy": (1, 0)}
    assert answers(told) == [
        ("A fruit?", "acme-large", "Pear"),
        ("A hat?", "acme-large", "A wide-brimmed straw"),
        ("A hat?", "acme-large", "Beret"),
        ("A tool?", "acme-large", "Hammer"),
    ]
    assert [r.response for r in told.spec.ready_made if r.finish_reason == "length"] == [
        "A wide-brimmed straw"
    ]
    assert len(reasons(told)) == 4
    assert [value for factor in told.spec.factors for value in factor.levels.values()] == [
        {"text": "Name one thing."}
    ]
    assert "Name one thing." not in "".join(task.prompt for task in told.spec.tasks)


@pytest.mark.parametrize("path", [*BATCH, MT_BENCH[1]])
def test_half_of_a_run_says_what_is_missing(path):
    with pytest.raises(ImportingError, match="add"):
        found(files(path))


def asks(name: str, model: str, text: str = "Tea?", **body: Any) -> dict[str, Any]:
    return {
        "custom_id": name,
        "body": {"model": model, "messages": [{"role": "user", "content": text}]} | body,
    }


def says(name: str, model: str, text: Any, **choice: Any) -> dict[str, Any]:
    body = {"model": model, "choices": [{"message": {"role": "assistant", "content": text}, **choice}]}
    return {"custom_id": name, "response": {"status_code": 200, "body": body}, "error": None}


def test_batches_with_equal_ids_are_joined_with_their_own_questions():
    """Two models were asked the same, so that the ids say nothing."""
    told = found(
        {
            "in_b.jsonl": [asks("1", "b"), asks("2", "b", "Milk?")],
            "in_a.jsonl": [asks("1", "a"), asks("2", "a", "Milk?")],
            "out_a.jsonl": [
                says("1", "a-2026", "A1"),
                {"custom_id": "2", "error": {"code": "batch_expired"}},
            ],
            "out_b.jsonl": [says("2", "b-2026", "B2"), says("1", "b-2026", "B1")],
        }
    )
    assert answers(told) == [("Milk?", "b", "B2"), ("Tea?", "a", "A1"), ("Tea?", "b", "B1")]
    assert reasons(told) == ["of a: an error (batch_expired)"]


def test_a_question_without_a_line_of_answers_counts_for_its_policy():
    told = found({"i": [asks("1", "a"), asks("2", "a", "Milk?")], "o": [says("1", "a", "Yes")]})
    assert reasons(told) == ["of a: without a line of answer"]
    assert counts(told)["response"] == (1, 1)


def test_system_texts_and_models_that_cross_are_factors():
    def asked(model: str, *system: str) -> dict[str, Any]:
        turns = [
            *({"role": "system", "content": each} for each in system),
            {"role": "user", "content": "Tea?"},
        ]
        return asks(f"{model}{system}", model, messages=turns)

    rows = [asked(model, *system) for model in "ab" for system in ((), ("Be kind.",), ("K" * 300,))]
    told = found({"i": rows, "o": [says(row["custom_id"], row["body"]["model"], "Yes") for row in rows]})
    levels = {factor.name: factor.levels for factor in told.spec.factors}
    assert {name: len(each) for name, each in levels.items()} == {"Model": 2, "System text": 3}
    assert {"text": "K" * 300} in levels["System text"].values()
    assert told.n_policies == 6
    assert [task.prompt for task in told.spec.tasks] == ["Tea?"]


def test_policies_that_do_not_cross_are_levels_of_one_factor():
    rows = [asks(str(n), model, system=system) for n, (model, system) in enumerate(["aA", "bB", "cC"])]
    told = found({"i": rows, "o": [says(str(n), "m", "Yes") for n in range(3)]})
    assert policies(told) == ["a · A", "b · B", "c · C"]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ([{"temperature": 0}, {"temperature": 1}], ["m · temperature 0", "m · temperature 1"]),
        ([{"temperature": 0}, {"n": 2, "temperature": 0}], ["m"]),
    ],
)
def test_one_model_asked_the_same_under_other_settings_is_two_policies(settings, names):
    rows = [asks(str(n), "m", **each) for n, each in enumerate(settings)]
    told = found({"i": rows, "o": [says(str(n), "m", f"Yes {n}") for n in range(2)]})
    assert policies(told) == names


@pytest.mark.parametrize(("texts", "n"), [(("Tea?", "Tea?"), 2), (("Tea?", "Milk?"), 1)])
def test_two_files_of_one_name_are_two_policies_unless_they_are_parts_of_one_run(texts, n):
    told = found(
        {
            f"{n}.json": json.dumps([{"instruction": text, "output": "Yes", "generator": "m"}]).encode()
            for n, text in enumerate(texts)
        }
    )
    assert told.n_policies == n
    assert any("One policy" in note for note in told.findings.notes) == (n == 1)


def test_anthropic_and_responses():
    asked = {
        "model": "c",
        "max_tokens": 5,
        "system": "Short.",
        "messages": [{"role": "user", "content": "Tea?"}],
    }
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "text", "text": "Yes,"},
        {"type": "text", "text": "please."},
    ]
    message = {
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": content,
        "stop_reason": "max_tokens",
    }
    failed = {
        "type": "errored",
        "error": {"type": "error", "error": {"type": "overloaded_error", "message": "!"}},
    }
    rows = [{"custom_id": str(n), "params": asked} for n in range(3)]
    results = [{"type": "succeeded", "message": message}, {"type": "expired"}, failed]
    told = found(
        {
            "i.json": json.dumps({"requests": rows}).encode(),
            "o.jsonl": [{"custom_id": str(n), "result": each} for n, each in enumerate(results)],
        }
    )
    [response] = told.spec.ready_made
    assert (response.response, response.thinking, response.finish_reason) == (
        "Yes,\nplease.",
        "Hm.",
        "length",
    )
    assert reasons(told) == ["of c: an error (expired)", "of c: an error (overloaded_error)"]

    body = {
        "object": "response", "model": "r", "status": "completed", "error": None,
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Well."}]},
            {"type": "web_search_call", "status": "completed"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "No."}]},
        ],
    }  # fmt: skip
    request = {"model": "r", "instructions": "Short.", "input": "Tea?"}
    told = found(
        {
            "i": [{"custom_id": "1", "url": "/v1/responses", "body": request}],
            "o": [{"custom_id": "1", "response": {"status_code": 200, "body": body}, "error": None}],
        }
    )
    [response] = told.spec.ready_made
    assert (response.response, response.thinking) == ("No.", "Well.")
    assert any("tools" in note for note in told.findings.notes)


@pytest.mark.parametrize(
    ("text", "choice", "reason"),
    [
        ("Half", {"finish_reason": "content_filter"}, "filtered"),
        (None, {"finish_reason": "tool_calls"}, "no answer"),
    ],
)
def test_no_answer_is_left_out_by_policy(text, choice, reason):
    told = {
        "i": [asks("1", "m"), asks("2", "m")],
        "o": [says("1", "m", text, **choice), says("2", "m", "Yes")],
    }
    assert reasons(found(told)) == [f"of m: {reason}"]


def gemini(text: str, **more: Any) -> dict[str, Any]:
    parts = [{"text": "Hm.", "thought": True}, {"text": text}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, **more}], "modelVersion": "gem-1"}


def test_batches_of_google_join_by_key_or_hold_both_in_one_line():
    asked = [{"contents": [{"parts": [{"text": text}]}]} for text in ("Tea?", "Milk?", "Oil?")]
    said = [
        gemini("Green", finishReason="MAX_TOKENS"),
        gemini("Oat"),
        {"candidates": [{"finishReason": "SAFETY"}]},
    ]
    lines_in = [{"key": str(n), "request": each} for n, each in enumerate(asked)]
    lines_out = [{"key": str(n), "response": each} for n, each in enumerate(said)]
    whole = [{"status": "", "request": a, "response": b} for a, b in zip(asked, said, strict=True)]
    for told in (found({"in": lines_in, "out": [*reversed(lines_out)]}), found({"vertex": whole})):
        assert answers(told) == [("Milk?", "gem-1", "Oat"), ("Tea?", "gem-1", "Green")]
        assert {r.finish_reason for r in told.spec.ready_made if r.response == "Green"} == {"length"}
        assert {r.thinking for r in told.spec.ready_made} == {"Hm."}
        assert [reason.rpartition(": ")[2] for reason in reasons(told)] == ["filtered"]


def test_a_model_that_only_the_answer_names_and_thinking_in_parts():
    asked = asks("1", "")
    del asked["body"]["model"]
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Oat"},
    ]
    told = found({"i": [asked], "o": [says("1", "mistral-small", parts)]})
    assert answers(told) == [("Tea?", "mistral-small", "Oat")]
    assert [r.thinking for r in told.spec.ready_made] == ["Hm."]


def test_an_id_of_two_questions_says_nothing_about_its_answers():
    told = found({
        "i": [asks("1", "m"), asks("1", "m", "Milk?"), asks("2", "m", "Oil?")],
        "o": [says("1", "m", "First"), says("1", "m", "Second"), says("2", "m", "Olive")],
    })  # fmt: skip
    assert answers(told) == [("Oil?", "m", "Olive")]
    assert counts(told)["response"] == (1, 2)


def test_embeddings_are_refused():
    vector = {"object": "list", "data": [{"object": "embedding", "embedding": [0.1]}]}
    for row in (
        {"custom_id": "1", "url": "/v1/embeddings", "body": {"model": "e", "input": "Tea?"}},
        {"custom_id": "1", "response": {"status_code": 200, "body": vector}, "error": None},
    ):
        with pytest.raises(ImportingError, match="Embeddings"):
            found({"i": [row]})


def test_a_line_that_is_no_json_refuses_until_it_is_left_out():
    given = {"i": [asks("1", "m")], "o": lines(says("1", "m", "Yes")) + b'\n{"custom_id": '}
    with pytest.raises(ImportingError):
        found(given)
    assert counts(found(given, leave_out=True))["response"] == (1, 1)


# ---------------------------------------------------------------- Inspect


def log(*, header: str = "header.json") -> dict[str, bytes]:
    """The log as an archive holds it, with the shortened samples that are not to be read."""
    whole = json.loads(LOG.read_bytes())
    samples = whole.pop("samples")
    if header != "header.json":
        whole = {name: whole[name] for name in ("version", "eval", "plan")}
    held = {f"samples/{each['id']}_epoch_{each['epoch']}.json": json.dumps(each).encode() for each in samples}
    short = json.dumps([{"id": 1, "input": "Cap…", "output": "N'…"}]).encode()
    return {header: json.dumps(whole).encode(), "summaries.json": short, "reductions.json": b"[]"} | held


def zstandard(packed: bytes) -> bytes:
    """The archive with its files as Zstandard, which newer versions of Inspect write."""
    with zipfile.ZipFile(io.BytesIO(packed)) as given:
        content = {
            name: pa.Codec("zstd").compress(given.read(name), asbytes=True) for name in given.namelist()
        }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as made:
        for name, data in content.items():
            made.writestr(name, data)
        places = [(each.header_offset, 8) for each in made.infolist()]
    data = bytearray(file.getvalue())
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        places.append((at, 10))
        at = data.find(b"PK\x01\x02", at + 4)
    for start, offset in places:
        struct.pack_into("<H", data, start + offset, 93)
    return bytes(data)


@pytest.mark.parametrize(
    ("given", "ended"),
    [
        (files(LOG), "stopped by an error"),
        ({"log.eval": archive(log())}, "stopped by an error"),
        ({"log.eval": zstandard(archive(log()))}, "stopped by an error"),
        ({"logs.zip": archive({"log.eval": archive(log())})}, "stopped by an error"),
        ({"log.eval": archive(log(header="_journal/start.json"))}, "not finished"),
    ],
)
def test_a_log_of_inspect(given, ended):
    told = found(given)
    assert counts(told)["response"] == (4, 2)
    assert answers(told) == [
        ("Capital of Chad?", "acme/large · One word.", "Abéché"),
        ("Capital of Chad?", "acme/large · One word.", "N'Djamena"),
        ("Capital of Peru?", "acme/large · One word. You know maps.", "Lima"),
        ("Which is in Africa?\nA) Oslo\nB) Accra", "acme/large · One word.", "ANSWER: B"),
    ]
    assert {task.prompt[:15]: task.reference for task in told.spec.tasks} == {
        "Capital of Chad": "N'Djamena", "Capital of Peru": "Lima", "Which is in Afr": "B",
    }  # fmt: skip
    assert [r.thinking for r in told.spec.ready_made if r.thinking] == ["Peru, so Lima."]
    assert {reason.partition(": ")[2] for reason in reasons(told)} == {"with a missing attachment", "failed"}
    assert any(ended in note for note in told.findings.notes)


def test_two_logs_are_compared_and_attachments_found():
    whole = json.loads(LOG.read_bytes())
    whole["samples"] = [
        {"id": 1, "epoch": 1, "input": "attachment://ab12", "attachments": {"ab12": "Capital of Nepal?"},
         "output": {"choices": [{"message": {"role": "assistant", "content": "Kathmandu"}}]},
         "messages": [{"role": "tool", "content": "…"}]}
    ]  # fmt: skip
    other = whole | {"eval": whole["eval"] | {"model": "acme/small"}}
    told = found({"a.json": json.dumps(whole).encode(), "b.json": json.dumps(other).encode()})
    assert answers(told) == [
        ("Capital of Nepal?", "acme/large", "Kathmandu"),
        ("Capital of Nepal?", "acme/small", "Kathmandu"),
    ]
    assert sum("tools" in note for note in told.findings.notes) == 2


def test_a_log_with_filled_templates_and_a_sample_that_a_limit_ended():
    whole = json.loads(LOG.read_bytes())
    turns = [
        {"role": role, "content": text} for role, text in (("system", "In French."), ("user", "Peru? Think."))
    ]
    whole["plan"]["steps"][0]["params"]["template"] = "In {language}."
    whole["samples"] = [
        {"id": 1, "epoch": 1, "input": "Peru?", "messages": turns,
         "output": {"choices": [{"message": {"role": "assistant", "content": "Lima"}}]}},
        {"id": 2, "epoch": 1, "input": "Chad?", "messages": [],
         "output": {"model": "acme/large", "choices": [], "completion": ""}},
    ]  # fmt: skip
    told = found({"a.json": json.dumps(whole).encode()})
    [(task, _, text)] = answers(told)
    assert (task, text, list(told.systems)) == ("Peru?", "Lima", ["In French."])
    assert [reason.rpartition(": ")[2] for reason in reasons(told)] == ["no answer"]
    assert any("solver" in note for note in told.findings.notes)


# ---------------------------------------------------------------- lm-evaluation-harness


@pytest.mark.parametrize(
    "given",
    [
        {f"{SAMPLES.parent.name}/{SAMPLES.name}": SAMPLES.read_bytes()},
        {f"{SAMPLES.parent.name}.zip": archive(files(SAMPLES))},
        {"out.zip": archive({
            f"out/{SAMPLES.parent.name}/{SAMPLES.name}": SAMPLES.read_bytes(),
            f"out/{SAMPLES.parent.name}/results_2026-03-01T10-00-00.000000.json": b'{"results": {"sums": 1}}',
        })},
    ],
)  # fmt: skip
def test_samples_of_the_harness(given):
    told = found(given)
    assert counts(told) == {"row": (2, 2), "response": (3, 0), "task": (2, 0), "policy": (1, 0)}
    assert policies(told) == ["Acme/tiny-1b"]
    assert [task.reference for task in told.spec.tasks] == ["#### 4", "#### 7"]
    assert {r.response for r in told.spec.ready_made} == {" The answer is 4.", " It is 7", " Seven."}


CHAT = json.dumps([{"role": "system", "content": "S"}, {"role": "user", "content": "Tea?"}])


@pytest.mark.parametrize(
    ("arguments", "resps", "policy"),
    [
        ([["Tea?", {"until": []}]], ["Yes"], "m"),
        (["Tea?", {"until": []}], [["Yes"]], "m"),
        ({"gen_args_0": {"arg_0": "Tea?", "arg_1": {}}}, [["Yes"]], "m"),
        ({"gen_args_0": {"arg_0": [CHAT], "arg_1": {}}}, [["Yes"]], "m"),
        ([[CHAT, {}]], ["Yes"], "m"),
    ],
)
def test_older_and_newer_samples(arguments, resps, policy):
    told = found({"m/samples_a.jsonl": [{"doc_id": 0, "arguments": arguments, "resps": resps}]})
    assert answers(told) == [("Tea?", policy, "Yes")]


@pytest.mark.parametrize("resps", [[[-1.5, False]], [["-1.5", "False"]]])
def test_likelihoods_are_no_texts(resps):
    row = {"doc_id": 0, "arguments": {"gen_args_0": {"arg_0": "Tea?", "arg_1": " Yes"}}, "resps": resps}
    with pytest.raises(ImportingError, match="likelihoods"):
        found({"m/samples_a.jsonl": [row]})
    text = {"doc_id": 1, "arguments": [["Tea?", {}]], "resps": [["Yes"]]}
    assert counts(found({"m/samples_a.jsonl": [row, text]}))["response"] == (1, 1)


def test_results_beside_samples_are_no_rows_whatever_their_name():
    told = found({
        "out/run_2026-03-01T10-00-00.000000.json": b'{"results": {"sums": {}}, "configs": {}}',
        f"out/{SAMPLES.name}": SAMPLES.read_bytes(),
    })  # fmt: skip
    assert counts(told)["response"] == (3, 0)


def test_the_folders_of_two_models_are_two_policies():
    row = {"doc_id": 0, "arguments": [["Tea?", {}]], "resps": [["Yes"]]}
    packed = {f"{name}.zip": archive({"samples_a.jsonl": lines(row)}) for name in ("a__x", "b")}
    assert policies(found(packed)) == ["a/x", "b"]


def test_a_folder_of_a_command_names_the_model(tmp_path):
    folder = tmp_path / "b__y"
    folder.mkdir()
    (folder / "samples_a.jsonl").write_bytes(
        lines({"doc_id": 0, "arguments": [["Tea?", {}]], "resps": [["Yes"]]})
    )
    told = found_in(source_at(folder, FILE_BYTES))
    assert told is not None
    assert policies(told) == ["b/y"]


# ---------------------------------------------------------------- AlpacaEval and MT-Bench


def test_outputs_of_alpaca_eval_have_the_generator_or_the_file_as_policy():
    row = {"instruction": "Tea?", "output": "Yes", "dataset": "d"}
    told = found({"small.json": lines(row), "x.json": json.dumps([row | {"generator": "large"}]).encode()})
    assert policies(told) == ["small", "large"]
    assert told.spec.tasks[0].tags == ("d",)


@pytest.mark.parametrize("preference", [1, 2.0, 1.5, None, 1.83])
def test_a_vote_of_a_model_becomes_no_persons(preference):
    row = {
        "instruction": "Tea?", "output_1": "Yes", "generator_1": "a", "output_2": "No", "generator_2": "b",
        "preference": preference, "annotator": "gpt4",
    }  # fmt: skip
    told = found({"annotations.json": json.dumps([row, row | {"instruction": "Milk?"}]).encode()})
    assert counts(told) == {"vote": (0, 2), "response": (4, 0), "task": (2, 0), "policy": (2, 0)}


def test_answers_of_mt_bench():
    told = found(files(*MT_BENCH))
    assert counts(told) == {"later turn": (0, 3), "response": (3, 2), "task": (2, 0), "policy": (2, 0)}
    assert [task.reference for task in told.spec.tasks] == ["", "144"]
    assert ("Write a line about rain.", "acme-small", "Rain falls.") in answers(told)
    assert sorted(reason.partition(": ")[2] for reason in reasons(told) if reason.startswith("of ")) == [
        "an error", "replaced by a later answer",
    ]  # fmt: skip


def test_the_later_answer_counts_whatever_the_order_and_judgments_are_left_out():
    rows = {path.name: path.read_bytes().splitlines() for path in MT_BENCH}
    told = found(
        {
            "judgment.jsonl": [
                {"question_id": 81, "model": "acme-small", "judge": ["j", "p"], "score": 3, "turns": 1}
            ],
            "reference_answer/gpt.jsonl": [
                {"question_id": 81, "model_id": "gpt", "choices": [{"turns": ["R"]}]}
            ],
            **{name: b"\n".join(reversed(each)) for name, each in rows.items()},
        }
    )
    assert counts(told)["vote"] == (0, 1)
    assert ("Write a line about rain.", "acme-small", "Rain falls.") in answers(told)
    assert {task.prompt: task.reference for task in told.spec.tasks}["Write a line about rain."] == "R"
    assert policies(told) == ["acme-small", "acme-large"]


def test_times_of_answers_that_are_no_numbers_leave_the_order_of_the_file():
    answers_of = {"question_id": 1, "model_id": "a"}
    rows = [
        answers_of | {"choices": [{"turns": [text]}], "tstamp": time}
        for text, time in (("first", "2024-03-01"), ("last", "yesterday"))
    ]
    told = found({"question.jsonl": [{"question_id": 1, "turns": ["Tea?"]}], "answer.jsonl": rows})
    assert answers(told) == [("Tea?", "a", "last")]


@pytest.mark.parametrize(
    "text",
    [
        "task,policy,response\nTea?,a,Yes\n",
        '{"task": "Tea?", "policy": "a", "response": "Yes"}\n',
        '{"instruction": "Tea?", "output": "Yes", "vendor": "a"}\n',
        '[{"custom_id": "1", "prompt": "Tea?"}]',
        "name: Tea\nfactors: []\n",
    ],
)
def test_tables_of_somebodys_own_are_no_runs(text):
    assert found_in(source_of([("mine.jsonl", io.BytesIO(text.encode()))], FILE_BYTES)) is None
