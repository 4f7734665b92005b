"""Label Studio's tasks with their annotations, and its short export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.domain import limits
from engine.importing.rows import Fault, ImportingError, Row, in_json
from engine.importing.votes.answers import NEITHER, said_in
from engine.importing.votes.columns import WINNER, first_of, meaning_of, unmarked, unmarked_fields
from engine.importing.votes.table import vote_of
from engine.importing.votes.vote import Vote, Winner

# Words for no side that data may hold beside an answer: a task of the category "draw".
_ALSO_DATA = {"draw", "same", "equal", "neither"}
# In a row of the short export, a number or a letter may be data too.
_OF_DATA = {None, Winner.A, Winner.B}
_TIES = {Winner.TIE, Winner.BOTH_BAD}
_OF_SIDES: dict[str, str] = {"left": Winner.A, "right": Winner.B}


def votes_of(row: Row, fields: Mapping[str, Any]) -> list[Vote] | None:
    """The votes of a task with its annotations, or of a row of the short export; ``None`` for a row of
    another format.
    """
    if isinstance(fields.get("data"), Mapping) and isinstance(fields.get("annotations"), list):
        return _of_task(row.place, fields)
    return _of_short_row(row.place, fields) if "annotationid" in fields else None


def n_copies(fields: Mapping[str, Any]) -> int:
    """The number of a task's annotations that somebody made from another one, as a reviewer does. Such an
    annotation may be no vote of its own.
    """
    annotations = fields.get("annotations")
    return sum(
        isinstance(each, Mapping) and bool(each.get("parent_annotation")) and not each.get("was_cancelled")
        for each in (annotations if isinstance(annotations, list) else ())
    )


class Controls:
    """The controls of a project, by which the annotations of a file answer."""

    def __init__(self) -> None:
        self._answering: set[str] = set()
        # The place, a control and its word, for each annotation without an answer.
        self._others: list[tuple[str, str, str]] = []

    def see(self, row: Row) -> None:
        """Remember by which controls a record answers. A row of another format has none."""
        for annotation in _said_in(row.fields):
            answering = {name for name, _, is_answer in annotation if is_answer}
            self._answering |= answering
            if not answering:
                self._others += [(row.place, name, word) for name, word, _ in annotation]

    def faults(self) -> Iterator[Fault]:
        """The annotations whose words are no answer, under a control by which others answer."""
        for place, name, word in self._others:
            if name in self._answering:
                yield Fault(
                    place,
                    f"{name} is {limits.shown(word)}, which is no answer, and other annotations answer "
                    "there. Write left, right, tie or both_bad, or remove the annotation.",
                )


def _said_in(columns: Mapping[str, Any]) -> Iterator[list[tuple[str, str, bool]]]:
    """The words of each annotation of a record, each with its control, and whether it is an answer."""
    annotations = columns.get("annotations")
    if isinstance(columns.get("data"), Mapping) and isinstance(annotations, list):
        for annotation in annotations:
            if isinstance(annotation, Mapping) and not annotation.get("was_cancelled"):
                results = annotation.get("result")
                yield [
                    (str(result.get("from_name")), word, said_in(word) is not None)
                    for result in (results if isinstance(results, list) else ())
                    if isinstance(result, Mapping)
                    for word in _words(result.get("value"))
                ]
    elif "annotation_id" in columns:
        yield [
            (name, word, said_in(word) not in _OF_DATA)
            for name, value in columns.items()
            if meaning_of(name) in {"", "winner"}
            for each in _values(value)
            for word in ([each] if isinstance(each, str) and each else _words(each))
        ]


def _values(column: Any) -> list[Any]:
    """The results that a column of the short export holds, as JSON in a table of texts."""
    value = in_json(column)
    return value if isinstance(value, list) else [value]


def _words(value: Any) -> list[str]:
    """The words that a result of a choice or of a side holds."""
    if not isinstance(value, Mapping):
        return []
    choices = value.get("choices")
    words = [value["selected"]] if "selected" in value else choices if isinstance(choices, list) else []
    return [word for word in words if isinstance(word, str)]


def _of_task(place: str, fields: Mapping[str, Any]) -> list[Vote]:
    """A vote for each annotation's pairwise result or choice."""
    votes = []
    for annotation in fields["annotations"]:
        if not isinstance(annotation, Mapping) or annotation.get("was_cancelled"):
            continue
        chosen = _chosen(place, annotation.get("result"))
        if chosen is None:
            continue
        by = annotation.get("completed_by")
        if isinstance(by, Mapping):
            by = by.get("email") or by.get("id")
        judged_at = annotation.get("created_at")
        votes.append(
            vote_of(
                place,
                unmarked_fields(fields["data"]),
                winner=chosen,
                annotator=by,
                judged_at=judged_at,
                in_order=True,
            )
        )
    return votes


def _of_short_row(place: str, fields: Mapping[str, Any]) -> list[Vote]:
    """The vote of an annotation, whose results stand among the data, each under its own name; none where it
    has no result.
    """
    values = [value for column in fields.values() for value in _values(column)]
    chosen = _chosen(place, [{"value": value} for value in values])
    # One choice is a plain text here, under the name that its project gave it.
    said = {name: unmarked(value) for name, value in fields.items() if isinstance(value, str)}
    beside = {
        name: fields[name]
        for name, key in said.items()
        if meaning_of(name) in {"", "winner"} and key in NEITHER
    }
    has_side = chosen is not None or not {"left", "right"}.isdisjoint(said.values())
    for name in beside:
        if has_side and said[name] in _ALSO_DATA and not meaning_of(name):
            raise ImportingError.at(
                place,
                f"{name} is {limits.shown(fields[name])}, and a side is chosen too. Remove the column where "
                "it is no answer; else call it winner, and remove the side.",
            )
    winner = next(iter(beside.values()), chosen)
    if winner is None and first_of(fields, WINNER) is None and {"left", "right"}.isdisjoint(said.values()):
        return []
    return [vote_of(place, fields, winner=winner, in_order=True)]


def _chosen(place: str, results: Any) -> Any:
    """The choice of a tie, where there is one beside the two sides, else the side.

    Raises
    ------
    ImportingError
        The results name several.
    """
    # a is on the left.
    answers = {
        word: _OF_SIDES.get(answer, answer)
        for result in (results if isinstance(results, list) else ())
        for word in _words(result.get("value") if isinstance(result, Mapping) else None)
        if (answer := said_in(word)) is not None
    }
    ties = {each: answer for each, answer in answers.items() if answer in _TIES}
    counted = ties or answers
    if len(set(counted.values())) > 1:
        raise ImportingError.at(
            place,
            f"An annotation has several answers: {', '.join(map(limits.shown, counted))}. Export the result "
            "of one control, or remove the others.",
        )
    return next(iter(counted), None)
