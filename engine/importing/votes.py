"""Past votes: which of two policies somebody preferred, in the formats in which people have them.

A table with the columns task, policy_a, policy_b and winner; LMArena's and MT-bench's conversations; the
exports of Argilla, of Label Studio and of this application. docs/votes.md describes each.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from engine.domain import limits
from engine.domain.conversations import (
    ASSISTANT,
    SYSTEM,
    USER,
    Message,
    fault_of,
    text_and_messages,
    transcript,
)
from engine.importing import slips
from engine.importing.defusing import as_it_was
from engine.importing.mapping import Columns, renamed
from engine.importing.rows import Fault, ImportingError, Row, raise_any, storable
from engine.importing.sources import Source
from engine.importing.strict_json import loads

# Of a level's name, which a policy's becomes.
_LONGEST_POLICY = 100
# Seconds from 1970 to the year 10000, the last that a time may have. As milliseconds this is 1978.
_MILLISECONDS_FROM = 253_402_300_800
# Spreadsheets store a time as days since 1900, and this is the year 10000. As seconds it is February 1970.
_DAYS_BEFORE = 2_958_466
# Digits.
_LONGEST_NUMBER = 9
_COMPACT = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}


class Winner(StrEnum):
    """The answer of one vote."""

    A = "a"
    B = "b"
    TIE = "tie"
    BOTH_BAD = "both_bad"


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote, and its place in the file.

    Attributes
    ----------
    task
        The text of the task.
    policy_a, policy_b
        Names of two different policies.
    response_a, response_b
        Their texts; ``None`` where the file has none.
    annotator
        A name or a number; empty where the file has none.
    judged_at
        With its zone; ``None`` where the file says nothing.
    a_on_left
        The side on which a was shown; ``None`` where the file says nothing.
    messages
        The conversation that the task is; empty if it is one message of the user.
    """

    place: str
    task: str
    policy_a: str
    policy_b: str
    winner: Winner
    response_a: str | None = None
    response_b: str | None = None
    annotator: str = ""
    judged_at: datetime | None = None
    a_on_left: bool | None = None
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Votes:
    """The votes of a file, oldest first where all have a time, and what somebody should know about them."""

    votes: Sequence[Vote]
    warnings: Sequence[str]


