"""Past votes: which of two policies somebody preferred. docs/votes.md describes their formats."""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from engine.domain import limits
from engine.domain.conversations import (
    ASSISTANT,
    SYSTEM,
    USER,
    Message,
    content_of,
    fault_of,
    holds_more_than_text,
    text_and_messages,
    transcript,
)
from engine.domain.material_kinds import Material
from engine.domain.wording import number
from engine.importing import warnings
from engine.importing.items import USUAL, Wishes, asked, nothing_in, policy_in, records_in
from engine.importing.mapping import Columns, Roles
from engine.importing.nested_rows import said_in
from engine.importing.reading_process import Source
from engine.importing.rows import (
    ImportingError,
    NoColumnError,
    Row,
    in_json,
    is_empty,
    storable,
    text_in,
)

# Seconds since 1970 from 1973 to 2286. Smaller numbers are days, as spreadsheets count, or a date's digits.
_SECONDS = 1e8, 1e10
# A whole number as pandas writes it in a column with gaps.
_FRACTION = re.compile(r"^(\d+)[.,]0$")
Values = Mapping[str, Any]


class Winner(StrEnum):
    """The answer of one vote."""

    A = "a"
    B = "b"
    TIE = "tie"
    BOTH_BAD = "both_bad"


class Judge(StrEnum):
    """The giver of one vote, as our exports say it."""

    HUMAN = "human"
    RULE = "rule"
    LLM = "llm"


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote, and its place in the file.

    Attributes
    ----------
    response_a, response_b
        The texts of the responses; ``None`` where the file has none.
    annotator
        A name or a number; empty where the file has none.
    judged_at
        With its zone; ``None`` where the file says nothing.
    a_on_left
        The side on which a was shown; ``None`` where the file says nothing.
    messages
        The conversation that the task is; empty if it is one message of the user.
    uuid
        That of a judgment of our own export; ``None`` for any other vote.
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
    uuid: UUID | None = field(default=None, repr=False)
    judge: Judge = field(default=Judge.HUMAN, repr=False)


@dataclass(frozen=True)
class Votes:
    """The votes of a file, oldest first where all have a time, and what somebody should know about them."""

    votes: Sequence[Vote]
    warnings: Sequence[str]


def read_votes(source: str | Source, columns: Columns | None = None, wishes: Wishes | None = None) -> Votes:
    """The votes of a file in any of the formats.

    ``columns``: what columns are that have other names.
    """
    wishes = wishes or Wishes(columns or {})
    roles = Roles(Material.VOTES, wishes.columns)
    found, left_out = records_in(
        source, roles, wishes, limits.JUDGMENTS, lambda row: [vote_of(row, roles, wishes)]
    )
    if not found:
        raise nothing_in(source, "There are no votes here. A vote has a task, two policies and a winner.")
    votes, again = _once_each(found)
    if all(vote.judged_at is not None for vote in votes):
        votes.sort(key=lambda vote: vote.judged_at or datetime.min)
    return Votes(votes, [*left_out, *_warnings(votes, again), *warnings.unread(roles.unread)])


def vote_of(row: Row, roles: Roles, wishes: Wishes = USUAL) -> Vote:
    """The vote of a row of plain columns."""
    place, values = row.place, roles.values(row)
    policies = policy_in(row, "policy_a", values), policy_in(row, "policy_b", values)
    if policies[0] == policies[1]:
        raise ImportingError.at(place, f"Both policies are {limits.shown(policies[0])}. Leave the row out.")
    task, messages, responses, is_arena = _texts(row, values, wishes)
    a_on_left = _side_of_a(place, values, is_arena=is_arena)
    uuid = _uuid(place, values.get("judgment_uuid"))
    by = values.get("annotator")
    # MT-bench: a model and the prompt that it judged with.
    annotator = " ".join(map(str, by)) if isinstance(by, list) else _text(place, "annotator", by)
    said = wishes.judged_by or ("" if is_empty(values.get("judged_by")) else str(values["judged_by"]))
    # Elsewhere a column of this name may name a person, unless somebody says what it is.
    if said and (uuid or wishes.judged_by or "judged_by" in roles.said_roles) and said not in {*Judge}:
        raise ImportingError.at(place, f"judged_by is {limits.shown(said)}. Write {', '.join(Judge)}.")
    return Vote(
        place=place,
        task=task,
        policy_a=policies[0],
        policy_b=policies[1],
        winner=_winner(
            row, values, policies, a_on_left=a_on_left, by_side=is_arena or values.get("side_a") == "left"
        ),
        response_a=responses[0],
        response_b=responses[1],
        annotator=_FRACTION.sub(r"\1", (annotator or "").strip()),
        judged_at=time_of(place, values.get("judged_at")),
        a_on_left=None if values.get("side_known") is False else a_on_left,
        messages=messages,
        uuid=uuid,
        judge=Judge(said) if said in {*Judge} else Judge.HUMAN,
    )


def _text(place: str, name: str, value: Any, *, json_texts: bool = False) -> str | None:
    return None if value is None else text_in(place, name, value, json_texts=json_texts)


