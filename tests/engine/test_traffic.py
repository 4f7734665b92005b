"""Data sets and traces of other tools; tests/fixtures has invented files of each."""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import io
import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.domain.limits import CALLS, FILE_BYTES, RESPONSES_BYTES
from engine.importing.found_files import FoundFile
from engine.importing.gathered import Sample
from engine.importing.other_tools import export_in, found_in
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError

FIXTURES = Path(__file__).parents[1] / "fixtures"


def brought(data: str | bytes, name: str = "file", sample: Sample | None = None) -> FoundFile:
    data = data.encode() if isinstance(data, str) else data
    told = found_in(source_of([(name, io.BytesIO(data))], FILE_BYTES), sample=sample or Sample())
    assert told is not None
    return told


def read(path: str) -> FoundFile:
    return brought((FIXTURES / path).read_bytes())


def lines(path: str) -> list[dict]:
    return [json.loads(line) for line in (FIXTURES / path).read_text().splitlines()]


def numbers(told: FoundFile) -> tuple[int, int, int]:
    """Tasks, responses, policies."""
    return len(told.spec.tasks), len(told.spec.ready_made), told.n_policies


def left(told: FoundFile) -> dict[str, int]:
    """What was left out, by its reason."""
    return {each["reason"]: int(each["counted"].split()[0]) for each in told.findings.left_out()}


def content(told: FoundFile) -> list[tuple[str, str, str]]:
    tasks = [task.prompt for task in told.spec.tasks]
    return [(each.policy, tasks[each.task], each.response) for each in told.spec.ready_made]


class TestLangfuse:
    def test_items(self):
        told = read("langfuse/dataset-items.json")
        assert numbers(told) == (4, 0, 0)
        assert [bool(task.reference) for task in told.spec.tasks] == [True, True, False, True]
        assert told.systems == ["You help a bike shop."]
        assert left(told) == {"archived": 1, "without a text of the user": 1}
        chat, helmet, wheels = told.spec.tasks[1:]
        assert [(each.role, each.content) for each in chat.messages] == [
            ("user", "Hi"), ("assistant", "Hello! What is it?"), ("user", "My chain jumps.\nIt is new."),
        ]  # fmt: skip
        assert (helmet.prompt, helmet.variables) == ("Habt ihr Helme?", {"locale": "de", "cart_items": "2"})
        assert (chat.reference, wheels.prompt, wheels.reference) == (
            "Check the cassette.", "Do you true wheels?", "Yes, in two days.",
        )  # fmt: skip

    def test_a_trace(self):
        told = read("langfuse/trace.json")
        assert content(told) == [
            ("support-reply 3 · acme-large", "Is the blue one in stock?", "Two are left."),
            ("acme-small", "Thank the customer in five words.", "Thanks, see you soon, Kim!"),
        ]
        assert numbers(told) == (2, 2, 2)
        assert sum(left(told).values()) == 5
        assert "No two policies share a task, so that nothing can be compared." in told.findings.notes
        assert any("after calls of tools" in note for note in told.findings.notes)
        assert told.systems == ["You help a bike shop."]
        assert not told.compares

    def test_a_storage_export_and_a_table(self):
        nested = ("input", "expectedOutput", "metadata")
        items = json.loads((FIXTURES / "langfuse/dataset-items.json").read_text())["data"]
        expected = read("langfuse/dataset-items.json").spec.tasks
        names = {"expectedOutput": "expected_output", "datasetId": "dataset_id"}
        stored = [
            {names.get(n, n): json.dumps(v) if n in nested else v for n, v in item.items()} for item in items
        ]
        assert brought("\n".join(map(json.dumps, stored))).spec.tasks == expected
        table = io.StringIO()
        writer = csv.DictWriter(table, ["id", "input", "expectedOutput", "metadata", "status"])
        writer.writeheader()
        for item in items:
            row = {n: json.dumps(item[n]) for n in nested}
            writer.writerow({"id": item["id"], "status": item["status"], **row})
        assert brought(table.getvalue(), "items.csv").spec.tasks == expected

    def test_observations_of_a_storage(self):
        trace = json.loads((FIXTURES / "langfuse/trace.json").read_text())
        names = {"traceId": "trace_id", "promptName": "prompt_name", "model": "provided_model_name"}
        names |= {"promptVersion": "prompt_version"}
        stored = [
            {names.get(n, n): json.dumps(v) if n in {"input", "output"} else v for n, v in each.items()}
            for each in trace["observations"]
        ]
        assert content(brought("\n".join(map(json.dumps, stored)))) == content(read("langfuse/trace.json"))

    def test_one_page_of_several_is_refused(self):
        page = json.loads((FIXTURES / "langfuse/dataset-items.json").read_text())
        page["meta"] |= {"totalPages": 2}
        with pytest.raises(ImportingError, match="1 of 2 pages"):
            brought(json.dumps(page))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("1.json", json.dumps(page))
            page["data"] = [{**page["data"][0], "input": "Another?"}]
            archive.writestr("2.json", json.dumps(page | {"meta": {"page": 2, "totalPages": 2}}))
        assert len(brought(packed.getvalue(), "pages.zip").spec.tasks) == 5