def read_votes(source: Source, columns: Columns | None = None) -> Votes:
    """The votes of a file in any of the formats.

    ``columns``: what columns are that have other names.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    rows = source.rows()
    if columns:
        rows = renamed(rows, columns)
    votes: list[Vote] = []
    faults: list[Fault] = []
    missing: list[_MissingError] = []
    number = unanswered = 0
    rivals: Counter[slips.Rivals] = Counter()
    for number, row in enumerate(rows, 1):
        if isinstance(row, Fault):
            faults.append(row)
        else:
            try:
                found = _votes_of(row)
                votes += found
                unanswered += not found
                if not columns:
                    rivals.update(_rivals(row.fields))
            except ImportingError as error:
                faults += error.faults
            except _MissingError as error:
                missing.append(error)
                faults.append(error.fault(row))
        # A record may hold several votes, and a file of nothing but faults ends here too.
        if message := limits.JUDGMENTS.refusal(max(number, len(votes))):
            faults.append(Fault("", message))
            break
    if 1 < number == len(faults) == len(missing) and len({error.what for error in missing}) == 1:
        raise ImportingError([missing[0].in_all(faults[0], number)])
    raise_any(faults)
    if not votes:
        raise ImportingError.at(
            "",
            "There are no votes here. The first line of a table names task, policy_a, policy_b and winner; "
            f"the others hold them.{source.about_sheets}",
        )
    if all(vote.judged_at is not None for vote in votes):
        votes.sort(key=lambda vote: vote.judged_at or datetime.min)
    return Votes(votes, [*_warnings(votes, unanswered), *slips.left_out(rivals), *source.warnings])


# ---------------------------------------------------------------- which format a row has


def _votes_of(row: Row) -> list[Vote]:
    """The votes of a row; none where nobody has answered it."""
    fields = {_key(name): value for name, value in row.fields.items()}
    if len(fields) < len(row.fields):
        _check_names(row)
    if fields.keys() >= _OURS:
        return _own(row.place, fields)
    if isinstance(fields.get("data"), Mapping) and isinstance(fields.get("annotations"), list):
        return _label_studio(row.place, fields)
    if isinstance(fields.get("fields"), Mapping) and isinstance(fields.get("responses"), Mapping):
        record = _keyed(_object(fields.get("metadata"))) | _keyed(fields["fields"])
        return _argilla(row.place, record, fields["responses"])
    flattened = {
        name.removesuffix(".responses"): value
        for name, value in row.fields.items()
        if name.endswith(".responses")
    }
    if flattened:
        questions = {
            name: _flattened(
                values,
                row.fields.get(f"{name}.responses.users"),
                row.fields.get(f"{name}.responses.status"),
            )
            for name, values in flattened.items()
        }
        return _argilla(row.place, fields, questions)
    if questions := {name: value for name, value in row.fields.items() if _is_answers(value)}:
        # Older releases write the record flat, and its metadata as JSON.
        return _argilla(row.place, fields | _keyed(_object(fields.get("metadata"))), questions)
    is_label_studios = "annotationid" in fields
    return _label_studio_short(row.place, fields) if is_label_studios else [_vote(row.place, fields)]


def _check_names(row: Row) -> None:
    """Refuse two columns that count as one, unless they say the same."""
    seen: dict[str, str] = {}
    for name, value in row.fields.items():
        first = seen.setdefault(_key(name), name)
        if value != row.fields[first]:
            raise ImportingError.at(
                row.place,
                f"{limits.shown(first)} and {limits.shown(name)} count as the same name. Rename one of them.",
            )


def _key(name: str) -> str:
    """A column's name without case and marks: ``Policy A``, ``policy_a`` and ``policy-a`` are
    one.
    """
    return _short_key(name) if len(name) <= _LONGEST_POLICY else _without_marks(name)


def _without_marks(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


# The same columns and answers come in every row.
_short_key = lru_cache(maxsize=1024)(_without_marks)


def _keyed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_key(str(name)): value for name, value in fields.items()}


def _object(value: Any) -> Mapping[str, Any]:
    """An object, or one that is written as JSON; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _is_answers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and {"value", "user_id"} <= each.keys() for each in value)
    )


_OURS = {"policyi", "policyj", "policyiname", "policyjname", "leftpolicy", "choice", "voided"}


def _own(place: str, fields: Mapping[str, Any]) -> list[Vote]:
    """A row of our own export of judgments: a is the policy that was on the left. None if it is void."""
    if _is_true(place, fields, "voided"):
        return []
    if fields.get("taskvariables") not in (None, "", "{}"):
        raise ImportingError.at(
            place,
            "The task has variables, which past votes cannot keep. Export as JSON lines with its manifest, "
            "and import that with manage.py import_judgments.",
        )
    # CSV has nothing but texts, and those that a spreadsheet would run are written with an apostrophe.
    as_given = as_it_was if isinstance(fields.get("judgmentid"), str) else str
    texts = {name: as_given(value) if isinstance(value, str) else value for name, value in fields.items()}
    left = texts["leftpolicy"]
    if left not in (texts["policyi"], texts["policyj"]):
        raise ImportingError.at(
            place, f"left_policy is {limits.shown(left)}, which is neither policy_i nor policy_j."
        )
    i_on_left = left == texts["policyi"]
    a, b = "ij" if i_on_left else "ji"
    messages = _list_in(texts.get("taskmessages"))
    if messages is None and texts.get("taskmessages") not in (None, "", "[]"):
        raise ImportingError.at(place, "task_messages is no list of messages. Export the file again.")
    given: dict[str, Any] = {
        "task": messages or texts.get("task"),
        "annotator": texts.get("annotator"),
        "judgedat": texts.get("judgedat") if _is_true(place, texts, "timeknown") else None,
    }
    ours = texts.get("plannumber") not in (None, "")
    known = _is_true(place, texts, "textsknown", missing=ours)
    for side, half in (("a", a), ("b", b)):
        given[f"policy{side}"] = texts[f"policy{half}name"]
        text = texts.get(f"response{half}")
        given[f"response{side}"] = text if known or text else None
    vote = _vote(place, given, winner=texts["choice"], in_order=True)
    if known:
        # Two empty ones too: they are one text, and a tie.
        vote = replace(vote, response_a=given["responsea"], response_b=given["responseb"])
    return [vote if _is_true(place, texts, "sideknown") else replace(vote, a_on_left=None)]


