"""Exports of Langfuse, LangSmith, Phoenix and OpenTelemetry: data sets and traces, known by their shapes."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from engine.domain.limits import CALLS, FILE_BYTES
from engine.importing.companion_files import files_of
from engine.importing.gathered import TOO_DEEP, Call
from engine.importing.reading_process import Source
from engine.importing.rows import ImportingError, Row, in_json
from engine.importing.spans import calls_of_spans, spans_in
from engine.importing.strict_json import JSONLimitError, entry_at
from engine.importing.table_files import is_json, names_in, text_of

Fields = Mapping[str, Any]
Placed = tuple[str, Fields]
# Where a document holds rows.
_LISTS = ("observations", "data", "items", "examples", "runs", "spans", "traces")
# Names of Langfuse's exports to a storage, and those that its API has.
_CAMEL = {
    "expected_output": "expectedOutput", "dataset_id": "datasetId", "dataset_name": "datasetName",
    "trace_id": "traceId", "prompt_name": "promptName", "prompt_version": "promptVersion",
    "source_trace_id": "sourceTraceId", "status_message": "statusMessage", "session_id": "sessionId",
    "user_id": "userId", "provided_model_name": "model",
}  # fmt: skip
_OBSERVATIONS = {
    "GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING",
    "GUARDRAIL",
}  # fmt: skip
# Columns of LangSmith's tables beside those of inputs and outputs.
_BESIDE = {"id", "metadata", "split", "created_at", "modified_at", "dataset_id", "source_run_id", "name"}
_OF_AN_ITEM = {"datasetId", "datasetName", "sourceTraceId", "status"}
_OF_A_TRACE = {"sessionId", "userId", "release", "bookmarked", "environment", "htmlPath", "latency"}
_SPACE = re.compile(r"[\s,]*")
_ALL = "Bring all of them, as one ZIP or in one file, one after another."
# A data set is known by its first rows.
_LOOKED_AT = 20


def calls_in(source: Source) -> Sequence[Call] | None:
    """The calls and items that these files hold; `None` of files that are no export of such a tool.

    Raises
    ------
    ImportingError
        It is one page of several, or a part of it cannot be read.
    """
    rows: list[Placed] = []
    pages: list[Fields] = []
    faults: list[ImportingError] = []
    files, left = files_of(source), source.most.most
    for name, data in sorted(files.items()):
        prefix = f"{name}, " if len(files) > 1 else ""
        try:
            text = _text(data, left)
            left -= len(text)
            if not is_json(text):
                continue
            for place, document in _documents(text):
                rows += [(f"{prefix}{place}{inner}", row) for inner, row in _rows(document, pages)]
                # A command reads larger files.
                if source.most is not FILE_BYTES and (message := CALLS.refusal(len(rows))):
                    del rows[CALLS.most :]
                    raise ImportingError.at("", message)
        except (ImportingError, OSError, EOFError) as error:
            faults.append(ImportingError.at(name, str(error)))
    if not rows and any(map(_may_be_table, files.values())):
        rows = [*_rows_of_table(source)]
    try:
        calls = _known(rows)
    except RecursionError as error:
        raise TOO_DEEP from error
    if calls is None:
        return None
    if faults:
        raise faults[0]
    _check_whole(pages)
    return calls


def _text(data: bytes, most: int) -> str:
    """The text of a file, which may be packed, also in an archive with many others."""
    if data.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            data = packed.read(most + 1)
    if len(data) > most:
        raise ImportingError.at("", "The files are too large unpacked. Split them, or draw a sample.")
    return text_of(data)


def _may_be_table(data: bytes) -> bool:
    """True if a process should look: it is packed or binary, or its first line has such names."""
    if data.startswith((b"PK", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"\x1f\x8b")):
        return True
    names = names_in(data[:100_000].decode(errors="replace"))
    return any(name.startswith(("input", "output", "attributes.", "run_type")) for name in names)


def _documents(text: str) -> Iterator[tuple[str, Any]]:
    """The documents of a text, one after another: the entries of a list, lines, or spans as a console prints
    them, each over many lines.
    """
    text = text.lstrip("\ufeff")
    at, line = 0, 1
    while at < len(text):
        end = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        line += text.count("\n", at, end)
        if end == len(text):
            return
        try:
            document, at = entry_at(text, end)
        except (ValueError, RecursionError) as error:
            raise ImportingError.at(f"line {line}", f"This is not JSON: {error}.") from error
        if isinstance(document, JSONLimitError):
            raise ImportingError.at(f"line {line}", str(document))
        entries = document if isinstance(document, list) else [document]
        for number, entry in enumerate(entries, 1):
            yield f"entry {number}" if isinstance(document, list) else f"line {line}", entry
        line += text.count("\n", end, at)


def _rows(document: Any, pages: list[Fields]) -> Iterator[tuple[str, Fields]]:
    """The rows that a document holds, each with its place in it; a trace's are its observations."""
    if not isinstance(document, Mapping):
        return
    name = next((n for n in _LISTS if _is_rows(document.get(n))), "")
    if not name or spans_in(document) is not None:
        yield "", document
        return
    pages.append({key: value for key, value in document.items() if key != name})
    for number, row in enumerate(document[name], 1):
        yield from ((f", {name} {number}{inner}", each) for inner, each in _rows(row, pages))


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _check_whole(pages: Sequence[Fields]) -> None:
    """Refuse a part of what there is: what is missing would be lost without a word."""
    seen: set[int] = set()
    total = 0
    for page in pages:
        meta = page.get("meta")
        meta = meta if isinstance(meta, Mapping) else {}
        cursors = page.get("cursors")
        more = meta.get("cursor") or page.get("next_cursor")
        more = more or (cursors.get("next") if isinstance(cursors, Mapping) else None)
        if more and page is pages[-1]:
            raise ImportingError.at(
                "",
                f"This is one page of several: more follow it. {_ALL}",
            )
        with contextlib.suppress(TypeError, ValueError):
            total = max(total, int(meta["totalPages"])) if "totalPages" in meta else total
            seen.add(int(meta.get("page", 1)))
    # The file says the total: nothing of that size is made.
    there = sum(1 <= page <= total for page in seen)
    if there < total:
        raise ImportingError.at("", f"These are {there} of {total} pages. {_ALL}")