class TestLangSmith:
    def test_examples(self):
        told = read("langsmith/examples.jsonl")
        assert numbers(told) == (4, 0, 0)
        assert [task.reference for task in told.spec.tasks] == [
            "It moves the chain.", "Clean the rotor.", "5 Nm.", "",
        ]  # fmt: skip
        assert left(told) == {"a duplicate with another answer": 1, "without a text of the user": 1}
        assert told.systems == ["You are a mechanic."]
        assert told.spec.tasks[1].tags == ("base", "brakes")
        assert told.spec.tasks[3].variables == {"budget": "60"}

    def test_examples_of_a_table(self):
        table = "input_question,input_budget,output_answer\nWhich tyre?,60,Wide.\nWhich pump?,,Small.\n"
        told = brought(table, "examples.csv")
        assert [task.prompt for task in told.spec.tasks] == ["Which tyre?", "Which pump?"]
        assert [task.reference for task in told.spec.tasks] == ["Wide.", "Small."]
        assert told.spec.tasks[0].variables == {"budget": "60"}
        bare = [{"inputs": {"question": "Q"}, "outputs": {"answer": "A"}}]
        assert brought(json.dumps(bare)).spec.tasks[0].reference == "A"

    def test_other_columns_stand_beside_them(self):
        table = 'id,input_question,output_answer,metadata\n7,Q?,A.,"{""dataset_split"": [""base""]}"\n'
        [task] = brought(table, "examples.csv").spec.tasks
        assert (task.prompt, task.reference, task.tags, task.variables) == ("Q?", "A.", ("base",), {})

    def test_runs(self):
        told = read("langsmith/runs.jsonl")
        assert numbers(told) == (2, 3, 2)
        assert {policy for policy, *_ in content(told)} == {"prompt-v1", "prompt-v2"}
        assert left(told) == {
            "a step of another run": 1,
            "a tool": 1,
            "of prompt-v2: failed (TimeoutError())": 1,
        }
        assert told.compares

    def test_runs_without_examples_count_by_their_model(self):
        runs = [run | {"reference_example_id": None} for run in lines("langsmith/runs.jsonl")]
        runs[1]["extra"] = {"metadata": {"ls_model_name": "acme"}}
        told = brought("\n".join(map(json.dumps, runs)))
        assert content(told) == [("acme · Be brief.", "What is a derailleur?", "It shifts the chain.")]
        assert told.systems == ["Be brief."]