def _is_true(place: str, fields: Mapping[str, Any], name: str, *, missing: bool = True) -> bool:
    """The truth in one of our columns; ``missing`` where an older export has no such column."""
    # Spreadsheets write them in capital letters or as numbers.
    said = str(fields.get(name, missing)).lower()
    if said not in {"true", "false", "1", "0"}:
        raise ImportingError.at(place, f"{name} is {limits.shown(fields[name])}. Write true or false.")
    return said in {"true", "1"}


def _argilla(place: str, record: Mapping[str, Any], questions: Mapping[str, Any]) -> list[Vote]:
    """Argilla's record: several people's answers to a question about the responses in it.

    Of several questions the one is taken whose answers name a response.
    """
    readable = []
    for name, found in questions.items():
        answers = found if isinstance(found, list) else []
        # Our own export has names and times beside the answers, in their order.
        names, times = (_beside(record.get(column), answers) for column in ("annotators", "judgedat"))
        given = [
            (_ranked(answer.get("value")), answer.get("user_id") if by is None else by, at or None)
            for answer, by, at in zip(answers, names, times, strict=True)
            if isinstance(answer, Mapping) and answer.get("status") not in ("draft", "discarded")
        ]
        given = [(value, by, at) for value, by, at in given if value is not None]
        if given and all(isinstance(value, str) and _answer(value) for value, *_ in given):
            readable.append((_key(name) not in _WINNER, name, given))
    if not readable:
        if any(questions.values()):
            raise ImportingError.at(
                place,
                f"No question's answers name a response ({', '.join(map(repr, questions))}). "
                "Write the options as response_a and response_b, or a, b, tie and both_bad.",
            )
        return []
    _, _, given = min(readable, key=lambda each: each[:2])
    if isinstance(record.get("judgedat"), list):
        record = {name: value for name, value in record.items() if name != "judgedat"}
    return [
        _vote(place, record, winner=value, annotator=by, judged_at=at, in_order=True)
        for value, by, at in given
    ]


def _beside(values: Any, answers: Sequence[Any]) -> Sequence[Any]:
    """A value for each answer; ``None`` where the list does not have as many."""
    fits = isinstance(values, list) and len(values) == len(answers)
    return values if fits else [None] * len(answers)


def _flattened(values: Any, users: Any, statuses: Any) -> list[dict[str, Any]]:
    answers = values if isinstance(values, list) else [] if values is None else [values]
    return [
        {"value": value, "user_id": user, "status": status}
        for value, user, status in zip(
            answers, _beside(users, answers), _beside(statuses, answers), strict=True
        )
    ]


def _ranked(value: Any) -> Any:
    """The best of a ranking, a tie where two share the first rank; any other value as it is."""
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


def _label_studio(place: str, fields: Mapping[str, Any]) -> list[Vote]:
    """Label Studio's task: its data, and each annotation's pairwise result or choice."""
    votes = []
    for annotation in fields["annotations"]:
        if not isinstance(annotation, Mapping) or annotation.get("was_cancelled"):
            continue
        chosen = _chosen(annotation.get("result"))
        if chosen is None:
            continue
        by = annotation.get("completed_by")
        if isinstance(by, Mapping):
            by = by.get("email") or by.get("id")
        judged_at = annotation.get("created_at")
        votes.append(
            _vote(
                place,
                _keyed(fields["data"]),
                winner=chosen,
                annotator=by,
                judged_at=judged_at,
                in_order=True,
            )
        )
    return votes


def _label_studio_short(place: str, fields: Mapping[str, Any]) -> list[Vote]:
    """A row of Label Studio's short export: an annotation's results, each under its own name, in the data.

    None where the annotation has no result.
    """
    values = [value for column in fields.values() for value in _list_in(column) or [column]]
    chosen = _chosen([{"value": value} for value in values])
    # One choice is a plain text here, under the name that its project gave it.
    said = {name: _key(value) for name, value in fields.items() if isinstance(value, str)}
    beside = (
        fields[name] for name, key in said.items() if meaning_of(name) in {"", "winner"} and key in _NEITHER
    )
    winner = next(beside, chosen)
    if winner is None and _first(fields, _WINNER) is None and {"left", "right"}.isdisjoint(said.values()):
        return []
    return [_vote(place, fields, winner=winner, in_order=True)]


