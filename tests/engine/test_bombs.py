"""Files that would take the time or the memory of a web process, or end it with a fault of its own."""

import gzip
import io
import json
import time
import zipfile

import pytest

from engine.domain.limits import DESCRIPTION_BYTES, LEVELS, RESPONSES_BYTES, TEXT_CHARACTERS
from engine.importing.findings import Findings
from engine.importing.mapping import ShortNames
from engine.importing.messages import Answer, answers_in
from engine.importing.other_tools import found_in
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError, Row
from engine.importing.runs import unfolded

CALL = {"type": "GENERATION", "traceId": "t", "input": "Hi", "output": "Hello", "model": "m"}
SPAN = {"spanId": "1", "traceId": "2", "name": "chat"}


def found(data: bytes | str, name: str = "a.json", most=RESPONSES_BYTES):
    given = data.encode() if isinstance(data, str) else data
    return found_in(source_of([(name, io.BytesIO(given))], most))


def test_a_number_of_pages_is_only_a_number():
    document = json.dumps({"data": [CALL], "meta": {"page": 1, "totalPages": 10**12}})
    with pytest.raises(ImportingError, match="1 of 1000000000000 pages"):
        found(document)


def test_many_policies_are_counted_and_not_paired():
    began = time.process_time()
    told = found("\n".join(json.dumps(CALL | {"model": f"m{n}"}) for n in range(10_000)))
    assert told is not None
    assert told.n_policies > LEVELS.most
    assert not told.compares
    assert time.process_time() - began < 5


def test_names_that_are_shortened_alike_are_numbered_at_once():
    began = time.process_time()
    names = ShortNames()
    assert len({names[f"{'x' * 300}{n}"] for n in range(10_000)}) == 10_000
    assert time.process_time() - began < 5


def test_packed_files_share_one_limit():
    packed = gzip.compress((json.dumps(CALL) + " " * 600_000).encode())
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in "abc":
            file.writestr(f"{name}.json", packed)
    with pytest.raises(ImportingError, match="too large"):
        found(archive.getvalue(), "a.zip", DESCRIPTION_BYTES)


@pytest.mark.parametrize(
    "attributes",
    [
        {f"gen_ai.{'a.' * 5_000}": "x"},
        {f"gen_ai.{'9' * 5_000}": "x"},
        {f"gen_ai.completion.{'9' * 5_000}": "x", "gen_ai.completion": "y"},
        [{"key": "gen_ai.x", "value": {"intValue": "--5"}}],
        [{"key": "gen_ai.x", "value": {"intValue": "5" * 5_000}}],
    ],
)
def test_attributes_of_any_shape_are_read_or_refused(attributes):
    with pytest.raises(ImportingError):
        found(json.dumps(SPAN | {"attributes": attributes}))


def test_a_time_of_any_length_is_read_or_refused():
    event = SPAN | {"timeUnixNano": "9" * 5_000, "eventName": "gen_ai.choice", "attributes": {}, "body": "x"}
    with pytest.raises(ImportingError):
        found(json.dumps(event))


def test_messages_of_several_conversations_are_no_fault_of_ours():
    asked = json.dumps([[{"role": "user", "content": each}] for each in "ab"])
    attributes = {"openinference.span.kind": "LLM", "llm.input_messages": asked}
    with pytest.raises(ImportingError, match="several conversations"):
        found(json.dumps(SPAN | {"attributes": attributes}))


def test_many_messages_of_thinking_are_read_at_once():
    began = time.process_time()
    said = [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": str(n)}]} for n in range(5_000)
    ]
    [answer] = answers_in([*said, {"role": "assistant", "content": "Yes."}])
    assert isinstance(answer, Answer)
    assert (answer.text, answer.thinking.count("\n")) == ("Yes.", 4_999)
    assert time.process_time() - began < 5


ASKED = {"custom_id": "1", "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}}
CHOICES = [{"message": {"role": "assistant", "content": "Hello"}}]


@pytest.mark.parametrize(
    "rows",
    [
        [ASKED, {"custom_id": "1", "response": {"body": {"model": None, "choices": CHOICES}}}],
        [ASKED, {"custom_id": "1", "response": {"body": {"model": 5, "choices": CHOICES}}}],
        [ASKED, {"custom_id": "1", "result": {"type": []}}],
        [
            {"eval": {"model": "m", "model_generate_config": 5}, "plan": "x"},
            {"input": "Hi", "attachments": 5},
        ],
    ],
)
def test_lines_of_any_shape_are_read_or_left_out(rows):
    findings = Findings()
    read = [*unfolded([Row(str(n), row) for n, row in enumerate(rows)], findings)]
    assert len(read) + findings.n_left("response") == 1


def test_an_attachment_grows_no_text_beyond_the_limit():
    header = Row("1", {"eval": {"model": "m"}, "status": "success"})
    sample = {
        "input": "attachment://a " * TEXT_CHARACTERS.most,
        "output": "Hello",
        "attachments": {"a": "x" * 100_000},
    }
    findings = Findings()
    assert not [*unfolded([header, Row("2", sample)], findings)]
    assert "too long" in " ".join(findings.sentences())


def test_answers_of_one_document_are_told_apart_at_once():
    began = time.process_time()
    rows = [
        Row("1", {"doc_id": 1, "resps": [[f"answer {n}"]], "arguments": [["Hi", {"until": []}]]})
        for n in range(10_000)
    ]
    assert len([*unfolded(rows, Findings())]) == len(rows)
    assert time.process_time() - began < 5
