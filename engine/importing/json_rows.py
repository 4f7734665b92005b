"""Rows out of JSON and JSON Lines, in the shapes in which tables and well-known data sets are published."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from engine.domain import limits
from engine.importing import headings
from engine.importing.rows import Fault, Row, in_turns
from engine.importing.strict_json import JSONLimitError, loads, refused_entry

# Names under which an object has the rows of a table, and those that say that it is a row.
_ROWS = ("data", "rows", "records", "votes", "items", "results")
_OF_A_ROW = ("task", "prompt", "input", "question", "instruction", "model_a", "policy_a")
# Beside the rows of a page, in small letters and without marks: the number of all rows, and more pages.
_ALL_ROWS = {
    "count", "total", "totalcount", "totalelements", "totalitems", "totalrecords", "totalresults",
    "totalrows",
}  # fmt: skip
_MORE_PAGES = {
    "hasmore", "hasnext", "hasnextpage", "next", "nextcursor", "nextpage", "nextpagetoken", "nexturl",
}  # fmt: skip


def json_rows(text: str, plain: Sequence[str]) -> Iterator[Row | Fault]:
    """The rows of a text that begins as JSON does: one document, or one on each line.

    ``plain``: as for `rows_of`.
    """
    try:
        document = loads(text)
    except json.JSONDecodeError as error:
        yield from _json_lines(text, plain, error)
        return
    except JSONLimitError as error:
        (_, first), *more = itertools.islice(headings.full_lines(text), 2)
        if more and _is_refused(first):
            # The first of JSON Lines.
            yield from _rows_of_lines(text, plain)
        else:
            # Such a document may be a single line, so its line would say nothing.
            number = refused_entry(text.lstrip("\ufeff"))
            yield Fault(f"entry {number}" if number else "", str(error))
        return
    number, _ = next(headings.full_lines(text))
    yield from _document_rows(document, f"line {number}", plain)


def _is_refused(line: str) -> bool:
    """True if the line is JSON of its own, but for a value that cannot be stored."""
    try:
        loads(line)
    except JSONLimitError:
        return True
    except json.JSONDecodeError:
        pass
    return False


def _json_lines(text: str, plain: Sequence[str], whole: json.JSONDecodeError) -> Iterator[Row | Fault]:
    try:
        _, first = next(headings.full_lines(text))
        loads(first)
    except JSONLimitError:
        pass  # the line says so in its place
    except json.JSONDecodeError:
        # Not one document and not one on each line: then the fault is where the document breaks.
        fault = _json_fault(whole)
        if whole.msg == "Extra data":
            yield Fault(
                fault.place,
                "A value ends before this, and more follows. Write each on a line of its own, without a "
                "comma behind it, as jq -c does, or all as one list.",
            )
            return
        hint = (
            f" What begins with [ or {{ is read as JSON; a CSV with the heading {plain[0]} is not."
            if plain
            else ""
        )
        yield Fault(fault.place, fault.message + hint)
        return
    yield from _rows_of_lines(text, plain)


def _rows_of_lines(text: str, plain: Sequence[str]) -> Iterator[Row | Fault]:
    for number, line in headings.full_lines(text):
        try:
            # Where several files are joined, each begins with a mark.
            yield _json_row(f"line {number}", loads(line.lstrip("\ufeff")), plain)
        except json.JSONDecodeError as error:
            yield Fault(f"line {number}", _json_fault(error).message)
        except JSONLimitError as error:
            yield Fault(f"line {number}", str(error))


def _json_fault(error: json.JSONDecodeError) -> Fault:
    return Fault(f"line {error.lineno}", f"This is not JSON: {error.msg} (column {error.colno}).")


def _document_rows(document: Any, place: str, plain: Sequence[str]) -> Iterator[Row | Fault]:
    """The rows of a document; ``place`` is where it begins."""
    entries = document
    prefix = ""
    choices = False
    if isinstance(document, dict) and "examples" in document:
        # BIG-bench: a list of examples; Instruction Induction: a mapping from their numbers.
        entries = document["examples"]
        prefix = document.get("task_prefix", "")
        choices = document.get("append_choices_to_input", True) is not False
        if not isinstance(prefix, str):
            yield Fault("task_prefix", "This must be a text.")
            return
    elif isinstance(document, dict) and _is_squad(document.get("data")):
        yield from _squad_rows(document["data"])
        return
    elif isinstance(document, dict):
        entries = _table_in(document)
        if entries is None:
            yield _json_row(place, document, plain)
            return
        if more := _more_pages(document, len(entries)):
            yield Fault(
                "",
                f"This is one page of a longer list, as {more} says. Fetch the others too, and put the rows "
                "of all pages into one list.",
            )
            return
    numbered = (
        entries.items()
        if isinstance(entries, dict)
        else enumerate(entries, 1)
        if isinstance(entries, list)
        else None
    )
    if numbered is None:
        yield Fault("examples", "This must be a list of examples, or examples by number.")
        return
    for number, entry in numbered:
        row = _json_row(f"entry {number}", entry, plain)
        yield _example(row, prefix, choices=choices) if isinstance(row, Row) else row


def _table_in(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of an object that is a table: under a usual name, or as pandas writes it; else ``None``."""
    if any(isinstance(document.get(name), str) for name in _OF_A_ROW):
        return None
    rows = next((document[name] for name in _ROWS if isinstance(document.get(name), list)), None)
    if rows is None:
        return _rows_of_pandas(document)
    if all(isinstance(row, dict) for row in rows):
        return list(rows)
    columns = document.get("columns")
    if isinstance(columns, list) and all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        # pandas' orient="split".
        return [dict(zip(map(str, columns), row, strict=True)) for row in rows]
    return None