def _chosen(results: Any) -> Any:
    """The choice of a tie, where there is one beside the two sides, else the side."""
    sides, choices = [], []
    for result in results if isinstance(results, list) else []:
        value = result.get("value") if isinstance(result, Mapping) else None
        if not isinstance(value, Mapping):
            continue
        if "selected" in value:
            sides.append(value["selected"])
        elif isinstance(value.get("choices"), list):
            choices += [each for each in value["choices"] if isinstance(each, str) and _answer(each)]
    return next(iter(choices + sides), None)


# ---------------------------------------------------------------- one vote

_TASK = ("task", "prompt", "question", "instruction", "input", "query")
_POLICY = ("policy", "model", "system", "generator")
_RESPONSE = ("response", "answer", "completion", "output", "generation", "text")
# The words for a and b, and whether they say which was on the left.
_SIDES = (("a", "b"), ("1", "2"), ("left", "right"))
_WINNER = (
    "winner",
    "preference",
    "preferred",
    "vote",
    "verdict",
    "label",
    "choice",
    "comparison",
    "pairwise",
    "pw",
)
_ANNOTATOR = ("annotator", "judge", "judgehash", "rater", "userid", "user", "evaluationsessionid")
_JUDGED_AT = ("judgedat", "tstamp", "timestamp", "createdat", "time")

_THINGS = ("", "policy", "model", "response", "answer", "option", "output", "completion", "text", "assistant")
_NAMED = {
    f"{thing}{word}": (Winner.A, Winner.B)[place]
    for thing in _THINGS
    for words in (("a", "b"), ("1", "2"))
    for place, word in enumerate(words)
}
_NEITHER = dict.fromkeys(
    ("tie", "tied", "draw", "equal", "equallygood", "bothgood", "same", "tieinconsistent"), Winner.TIE
) | (dict.fromkeys(("bothbad", "tiebothbad", "bothbadtie", "neither"), Winner.BOTH_BAD))
_ON_SIDE = {f"{thing}{side}": side == "left" for thing in _THINGS for side in ("left", "right")} | {
    "a": True, "b": False,
}  # fmt: skip
_KAGGLE = {"winnermodela": Winner.A, "winnermodelb": Winner.B, "winnertie": Winner.TIE}


def meaning_of(column: str) -> str:
    """The meaning of a column of this name in a table of votes; empty where nothing is known of it."""
    return _MEANINGS.get(_key(column), "")


def _meanings() -> dict[str, str]:
    meanings = dict.fromkeys(_TASK, "task") | dict.fromkeys(_WINNER, "winner")
    meanings |= dict.fromkeys(_ANNOTATOR, "annotator") | dict.fromkeys(_JUDGED_AT, "judged_at")
    for thing, stems in (("policy", _POLICY), ("response", _RESPONSE)):
        for stem in stems:
            for a, b in _SIDES:
                for side, word in (("a", a), ("b", b)):
                    meanings |= dict.fromkeys((f"{stem}{word}", f"{word}{stem}"), f"{thing}_{side}")
    return meanings | {"sidea": "side_a"}


_MEANINGS = _meanings()
# Of several columns with one of these meanings the first is read, in the order in which they stand here.
_ONE_OF = ("task", "policy_a", "policy_b", "winner", "response_a", "response_b")
_PLACES = {name: place for place, name in enumerate(_MEANINGS)}


def _rivals(fields: Mapping[str, Any]) -> list[slips.Rivals]:
    """The pairs of columns of a row that may be the same thing and say different ones; the first is read."""
    pairs = []
    for meaning, names in _several(tuple(fields)):
        said = {name: fields[name] for name in names}
        if meaning == "winner":
            # Many tables have a label or a choice that is about something else.
            said = {name: _said(value) for name, value in said.items()}
        if pair := slips.rivals(said, names):
            pairs.append(pair)
    return pairs


