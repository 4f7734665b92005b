"""Argilla's records: several people's answers to a question about two responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.importing.rows import ImportingError, Row, in_json
from engine.importing.votes.answers import is_answer
from engine.importing.votes.columns import WINNER, first_of, unmarked, unmarked_fields
from engine.importing.votes.table import vote_of
from engine.importing.votes.vote import Vote, Winner

# The states in which an answer is none: a list, as a state may be anything.
_NO_ANSWER = ["draft", "discarded"]
# Parts of each answer.
_OF_AN_ANSWER = {"value", "user_id"}
# Columns of every record of the first releases.
_OF_A_RECORD = {"external_id", "metadata"}
# Our own export has names, times, UUIDs and kinds of judges beside the answers, in their order.
_BESIDE = ("annotators", "judgedat", "judgmentuuids", "judgedby")


def votes_of(row: Row, fields: Mapping[str, Any]) -> list[Vote] | None:
    """The votes of a record: as JSON, flattened to columns, or of the first releases; ``None`` for a row of
    another format.
    """
    if isinstance(fields.get("fields"), Mapping) and isinstance(fields.get("responses"), Mapping):
        record = unmarked_fields(_object(fields.get("metadata"))) | unmarked_fields(fields["fields"])
        return _votes_of(row.place, record, fields["responses"])
    flattened = {
        name.removesuffix(".responses"): value
        for name, value in row.fields.items()
        if name.endswith(".responses")
    }
    if flattened:
        questions = {
            name: _flattened(
                row.place,
                name,
                values,
                row.fields.get(f"{name}.responses.users"),
                row.fields.get(f"{name}.responses.status"),
            )
            for name, values in flattened.items()
        }
        return _votes_of(row.place, fields, questions)
    # Older releases write the record flat, and its metadata as JSON.
    given = {name: _answers(value) for name, value in row.fields.items()}
    if answered := {name: answers for name, answers in given.items() if answers is not None}:
        record = dict(fields) | unmarked_fields(_object(fields.get("metadata")))
        return _votes_of(row.place, record, answered)
    return [] if _is_unanswered(row.fields, fields) else None


def may_be_drafts(fields: Mapping[str, Any]) -> bool:
    """True for a pending record that does not say which of its answers somebody has submitted.

    Argilla's `to_json` leaves it out, and all answers of a pending record may be drafts.
    """
    responses = fields.get("responses")
    if fields.get("status") != "pending" or not isinstance(responses, Mapping):
        return False
    answers = [each for given in responses.values() if isinstance(given, list) for each in given]
    return any(isinstance(each, Mapping) and "status" not in each for each in answers)


def _is_unanswered(columns: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """True for an older record that nobody has answered yet: its questions are empty."""
    others = [value for name, value in columns.items() if name not in _OF_A_RECORD]
    return columns.keys() >= _OF_A_RECORD and first_of(fields, WINNER) in (None, []) and not all(others)


def _votes_of(place: str, record: Mapping[str, Any], questions: Mapping[str, Any]) -> list[Vote]:
    """Everybody's answers to a question; of several questions to the one whose answers name a response."""
    readable = []
    for name, found in questions.items():
        answers = found if isinstance(found, list) else []
        beside = (_beside(record.get(column), answers) for column in _BESIDE)
        given = [
            (
                _ranked(value := answer.get("value")),
                len(value) if isinstance(value, list) else 0,
                answer.get("user_id") if by is None else by,
                at or None,
                *others,
            )
            for answer, by, at, *others in zip(answers, *beside, strict=True)
            if isinstance(answer, Mapping) and answer.get("status") not in _NO_ANSWER
        ]
        given = [each for each in given if each[0] is not None]
        if given and all(isinstance(value, str) and is_answer(value) for value, *_ in given):
            readable.append((name, given))
    if not readable:
        if not all(map(_is_open, questions.values())):
            raise ImportingError.at(
                place,
                f"No question's answers name a response ({', '.join(map(repr, questions))}). "
                "Write the options as response_a and response_b, or a, b, tie and both_bad.",
            )
        return []
    given = _counted(place, readable)
    record = {
        name: value
        for name, value in record.items()
        if not (name in {"judgedat", "judgedby"} and isinstance(value, list))
    }
    return [
        replace(
            vote_of(
                place,
                record,
                winner=value,
                annotator=by,
                judged_at=at,
                uuid=uuid,
                judged_by=judge,
                in_order=True,
            ),
            n_named=n_named,
        )
        for value, n_named, by, at, uuid, judge in given
    ]


def _is_open(answers: Any) -> bool:
    """True for a question with nothing but drafts and answers that were taken back."""
    return not answers or (
        isinstance(answers, list)
        and all(isinstance(each, Mapping) and each.get("status") in _NO_ANSWER for each in answers)
    )


_Given = list[tuple[Any, ...]]


def _counted(place: str, questions: Sequence[tuple[str, _Given]]) -> _Given:
    """The answers to the question that counts, by its name.

    Raises
    ------
    ImportingError
        Several questions have other names.
    """
    named = {unmarked(name): given for name, given in questions}
    if (name := next((each for each in WINNER if each in named), None)) is not None:
        return named[name]
    if len(questions) > 1:
        shown = " and ".join(repr(name) for name, _ in questions)
        raise ImportingError.at(
            place, f"The answers to {shown} name a response. Rename the question that counts to preference."
        )
    return questions[0][1]


def _beside(values: Any, answers: Sequence[Any]) -> Sequence[Any]:
    """A value for each answer; ``None`` where the list does not have as many."""
    fits = isinstance(values, list) and len(values) == len(answers)
    return values if fits else [None] * len(answers)


def _flattened(place: str, name: str, values: Any, users: Any, statuses: Any) -> list[dict[str, Any]]:
    if isinstance(values, str) and values.startswith("["):
        raise ImportingError.at(
            place,
            f"{name}.responses is a list that a program has written as a text. Export the records as JSON "
            "Lines or Parquet.",
        )
    answers = values if isinstance(values, list) else [] if values is None else [values]
    return [
        {"value": value, "user_id": user, "status": status}
        for value, user, status in zip(
            answers, _beside(users, answers), _beside(statuses, answers), strict=True
        )
    ]


def _ranked(value: Any) -> Any:
    """The best of a ranking, a tie where two share the first rank; any other value as it is.

    A list of names may be the labels that somebody chose, too: see `Vote.n_named`.
    """
    if not isinstance(value, list) or not value:
        return value
    if all(
        isinstance(each, Mapping) and isinstance(each.get("rank"), (int, float)) and "value" in each
        for each in value
    ):
        first = min(each["rank"] for each in value)
        best = [each["value"] for each in value if each["rank"] == first]
        return best[0] if len(best) == 1 else Winner.TIE.value
    return value[0]


def _object(value: Any) -> Mapping[str, Any]:
    """An object, or one that is written as JSON; an empty one for anything else."""
    value = in_json(value)
    return value if isinstance(value, Mapping) else {}


def _answers(value: Any) -> Sequence[Mapping[str, Any]] | None:
    """The answers that a column of an older record holds; ``None`` for any other column. Each is an object,
    or all are in one, whose lists have a part of each.
    """
    if isinstance(value, Mapping) and value.keys() >= _OF_AN_ANSWER:
        lists = [each if isinstance(each, list) else [] for each in value.values()]
        return [dict(zip(value, parts, strict=False)) for parts in zip(*lists, strict=False)]
    if isinstance(value, list) and value:
        answers = [each for each in value if isinstance(each, Mapping) and each.keys() >= _OF_AN_ANSWER]
        return answers if len(answers) == len(value) else None
    return None