class TestSpans:
    def test_phoenix(self):
        told = read("phoenix/spans.jsonl")
        assert content(told) == [
            ("acme-small · One word.", "Name a cheese.", "Brie."),
            ("acme-small", "Name a bread.\nFrom Malta.", "Ħobż."),
            ("acme-large", "Name a cheese.", "Gouda."),
        ]
        assert numbers(told) == (2, 3, 3)
        assert sum(left(told).values()) == 4

    def test_failures_count_for_the_policy_of_their_system_text(self):
        spans = lines("phoenix/spans.jsonl")[1:2] * 2
        spans[1] = spans[1] | {"context": {"trace_id": "t9", "span_id": "z"}, "status_code": "ERROR"}
        told = brought("\n".join(map(json.dumps, spans)))
        assert left(told) == {"of acme-small · One word.: failed (without a message)": 1}

    def test_columns_of_a_data_frame(self):
        span = lines("phoenix/spans.jsonl")[3]
        table = io.StringIO()
        writer = csv.DictWriter(table, [*span])
        writer.writeheader()
        writer.writerow({n: v if isinstance(v, str) else json.dumps(v) for n, v in span.items()})
        assert content(brought(table.getvalue(), "spans.csv")) == [("acme-large", "Name a cheese.", "Gouda.")]

    def test_the_whole_request_is_the_last_resort(self):
        span = lines("phoenix/spans.jsonl")[1]
        del span["attributes"]["llm.input_messages"]
        del span["attributes"]["llm.output_messages"]
        span["attributes"]["output.value"] = "Brie!"
        assert content(brought(json.dumps(span))) == [("acme-small", "Name a cheese.", "Brie!")]

    def test_attributes(self):
        told = read("otel/attributes.jsonl")
        assert numbers(told) == (2, 3, 2)
        first, seven, nine = told.spec.ready_made
        assert (first.thinking, first.response, first.finish_reason) == ("They want a place.", "Tortuga!", "")
        assert (seven.finish_reason, nine.finish_reason, nine.response) == ("", "length", "Nine, and that is")
        assert len(told.spec.tasks[0].messages) == 3
        assert told.systems == ["Answer as a pirate."]
        assert sum(left(told).values()) == 4

    def test_events(self):
        told = read("otel/events.jsonl")
        assert content(told) == [
            ("a model without a name · Speak plainly.", "What is dew?", "Water from cool air."),
            ("acme-old", "What is fog?", "A cloud on the ground."),
            ("acme-mid", "What is hail?", "Ice that falls."),
            ("acme-mid", "What is sleet?", "Rain with ice."),
        ]
        assert numbers(told) == (4, 4, 3)

    def test_a_console_prints_a_span_over_many_lines(self):
        spans = [
            {
                "name": "chat m",
                "context": {"trace_id": "0x1", "span_id": f"0x{number}"},
                "status": {"status_code": "OK"},
                "attributes": {
                    "gen_ai.request.model": "m",
                    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"content": "Hi"}]}]),
                    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": ["Ho"]}]),
                },
            }
            for number in range(2)
        ]
        assert content(brought("\n".join(json.dumps(each, indent=4) for each in spans))) == [
            ("m", "Hi", "Ho")
        ] * len(spans)

    def test_each_text_counts_once(self):
        row = lines("otel/attributes.jsonl")[0]
        [span] = row["resourceSpans"][0]["scopeSpans"][0]["spans"]
        asked, answered = {"stringValue": "Where to?"}, {"stringValue": "Tortuga!"}
        span["attributes"] += [
            {"key": "gen_ai.prompt.0.role", "value": {"stringValue": "user"}},
            {"key": "gen_ai.prompt.0.content", "value": asked},
            {"key": "gen_ai.completion.0.content", "value": answered},
        ]
        attributes = [{"key": "content", "value": asked}]
        span["events"] = [{"name": "gen_ai.user.message", "attributes": attributes}]
        body = {"kvlistValue": {"values": [{"key": "message", "value": answered}]}}
        record = {n: span[n] for n in ("traceId", "spanId")} | {"eventName": "gen_ai.choice", "body": body}
        log = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        told = brought("\n".join(map(json.dumps, [row, row, log])))
        assert [each[2] for each in content(told)] == ["Tortuga!"]
        assert len(told.spec.tasks[0].messages) == 3

    def test_a_line_may_lack_its_outermost_name(self):
        row = lines("otel/attributes.jsonl")[1]["resourceSpans"][0]
        assert numbers(brought(json.dumps(row))) == (1, 2, 1)

    def test_spans_without_texts_say_what_to_switch_on(self):
        model = {"key": "gen_ai.request.model", "value": {"stringValue": "m"}}
        span = {"traceId": "1", "name": "chat m", "attributes": [model]}
        spans = [{**span, "spanId": str(n)} for n in range(12)]
        with pytest.raises(ImportingError, match="12 of 12 spans hold no texts: switch on the capture"):
            brought(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))