# The rows of a table have the same names.
@lru_cache(maxsize=64)
def _several(names: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """The meanings that several of these columns have, each with its columns, the one that is read first."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        if (meaning := meaning_of(name)) in _ONE_OF:
            found[meaning].append(name)
    return [
        (meaning, sorted(each, key=lambda name: _PLACES[_key(name)]))
        for meaning, each in found.items()
        if len(each) > 1
    ]


def _said(value: Any) -> str | None:
    """The answer that a text gives, in one spelling; ``None`` where it gives none."""
    key = _key(value) if isinstance(value, str) else ""
    return _NAMED.get(key) or _NEITHER.get(key) or (key if key in {"left", "right"} else None)


def _answer(value: str) -> bool:
    """True if the text names one of two responses, or neither."""
    key = _key(value)
    return key in _NAMED or key in _NEITHER or key in {"left", "right"}


def _vote(
    place: str,
    fields: Mapping[str, Any],
    *,
    winner: Any = None,
    annotator: Any = None,
    judged_at: Any = None,
    in_order: bool = False,
) -> Vote:
    """The vote of one row. What is given beside ``fields`` is in place of its column.

    ``in_order``: the fields are those of a tool that shows a on the left.
    """
    (policy_a, policy_b), named_by_side = _two(fields, _POLICY)
    a, b = ((_text(place, "policy", name) or "").strip() for name in (policy_a, policy_b))
    if not a or not b:
        raise _MissingError(place, "policy_a and policy_b (or model_a and model_b)")
    for name, value in (("policy_a", a), ("policy_b", b)):
        if len(value) > _LONGEST_POLICY:
            raise ImportingError.at(
                place,
                f"{name} has {len(value):,} characters; the limit is {_LONGEST_POLICY}. Shorten the name.",
            )
    if a == b:
        raise ImportingError.at(
            place, f"Both policies are {limits.shown(a)}. A vote is about two policies; remove the row."
        )
    task, messages, responses, arena = _texts(place, fields, may_be_turns=not in_order)
    if task is None:
        raise _MissingError(place, "task (or prompt, question, instruction, conversation_a)")
    if not task.strip():
        raise ImportingError.at(place, "The task is empty. Write it, or remove the row.")
    if not any(responses):
        # An empty cell is no text; nobody votes on two empty ones.
        responses = (None, None)
    a_on_left = _side_of_a(place, fields)
    if a_on_left is None and (in_order or named_by_side or arena):
        a_on_left = True
    by = annotator if annotator is not None else _first(fields, _ANNOTATOR)
    if isinstance(by, list):
        # MT-bench: a model and the prompt that it judged with.
        by = " ".join(map(str, by))
    return Vote(
        place=place,
        task=task,
        policy_a=a,
        policy_b=b,
        winner=_winner(place, fields, winner, (a, b), a_on_left=a_on_left, by_side=in_order or arena),
        response_a=responses[0],
        response_b=responses[1],
        annotator=(_text(place, "annotator", by) or "").strip(),
        judged_at=_time(place, judged_at if judged_at is not None else _first(fields, _JUDGED_AT)),
        a_on_left=a_on_left,
        messages=messages,
    )


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _two(fields: Mapping[str, Any], stems: Iterable[str]) -> tuple[tuple[Any, Any], bool]:
    """The values of a and b under the first of the stems that has both, and whether their names are sides."""
    for stem in stems:
        for a, b in _SIDES:
            for name_a, name_b in ((f"{stem}{a}", f"{stem}{b}"), (f"{a}{stem}", f"{b}{stem}")):
                if name_a in fields and name_b in fields:
                    return (fields[name_a], fields[name_b]), a == "left"
    return (None, None), False


class _MissingError(Exception):
    """A row has no such column, or nothing in it."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(place, what)
        self.place, self.what = place, what

    def fault(self, row: Row) -> Fault:
        """The fault of this row, with the columns that have something in it, as they are written."""
        written = {name.lower(): name for name in row.heading}
        found: list[str] = []
        for name, value in row.fields.items():
            if isinstance(value, Mapping):
                found += [f"{name}.{inner}" for inner in value]
            elif value not in (None, "", []):
                found.append(written.get(name, name))
        advice = "Add the column, or rename one."
        if len(row.fields) == 1:
            advice = "This is one column: separate columns by a comma, a semicolon, a tab or |."
        return Fault(self.place, f"There is no {self.what}. Found: {', '.join(found) or 'nothing'}. {advice}")

    def in_all(self, first: Fault, n_rows: int) -> Fault:
        """The fault of a file in which this is missing in every row, from that of the first."""
        column = self.what.split()[0]
        return Fault(
            "",
            f"{first.message} It is so in all {n_rows:,} rows. Or say which column it is: on the page "
            f'Columns, or by --map "NAME={column}".',
        )


def _text(place: str, name: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ImportingError.at(place, f"{name} must be a text, not {limits.shown(value)}.")
    return storable(str(value), place, name)


# The text of a task, and the messages that it keeps beside it.
_Task = tuple[str, tuple[Message, ...]]


def _texts(
    place: str, fields: Mapping[str, Any], *, may_be_turns: bool
) -> tuple[str | None, tuple[Message, ...], tuple[str | None, str | None], bool]:
    """The task, its messages, the two responses, and whether they came as an arena's conversations."""
    (first, second), _ = _two(fields, ("conversation", "messages"))
    if first is not None and second is not None:
        n_turns = _n_turns(place, fields)
        task_a, response_a = _split(place, "conversation_a", first, n_turns)
        task_b, response_b = _split(place, "conversation_b", second, n_turns)
        if task_a != task_b:
            raise ImportingError.at(
                place,
                "conversation_a and conversation_b begin with different messages. They must begin alike.",
            )
        return *task_a, (response_a, response_b), True
    task = _first(fields, _TASK)
    (first, second), _ = _two(fields, (*_RESPONSE, ""))
    turns = [_turns(value) for value in (task, first, second)]
    if may_be_turns and _are_turns(place, fields, turns):
        # LMArena's table for Kaggle: a list of turns in each of the three columns.
        users, *answers = (each or [] for each in turns)
        whole = []
        for given in answers:
            pairs = zip(_by(USER, users), _by(ASSISTANT, given), strict=True)
            whole.append(_rest(list(itertools.chain.from_iterable(pairs))[1:]))
        return (
            storable(users[0], place, "task"),
            (),
            (storable(whole[0], place, "response_a"), storable(whole[1], place, "response_b")),
            True,
        )
    messages: tuple[Message, ...] = ()
    if isinstance(task, list):
        # A prompt as messages, without an answer in it.
        task, messages = _task(place, _checked_messages(place, "prompt", task))
    return (
        _text(place, "task", task),
        messages,
        (_text(place, "response_a", first), _text(place, "response_b", second)),
        False,
    )


def _are_turns(place: str, fields: Mapping[str, Any], turns: Sequence[list[str] | None]) -> bool:
    """True if all columns of texts are lists of turns, as in LMArena's table for Kaggle.

    Raises
    ------
    ImportingError
        The lists do not belong together.
    """
    is_kaggles = bool(turns[0]) and not fields.keys().isdisjoint(_KAGGLE)
    lengths = [len(each) for each in turns if each]
    if len(lengths) == len(turns) and len(set(lengths)) == 1:
        return True
    if len(lengths) == len(turns) or is_kaggles:
        said = ", ".join(
            f"{name} has {slips.number(len(each), 'turn') if each else 'no list of them'}"
            for name, each in zip(("prompt", "response_a", "response_b"), turns, strict=True)
        )
        raise ImportingError.at(
            place,
            f"{said}. They must have as many, one answer of each for every message of the user. Correct the "
            "row, or remove it.",
        )
    return False


def _by(role: str, texts: Iterable[str]) -> list[Message]:
    return [Message(role, text) for text in texts]


def _list_in(value: Any) -> list[Any] | None:
    """A list, which a table may hold as JSON; ``None`` where it is none, or empty."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = loads(value)
        except ValueError:
            return None
    return value if isinstance(value, list) and value else None


def _turns(value: Any) -> list[str] | None:
    """The texts of a list of turns; ``None`` where it is none."""
    turns = _list_in(value)
    if turns is None or not all(isinstance(each, (str, type(None))) for each in turns):
        return None
    return [each or "" for each in turns]


def _n_turns(place: str, fields: Mapping[str, Any]) -> int | None:
    """The number of turns that the vote is about; ``None`` where the file says nothing.

    MT-bench has both turns in each row, and people judged after the first or after the second. Elsewhere it
    is the number of turns that there are.
    """
    said = fields.get("turn")
    if said in (None, ""):
        return None
    text = str(said).removesuffix(".0")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < _LONGEST_NUMBER and int(text) > 0):
        raise ImportingError.at(
            place, f"turn is {limits.shown(said)}. Write the number of turns that were judged, 1 or more."
        )
    return int(text)


def _until(messages: Sequence[Message], n_turns: int | None) -> Sequence[Message]:
    """The first turns of a conversation: each begins with a message of the user."""
    starts = [n for n, message in enumerate(messages) if message.role == USER]
    return messages if n_turns is None or n_turns >= len(starts) else messages[: starts[n_turns]]


def _split(place: str, name: str, value: Any, n_turns: int | None) -> tuple[_Task, str | None]:
    """The task of a conversation, which is all before the first answer, and the rest of it; ``None`` where
    it ends with the user. Turns after the last one that was judged are left out.
    """
    if isinstance(value, str):
        try:
            value = loads(value)
        except ValueError:
            value = None
    messages = _until(_checked_messages(place, name, value), n_turns)
    answered = next((n for n, message in enumerate(messages) if message.role == ASSISTANT), None)
    if answered is None and messages and {each.role for each in messages} <= {SYSTEM, USER}:
        return _task(place, messages), None
    if not answered:
        raise ImportingError.at(
            place, f"{name} must begin with the user's message, and have an answer by the role assistant."
        )
    return _task(place, messages[:answered]), storable(_rest(messages[answered:]), place, name)


def _checked_messages(place: str, name: str, value: Any) -> list[Message]:
    fault = ImportingError.at(
        place, f"{name} must be a list of messages, each with its role and its content."
    )
    if not isinstance(value, list):
        raise fault
    messages = []
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise fault
        content = message.get("content")
        if isinstance(content, list):
            # Parts, as multimodal conversations have them. Only texts can be shown.
            if any(not isinstance(part, Mapping) or part.get("type", "text") != "text" for part in content):
                raise ImportingError.at(place, f"{name} holds more than text. Leave the row out.")
            content = "\n".join(str(part.get("text") or "") for part in content)
        if content is not None and not isinstance(content, str):
            raise fault
        messages.append(Message(message["role"], content or ""))
    return messages


def _task(place: str, messages: Sequence[Message]) -> _Task:
    """The task that is this conversation; one that no response could continue is a text."""
    text, kept = (transcript(messages), ()) if fault_of(messages) else text_and_messages(messages)
    return storable(text, place, "task"), kept


def _rest(messages: Sequence[Message]) -> str:
    """The first answer as it is, and what follows with its roles: nothing of a long conversation is lost."""
    first, *later = messages
    return "\n\n".join([first.content, *(f"{each.role.capitalize()}: {each.content}" for each in later)])


def _side_of_a(place: str, fields: Mapping[str, Any]) -> bool | None:
    value = fields.get("sidea")
    if value in (None, ""):
        return None
    side = _key(str(value))
    if side not in {"left", "right"}:
        raise ImportingError.at(
            place, f"side_a is {limits.shown(value)}. Write left or right, or leave it empty."
        )
    return side == "left"


def _winner(
    place: str,
    fields: Mapping[str, Any],
    given: Any,
    policies: tuple[str, str],
    *,
    a_on_left: bool | None,
    by_side: bool,
) -> Winner:
    """The answer. ``by_side``: the format names sides, so a word for one is no policy of that name."""
    # A vote without a winner is none, whatever another column says.
    said = given if given is not None else _first(fields, ["winner"] if "winner" in fields else _WINNER)
    if said is None:
        marked = [
            winner
            for name, winner in _KAGGLE.items()
            if str(fields.get(name)).lower() in {"1", "1.0", "true"}
        ]
        if len(marked) == 1:
            return marked[0]
        if "winner" in fields:
            raise ImportingError.at(
                place, "The winner is empty. Write a, b, tie or both_bad, or remove the row."
            )
        raise _MissingError(place, "winner")
    text = _text(place, "winner", said) or ""
    if text in {"1.0", "2.0"} and text not in policies:
        # Programs take numbers beside an empty cell for fractions.
        text = text[0]
    found = {
        place_of
        for name, place_of in zip(policies, (Winner.A, Winner.B), strict=True)
        if text.strip() == name
    }
    key = _key(text)
    if by_side and (key in _NAMED or key in _NEITHER or key in _ON_SIDE):
        found = set()
    if key in _NAMED:
        found.add(_NAMED[key])
    elif key in _NEITHER:
        found.add(_NEITHER[key])
    elif key.endswith(("left", "right")) and key in _ON_SIDE:
        if a_on_left is None:
            raise ImportingError.at(
                place, f"winner is {limits.shown(text)}, but nothing says which policy was there. Add side_a."
            )
        found.add(Winner.A if _ON_SIDE[key] == a_on_left else Winner.B)
    if len(found) == 1:
        return found.pop()
    if found:
        raise ImportingError.at(
            place,
            f"winner is {limits.shown(text)}, which is a policy's name and also says the other one. Write a "
            "or b.",
        )
    raise ImportingError.at(
        place,
        f"winner is {limits.shown(text)}. Write a, b, tie or both_bad, or the name of one of the two "
        "policies.",
    )


def _uncompacted(value: Any) -> Any:
    """The time that eight or fourteen digits are, as 20260301 or 20260301103000; any other value as it is.

    As seconds they would be days of 1970, as milliseconds the year 2600.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return value
    digits = str(value).strip()
    form = _COMPACT.get(len(digits))
    if form is None or not (digits.isascii() and digits.isdigit()):
        return value
    try:
        return datetime.strptime(digits, form).replace(tzinfo=UTC)
    except ValueError:
        return value


def _time(place: str, value: Any) -> datetime | None:
    """A time in ISO 8601 or in seconds or milliseconds since 1970; without a zone it is UTC."""
    if value is None:
        return None
    value = _uncompacted(value)
    if isinstance(value, str) and re.fullmatch(r"\d+([.,]\d+)?", value.strip()):
        value = float(value.replace(",", "."))
    if isinstance(value, (int, float)) and 0 < value < _DAYS_BEFORE:
        raise ImportingError.at(
            place,
            f"judged_at is {limits.shown(value)}, as spreadsheets count days. Format the column as a date, "
            "such as 2026-03-01 10:00, and save the file again.",
        )
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS_FROM else value, UTC)
        else:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        # In the first and the last hours that there are, databases cannot turn every zone into theirs.
        time.astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ImportingError.at(
            place, f"judged_at is {limits.shown(value)}. Write a time in ISO 8601, or leave it empty."
        ) from error
    return time


# ---------------------------------------------------------------- what somebody should know


def _warnings(votes: Sequence[Vote], unanswered: int) -> Iterator[str]:
    """Counts of what may be a mistake in the file. Nothing of it is changed."""
    if unanswered:
        yield f"{slips.number(unanswered, 'record')} without an answer, or taken back, left out."
    rows = Counter(
        (v.task, v.policy_a, v.policy_b, v.winner, v.response_a, v.response_b, v.annotator, v.judged_at)
        for v in votes
        if v.annotator or v.judged_at
    )
    if twice := sum(rows.values()) - len(rows):
        yield f"{slips.number(twice, 'vote')} equal to an earlier one in every column. Each counts."
    if empty := sum((v.response_a, v.response_b).count("") for v in votes):
        yield f"{slips.number(empty, 'response')} empty."
    if opposite := _opposite(votes):
        yield (
            f"{slips.number(opposite, 'pair')} of texts on which one person gave opposite votes. Each counts."
        )
    responses = [text for v in votes for text in (v.response_a, v.response_b) if text]
    tasks = list(dict.fromkeys(v.task for v in votes))
    yield from slips.in_texts(responses, "response")
    yield from slips.in_texts(tasks, "task")
    yield from slips.of_programs(tasks, "task")
    policies = list(dict.fromkeys(name for v in votes for name in (v.policy_a, v.policy_b)))
    yield from slips.no_names(policies, "policy", "policies")
    yield from slips.no_names((v.annotator for v in votes), "annotator")
    yield from slips.nearly_equal(policies, "policy", "policies")
    yield from slips.nearly_equal((v.task for v in votes), "task", "tasks")


def _opposite(votes: Sequence[Vote]) -> int:
    """The number of times that one person preferred each of the same two texts to the other."""
    better: defaultdict[Hashable, set[tuple[str, str]]] = defaultdict(set)
    for v in votes:
        if v.annotator and v.response_a and v.response_b and v.winner in {Winner.A, Winner.B}:
            a, b = (v.policy_a, v.response_a), (v.policy_b, v.response_b)
            better[v.annotator, v.task, frozenset((a, b))].add(a if v.winner == Winner.A else b)
    return sum(len(each) > 1 for each in better.values())