def _rows_of_table(source: Source) -> Iterator[Placed]:
    """The rows of a table that has a tool's columns; cells hold JSON."""
    with contextlib.suppress(ImportingError), contextlib.ExitStack() as stack:
        found = source.rows()
        stack.callback(found.close)
        for row in found:
            if not isinstance(row, Row):
                continue
            fields = {name: _cell(value) for name, value in row.fields.items()}
            sides = {name: name.partition("_") for name in fields.keys() - _BESIDE}
            if {side for side, _, rest in sides.values() if rest} == {"input", "output"}:
                grouped: dict[str, Any] = {name: fields[name] for name in fields.keys() & _BESIDE}
                for name in filter(sides.__contains__, fields):
                    grouped.setdefault(f"{sides[name][0]}s", {})[sides[name][2]] = fields[name]
                fields = grouped
            if not _kind(fields) and spans_in(fields) is None:
                return
            yield row.place, fields


def _cell(value: Any) -> Any:
    """What a cell holds: JSON, also a text in its quotation marks."""
    if isinstance(value, str) and value.strip() == "null":
        return None
    if isinstance(value, str) and value[:1] == value[-1:] == '"':
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return in_json(value)


# ---------------------------------------------------------------- whose rows these are


def _kind(row: Fields) -> str:
    """What a row of Langfuse or of LangSmith is; empty for others."""
    names = {_CAMEL.get(name, name) for name in row}
    if str(row.get("type")) in _OBSERVATIONS and "traceId" in names:
        return "observation"
    if {"input", "expectedOutput"} <= names and (
        names & _OF_AN_ITEM or not isinstance(in_json(row["input"]), str)
    ):
        return "item"
    if {"id", "input", "output"} <= names and len(names & _OF_A_TRACE) > 1:
        return "trace"
    if "run_type" in names:
        return "run"
    return "example" if isinstance(in_json(row.get("inputs")), Mapping) and "outputs" in names else ""