# ---------------------------------------------------------------- texts

_Task = tuple[str, tuple[Message, ...]]


def _texts(
    row: Row, values: Values, wishes: Wishes
) -> tuple[str, tuple[Message, ...], tuple[str | None, str | None], bool]:
    """The task, its messages, the two responses, and whether they came as an arena's conversations."""
    place = row.place
    given = values.get("conversation_a"), values.get("conversation_b")
    if not any(map(is_empty, given)):
        task, responses = _conversations(place, values, given)
        return *task, responses, True
    prompt, messages = asked(place, values, row, wishes)
    first, second = (
        _text(place, name, values.get(name), json_texts=wishes.json_texts)
        for name in ("response_a", "response_b")
    )
    # An empty cell is no text: nobody votes on two empty ones, but where our own export says that they were.
    if not (first or second or values.get("texts_known") is True):
        first = second = None
    return prompt, messages, (first, second), False


def _conversations(
    place: str, values: Values, given: tuple[Any, Any]
) -> tuple[_Task, tuple[str | None, str | None]]:
    """The task of two conversations, which is all before their first different answer, and the rest of each.

    A response is ``None`` where the conversation ends with the user.
    """
    whole = [
        _until(place, _messages(place, f"conversation_{side}", each), values.get("turn"))
        for side, each in zip("ab", given, strict=True)
    ]
    n_same = next((n for n, (a, b) in enumerate(zip(*whole, strict=False)) if a != b), min(map(len, whole)))
    # Equal answers belong to the task only if the user answers them.
    while n_same and whole[0][n_same - 1].role == ASSISTANT:
        n_same -= 1
    task = whole[0][:n_same]
    rests = [each[n_same:] for each in whole]
    if not task or any(rest and rest[0].role != ASSISTANT for rest in rests):
        raise ImportingError.at(
            place,
            "conversation_a and conversation_b must begin with the same messages, and go on with answers.",
        )
    texts = [storable(_rest(rest), place, "A conversation") if rest else None for rest in rests]
    return _task(place, task), (texts[0], texts[1])


def _until(place: str, messages: Sequence[Message], turn: Any) -> Sequence[Message]:
    """The first turns, of which each begins with a message of the user, or all of them. MT-bench has both
    turns in each row, and people judged after the first or after the second.
    """
    if is_empty(turn):
        return messages
    text = _FRACTION.sub(r"\1", str(turn))
    if not re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII):
        raise ImportingError.at(place, f"turn is {limits.shown(turn)}. Write the number of turns, 1 or more.")
    starts = [n for n, message in enumerate(messages) if message.role == USER]
    return messages[: starts[int(text)]] if int(text) < len(starts) else messages


def _messages(place: str, name: str, value: Any) -> list[Message]:
    value = in_json(value)
    messages = []
    for message in value if isinstance(value, list) else [None]:
        if isinstance(message, Mapping) and holds_more_than_text(message):
            raise ImportingError.at(
                place,
                "A conversation holds more than text, such as a picture or a tool call. Leave the row out.",
            )
        role, content = (
            (message.get("role"), content_of(message)) if isinstance(message, Mapping) else (None, None)
        )
        if not isinstance(role, str) or not isinstance(content, (str, type(None))):
            raise ImportingError.at(
                place, f"{name} must be a list of messages, each with a role and a content."
            )
        messages.append(Message(role, content or ""))
    return messages


def _task(place: str, messages: Sequence[Message]) -> _Task:
    """The task that is this conversation; one that no response could continue is a text."""
    text, kept = (transcript(messages), ()) if fault_of(messages) else text_and_messages(messages)
    if not {each.role for each in messages} <= {SYSTEM, USER, ASSISTANT}:
        raise ImportingError.at(place, "A message has another role than system, user or assistant.")
    return storable(text, place, "The task"), kept


def _rest(messages: Sequence[Message]) -> str:
    """The first answer as it is, and what follows with its roles: nothing of a long conversation is lost."""
    first, *later = messages
    return "\n\n".join([first.content, *(f"{each.role.capitalize()}: {each.content}" for each in later)])


# ---------------------------------------------------------------- answers, sides, times


def _side_of_a(place: str, values: Values, *, is_arena: bool) -> bool | None:
    """True if a was shown on the left; ``None`` where nothing says it."""
    said = values.get("side_a")
    if is_empty(said) or warnings.is_nothing(str(said)):
        return True if is_arena else None
    side = str(said).strip().lower()
    if side not in {"left", "right"}:
        raise ImportingError.at(
            place, f"side_a is {limits.shown(said)}. Write left or right, or leave it empty."
        )
    return side == "left"