def _more_pages(document: dict[str, Any], n_rows: int) -> str:
    """The name beside the rows, or in an object beside them, that says that they are not all; else empty."""
    if not any(isinstance(document.get(name), list) for name in _ROWS):
        return ""
    beside: list[dict[str, Any]] = [document, *(each for each in document.values() if isinstance(each, dict))]
    for name, value in itertools.chain.from_iterable(each.items() for each in beside):
        key = re.sub(r"[\W_]", "", name).lower()
        is_total = key in _ALL_ROWS and type(value) is int and value > n_rows
        if is_total or (key in _MORE_PAGES and (value is True or (isinstance(value, str) and value))):
            return name
    return ""


def _rows_of_pandas(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of an object. It holds a column under each name, as a list or by the numbers of the rows, or a
    row under each number or name.
    """
    inside = list(document.values())
    if any(_is_column(document.get(name)) for name in _OF_A_ROW):
        # to_dict("list"), and that of `datasets`.
        if not all(isinstance(cells, list) and len(cells) == len(inside[0]) for cells in inside):
            return None
        return [dict(zip(document, row, strict=True)) for row in zip(*inside, strict=True)]
    first = inside[0] if inside and isinstance(inside[0], dict) else {}
    if not first or any(not isinstance(each, dict) or each.keys() != first.keys() for each in inside):
        return None
    if all(map(str.isdecimal, first)):
        return [{name: cells[row] for name, cells in document.items()} for row in first]
    if all(map(str.isdecimal, document)) or any(name.lower() in _OF_A_ROW for name in first):
        # orient="index".
        return inside
    return None


def _is_column(value: Any) -> bool:
    """True if the value is a list of texts, or of conversations; messages are one conversation."""
    return isinstance(value, list) and len(value) > 1 and not any(isinstance(each, dict) for each in value)


def _is_squad(articles: Any) -> bool:
    return (
        isinstance(articles, list)
        and bool(articles)
        and all(isinstance(each, dict) and "paragraphs" in each for each in articles)
    )


def _squad_rows(articles: list[dict[str, Any]]) -> Iterator[Row | Fault]:
    """SQuAD as it is published: articles hold paragraphs, and those hold the questions with their answers."""
    for n_article, article in enumerate(articles, 1):
        for n_paragraph, paragraph in _objects(article["paragraphs"]):
            at = f"article {n_article}, paragraph {n_paragraph}"
            if paragraph is None or not isinstance(paragraph.get("qas"), list):
                yield Fault(at, "A paragraph of SQuAD must hold its questions under “qas”.")
                continue
            for n_question, question in _objects(paragraph["qas"]):
                place = f"{at}, question {n_question}"
                if question is None:
                    yield Fault(place, "A question of SQuAD must be an object.")
                    continue
                fields = {"context": paragraph.get("context"), "title": article.get("title")} | question
                # Version 2 has questions that the paragraph does not answer.
                answers = [each and each.get("text") for _, each in _objects(question.get("answers"))]
                yield _json_row(place, fields | {"answers": answers}, ())


def _objects(entries: Any) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The objects of a list with their numbers; ``None`` for what is none."""
    for number, entry in enumerate(entries if isinstance(entries, list) else [None], 1):
        yield number, entry if isinstance(entry, dict) else None


def _json_row(place: str, entry: Any, plain: Sequence[str]) -> Row | Fault:
    if isinstance(entry, str) and plain:
        return Row(place, {plain[0]: entry})
    if not isinstance(entry, dict):
        return Fault(place, f"This must be an object of named fields, not {json.dumps(entry)[:60]}.")
    fields = {name.lower(): in_turns(value) for name, value in entry.items()}
    if len(fields) < len(entry):
        return Fault(place, "Two names differ only in capital letters; give each field once.")
    if message := limits.COLUMNS.refusal(len(fields)):
        return Fault(place, message)
    return Row(place, fields, list(entry))


def _example(row: Row, prefix: str, *, choices: bool) -> Row | Fault:
    """BIG-bench's multiple choice: the choices belong to the question, the best one is the answer."""
    fields = dict(row.fields)
    scores = fields.pop("target_scores", None)
    if scores is not None:
        if (
            not isinstance(scores, dict)
            or not scores
            or not all(isinstance(s, (int, float)) for s in scores.values())
        ):
            return Fault(row.place, "target_scores must hold a number for each choice.")
        fields.setdefault("target", max(scores, key=scores.__getitem__))
        if choices and isinstance(fields.get("input"), str):
            fields["input"] += "".join(f"\nchoice: {choice}" for choice in scores)
    if prefix and isinstance(fields.get("input"), str):
        fields["input"] = prefix + fields["input"]
    # With scores it has other fields than its file, and no heading.
    return replace(row, fields=fields) if scores is None else Row(row.place, fields)