def _known(rows: Sequence[Placed]) -> Sequence[Call] | None:
    """The calls of these rows; `None` where the first ones are of no shape that is known."""
    spans = [(place, inner) for place, row in rows for inner in spans_in(row) or ()]
    if spans:
        return calls_of_spans(spans)
    if not any(_kind(row) for _, row in islice(rows, _LOOKED_AT)):
        return None
    runs = {str(row.get("trace_id") or row.get("id")) for _, row in rows if _is_experiment(row)}
    generations = any(row.get("type") == "GENERATION" for _, row in rows)
    calls = []
    for place, row in rows:
        kind = _kind(row)
        fields = {_CAMEL.get(name, name): value for name, value in row.items()} if kind != "run" else row
        if kind == "item":
            calls.append(_item(place, fields))
        elif kind == "observation":
            calls.append(_observation(place, fields, "trace_id" in row))
        elif kind == "trace" and not generations:
            name = [str(fields.get("name") or "a trace"), ""]
            calls.append(Call("trace", place, fields["input"], None, name, fields["output"]))
        elif kind == "run":
            calls.append(_run(place, row, str(row.get("trace_id") or row.get("id")) in runs))
        elif kind == "example":
            calls.append(_example(place, row))
        else:
            calls.append(Call(kind or "row", place, skipped="of no shape that is read here"))
    return calls


# ---------------------------------------------------------------- Langfuse


def _item(place: str, row: Fields) -> Call:
    archived = "archived" if row.get("status") == "ARCHIVED" else ""
    return Call("task", place, _cell(row["input"]), reference=_cell(row["expectedOutput"]), skipped=archived)


def _observation(place: str, row: Fields, is_stored: bool) -> Call:
    if row["type"] != "GENERATION":
        return Call("observation", place, skipped=f"a {row['type'].lower()}, and no call of a model")
    version = row.get("promptVersion")
    prompt = (
        f"{row['promptName']} {'' if version is None else version}".strip() if row.get("promptName") else ""
    )
    model = str(row.get("model") or "")
    failed = (
        f"failed ({row.get('statusMessage') or 'without a message'})" if row.get("level") == "ERROR" else ""
    )
    policy = [prompt, model] if prompt else [model]
    # Exports to a storage hold JSON as a text.
    given, answers = (_cell(row.get(n)) if is_stored else row.get(n) for n in ("input", "output"))
    return Call("observation", place, given, None, policy, answers, skipped=failed)


# ---------------------------------------------------------------- LangSmith


def _example(place: str, row: Fields) -> Call:
    metadata = in_json(row.get("metadata"))
    split = metadata.get("dataset_split") if isinstance(metadata, Mapping) else row.get("split")
    tags = [split] if isinstance(split, str) else split if isinstance(split, list) else []
    return Call(
        "task", place, in_json(row["inputs"]), reference=in_json(row["outputs"]), tags=[*map(str, tags)]
    )


def _is_experiment(row: Fields) -> bool:
    """True for the root of a run of an experiment, whose example says the task."""
    return bool(row.get("run_type") and row.get("reference_example_id") and not row.get("parent_run_id"))


def _run(place: str, row: Fields, of_experiment: bool) -> Call:
    kind = str(row["run_type"])
    if of_experiment and not _is_experiment(row):
        return Call("run", place, skipped="a tool" if kind == "tool" else "a step of another run")
    if not of_experiment and kind != "llm":
        return Call("run", place, skipped=f"a {kind}, and no call of a model")
    failed = f"failed ({row['error']})" if row.get("error") else ""
    # A session is a policy whatever texts it sends.
    session = row.get("session_name") or row.get("session_id") or row.get("name") or ""
    policy = [str(session), ""] if of_experiment else [_model_of(row)]
    given, answers = in_json(row.get("inputs")), in_json(row.get("outputs"))
    return Call("run", place, given, None, policy, answers, skipped=failed)


def _model_of(row: Fields) -> str:
    extra = in_json(row.get("extra"))
    places = (
        [extra.get(name) for name in ("metadata", "invocation_params")] if isinstance(extra, Mapping) else []
    )
    for each in [*places, in_json(row.get("inputs"))]:
        if isinstance(each, Mapping):
            for name in ("ls_model_name", "model", "model_name"):
                if isinstance(each.get(name), str):
                    return str(each[name])
    return str(row.get("name") or "")