@pytest.mark.parametrize(("most", "is_read"), [(RESPONSES_BYTES, False), (FILE_BYTES, True)])
def test_a_web_process_reads_a_number_of_rows(most, is_read):
    row = json.dumps({"type": "GENERATION", "traceId": "t", "input": "Hi?", "output": "Yes"})
    source = source_of([("a.jsonl", io.BytesIO("\n".join([row] * (CALLS.most + 1)).encode()))], most)
    with contextlib.nullcontext() if is_read else pytest.raises(ImportingError, match="load_experiment"):
        assert found_in(source) is not None


def test_tasks_alone_leave_the_responses_and_count_them():
    source = source_of([("a", io.BytesIO((FIXTURES / "otel/events.jsonl").read_bytes()))], FILE_BYTES)
    told = export_in(source, tasks_alone=True)
    assert told is not None
    assert (len(told.spec.tasks), told.spec.ready_made, told.spec.factors) == (4, [], [])
    assert left(told)["since new policies answer the tasks"] == 4


def test_a_sample_is_drawn_by_its_seed():
    rows = [{"inputs": {"question": f"Question {n}?"}, "outputs": None} for n in range(50)]
    text = "\n".join(map(json.dumps, rows))
    drawn = [brought(text, sample=Sample(10, seed)).spec.tasks for seed in (1, 1, 2)]
    assert [len(each) for each in drawn] == [10] * 3
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_sample_keeps_the_responses_to_its_tasks():
    told = brought((FIXTURES / "langsmith/runs.jsonl").read_bytes(), sample=Sample(1, 3))
    assert len(told.spec.tasks) == 1
    assert {each.task for each in told.spec.ready_made} == {0}


@pytest.mark.parametrize(
    "text",
    [
        "input,expected_output\nHi,Ho\n",
        '{"input": "Hi", "output": "Ho", "id": 3}',
        '{"task": "Hi", "policy": "P", "response": "Ho"}',
        '{"inputs": "Hi", "outputs": "Ho"}',
        '[{"messages": [{"role": "user", "content": "Hi"}]}]',
        '{"name": "x", "factors": [], "tasks": ["a"]}',
        "Hi\nHo\n",
    ],
)
def test_tables_of_people_are_no_exports(text):
    assert found_in(source_of([("a.csv", io.BytesIO(text.encode()))], FILE_BYTES)) is None


def test_to_begin_offers_the_system_texts_as_levels():
    [factor] = read("phoenix/spans.jsonl").to_begin.factors
    assert factor.levels == {"One word.": {"text": "One word."}}