def _winner(
    row: Row, values: Values, policies: tuple[str, str], *, a_on_left: bool | None, by_side: bool
) -> Winner:
    """The answer. ``by_side``: the format names sides, so a word for one is no policy of that name."""
    said = values.get("winner")
    if "winner" not in values:
        raise NoColumnError.of(row, "winner")
    text = (_text(row.place, "winner", said) or "").strip()
    if not text:
        raise ImportingError.at(
            row.place, "The winner is empty. Write a, b, tie or both_bad, or leave the row out."
        )
    if text in {"1.0", "2.0"} and text not in policies:
        # Programs take numbers beside an empty cell for fractions.
        text = text[0]
    found = {winner for name, winner in zip(policies, (Winner.A, Winner.B), strict=True) if text == name}
    # 1.5 is AlpacaEval's middle of its sides 1 and 2.
    word = "tie" if text == "1.5" and not found else said_in(text)
    if by_side and word:
        found = set()
    if word in {"left", "right"}:
        if a_on_left is None and not found:
            raise ImportingError.at(
                row.place,
                f"winner is {limits.shown(text)}, but nothing says which policy was there. Add side_a.",
            )
        found |= {Winner.A if (word == "left") == a_on_left else Winner.B} if a_on_left is not None else set()
    elif word:
        found.add(Winner(word))
    if len(found) != 1:
        raise ImportingError.at(
            row.place,
            f"winner is {limits.shown(text)}. Write a, b, tie or both_bad, or the name of one of the "
            f"two policies{', but none that also says the other one' if found else ''}.",
        )
    return found.pop()


def time_of(place: str, value: Any) -> datetime | None:
    """A time in ISO 8601 or in seconds or milliseconds since 1970; without a zone it is UTC.

    ``None`` where there is none, or a word that programs write for none.
    """
    if is_empty(value) or warnings.is_nothing(str(value)):
        return None
    try:
        time = _instant(str(value).strip().removesuffix(" UTC"))  # BigQuery and PostgreSQL name the zone.
        # In the first and the last hours that there are, databases cannot turn every zone into theirs.
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise ImportingError.at(
            place,
            f"judged_at is {limits.shown(value)}. Write a time in ISO 8601, or seconds or milliseconds since "
            "1970, or leave it empty. In a spreadsheet, format the column as a date.",
        ) from error


def _instant(text: str) -> datetime:
    if not re.fullmatch(r"\d+([.,]\d+)?", text):
        return datetime.fromisoformat(text)
    seconds = float(text.replace(",", "."))
    seconds = seconds / 1000 if seconds >= 1000 * _SECONDS[0] else seconds
    if not _SECONDS[0] <= seconds < _SECONDS[1]:
        raise ValueError
    return datetime.fromtimestamp(seconds, UTC)


def _uuid(place: str, value: Any) -> UUID | None:
    if is_empty(value):
        return None
    try:
        return UUID(str(value).strip())
    except ValueError as error:
        raise ImportingError.at(
            place, f"judgment_uuid is {limits.shown(value)}, which is no UUID."
        ) from error


# ---------------------------------------------------------------- the votes of a file


def _once_each(votes: Sequence[Vote]) -> tuple[list[Vote], int]:
    """The votes without those that are an earlier one again by its UUID, and how many these are."""
    found: dict[Hashable, Vote] = {}
    for n, vote in enumerate(votes):
        first = found.setdefault(n if vote.uuid is None else vote.uuid, vote)
        if _content(first) != _content(vote):
            raise ImportingError.at(
                vote.place,
                f"judgment_uuid is that of {first.place}, which says something else. Export it again.",
            )
    return list(found.values()), len(votes) - len(found)


def _content(vote: Vote) -> Hashable:
    """The content of a vote, whichever of its policies is called a."""
    a, b = (vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)
    winner = {Winner.A: a, Winner.B: b}.get(vote.winner, vote.winner)
    return vote.task, frozenset((a, b)), winner


def _warnings(votes: Sequence[Vote], again: int) -> Iterator[str]:
    """What may be wrong in the file. Nothing of it is changed."""
    if again:
        yield f"{number(again, 'vote')} left out that came before in the file, by judgment_uuid."
    if by_model := sum(vote.judge == Judge.LLM for vote in votes):
        yield f"{number(by_model, 'vote')} of a language model. Each counts, and is shown as the model's."
    texts = [text for vote in votes for text in (vote.response_a, vote.response_b) if text is not None]
    tasks = list(dict.fromkeys(vote.task for vote in votes))
    policies = list(dict.fromkeys(name for vote in votes for name in (vote.policy_a, vote.policy_b)))
    annotators = list(dict.fromkeys(vote.annotator for vote in votes if vote.annotator))
    yield from warnings.empty(texts, "response")
    yield from warnings.duplicate(
        [replace(vote, place="") for vote in votes if vote.annotator or vote.judged_at], "vote"
    )
    yield from warnings.nearly_equal(policies, "policy", "policies")
    yield from warnings.nearly_equal(tasks, "task")
    yield from warnings.nearly_equal(annotators, "annotator")
    yield from warnings.spoiled([*texts, *tasks], "text")
    yield from warnings.of_responses(
        [
            (policy, vote.task, text)
            for vote in votes
            for policy, text in ((vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b))
            if text is not None
        ],
        policies,
    )