@pytest.mark.parametrize(
    "path",
    [
        f"{name}/{each.name}"
        for name in ("langfuse", "langsmith", "phoenix", "otel")
        for each in sorted((FIXTURES / name).iterdir())
    ],
)
def test_values_of_any_kind_break_no_reader(path):
    """Each value of a file in turn becomes another kind: the file is read, or refused with a reason."""
    text = (FIXTURES / path).read_text()
    whole = json.loads(text) if path.endswith(".json") else lines(path)
    wrong = itertools.cycle(
        [None, 0, True, "text", [], {}, [None], [1], {"a": 1}, [{}], {"role": "user"}, "[1]"]
    )
    for place in [each for each in places_in(whole) if each]:
        changed = copy.deepcopy(whole)
        *outer, last = place
        functools.reduce(lambda inner, name: inner[name], outer, changed)[last] = next(wrong)
        rows = [changed] if path.endswith(".json") else changed
        with contextlib.suppress(ImportingError):
            found_in(source_of([("a", io.BytesIO("\n".join(map(json.dumps, rows)).encode()))], FILE_BYTES))


def places_in(value: object, place: tuple = ()) -> Iterator[tuple]:
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield from places_in(each, (*place, name))


# ---------------------------------------------------------------- as instrumentations write spans


def genai(*events: tuple[str, dict], span: str = "s1", **attributes: str) -> str:
    """A span with log records, as traceloop and opentelemetry's own instrumentation write them."""
    own = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "acme", **attributes}
    logs = [{"traceId": "t", "spanId": span, "eventName": name, "body": body} for name, body in events]
    return "\n".join(map(json.dumps, [{"traceId": "t", "spanId": span, "attributes": own}, *logs]))


def test_a_developers_text_is_the_system_text_whatever_the_event_is_called():
    answer = ("gen_ai.choice", {"message": {"content": "Green."}})
    asked = ("gen_ai.user.message", {"content": "Tea?"})
    for said in (
        ("gen_ai.developer.message", {"content": "Be kind."}),
        ("gen_ai.user.message", {"content": "Be kind.", "role": "developer"}),
    ):
        told = brought(genai(said, asked, answer))
        assert content(told) == [("acme · Be kind.", "Tea?", "Green.")]


def test_events_without_contents_hold_no_texts():
    with pytest.raises(ImportingError, match="1 of 1 spans hold no texts"):
        brought(genai(("gen_ai.user.message", {}), ("gen_ai.choice", {"message": {"role": "assistant"}})))


def test_calls_of_tools_beside_the_message_and_records_outside_of_a_span_are_counted():
    asked = ("gen_ai.user.message", {"content": "Tea?"})
    calls = ("gen_ai.choice", {"message": {}, "tool_calls": [{"id": "1"}]})
    good = genai(asked, ("gen_ai.choice", {"message": {"content": "Green."}}), span="s2")
    lost = json.dumps({"eventName": "gen_ai.choice", "body": {"message": {"content": "S"}}})
    told = brought("\n".join([genai(asked, calls), good, lost]))
    assert [reason.partition(": ")[2] for reason in left(told)] == [
        "a tool call without a text", "without a text of the user",
    ]  # fmt: skip


def test_openinference_names_the_asked_model_and_thinking_is_no_answer_of_its_own():
    def message(kind: str, text: str) -> dict:
        return {
            "message": {"role": "assistant", "contents": [{"message_content": {"type": kind, "text": text}}]}
        }

    span = lines("phoenix/spans.jsonl")[1]
    span["attributes"] |= {
        "llm.model_name": "acme-2026-01-01",
        "llm.invocation_parameters": '{"model": "acme"}',
        "llm.output_messages": [message("reasoning", "Hm."), message("text", "Gouda.")],
    }
    told = brought(json.dumps(span))
    [made] = told.spec.ready_made
    assert (made.policy.partition(" ")[0], made.response, made.thinking) == ("acme", "Gouda.", "Hm.")
    assert not left(told)


def test_a_traceback_is_cut_in_what_is_told():
    span = lines("phoenix/spans.jsonl")[1]
    failed = span | {"context": {"trace_id": "t9", "span_id": "z"}, "status_code": "ERROR"}
    failed["status_message"] = "Traceback:\n" * 200
    [reason] = left(brought("\n".join(map(json.dumps, [span, failed]))))
    assert len(reason) < 300
    assert "\n" not in reason
