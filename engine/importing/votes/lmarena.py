"""LMArena, Chatbot Arena and MT-bench: conversations, or a list of turns in each column."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from engine.core import wording
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
from engine.importing.rows import ImportingError, in_json, storable
from engine.importing.votes.answers import KAGGLE
from engine.importing.votes.columns import list_in, two_of, without_fraction

# Digits.
_LONGEST_NUMBER = 9

# The text of a task, and the messages that it keeps beside it.
_Task = tuple[str, tuple[Message, ...]]


class Texts(NamedTuple):
    """The texts of one vote: the task, the messages that it keeps, and both responses."""

    task: str
    messages: tuple[Message, ...]
    responses: tuple[str | None, str | None]


def conversations(place: str, fields: Mapping[str, Any]) -> Texts | None:
    """The texts of a row that has a conversation for each of a and b; ``None`` for any other row.

    Raises
    ------
    ImportingError
        They are no conversations, or not about the same task.
    """
    (first, second), _ = two_of(fields, ("conversation", "messages"))
    if first is None or second is None:
        return None
    n_turns = _n_turns(place, fields)
    task_a, response_a = _split(place, "conversation_a", first, n_turns)
    task_b, response_b = _split(place, "conversation_b", second, n_turns)
    if task_a != task_b:
        raise ImportingError.at(
            place,
            "conversation_a and conversation_b begin with different messages. They must begin alike.",
        )
    return Texts(*task_a, (response_a, response_b))


def lists_of_turns(place: str, fields: Mapping[str, Any], columns: Sequence[Any]) -> Texts | None:
    """The texts of a row of LMArena's table for Kaggle; ``None`` for any other row. Task, a and b are a list
    of turns each.

    ``columns``: the three.

    Raises
    ------
    ImportingError
        The lists do not belong together.
    """
    turns = [_turns(value) for value in columns]
    if not _belong_together(place, fields, turns):
        return None
    users, *answers = (each or [] for each in turns)
    whole = []
    for given in answers:
        pairs = zip(_by(USER, users), _by(ASSISTANT, given), strict=True)
        whole.append(_rest(list(itertools.chain.from_iterable(pairs))[1:]))
    return Texts(
        storable(users[0], place, "task"),
        (),
        (storable(whole[0], place, "response_a"), storable(whole[1], place, "response_b")),
    )


def _belong_together(place: str, fields: Mapping[str, Any], turns: Sequence[list[str] | None]) -> bool:
    """True if all three are lists of turns, with as many in each."""
    is_kaggles = bool(turns[0]) and not fields.keys().isdisjoint(KAGGLE)
    lengths = [len(each) for each in turns if each]
    if len(lengths) == len(turns) and len(set(lengths)) == 1:
        return True
    if len(lengths) == len(turns) or is_kaggles:
        said = ", ".join(
            f"{name} has {wording.number(len(each), 'turn') if each else 'no list of them'}"
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


def _turns(value: Any) -> list[str] | None:
    """The texts of a list of turns; ``None`` where it is none."""
    turns = list_in(value)
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
    text = without_fraction(str(said))
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
    messages = _until(_checked_messages(place, name, in_json(value)), n_turns)
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
        place,
        f"{name} must be a list of messages, each with its role and its content. A table of texts holds "
        "it as JSON.",
    )
    if not isinstance(value, list):
        raise fault
    messages = []
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise fault
        if holds_more_than_text(message):
            raise ImportingError.at(place, f"{name} holds more than text. Leave the row out.")
        content = content_of(message)
        if content is not None and not isinstance(content, str):
            raise fault
        messages.append(Message(message["role"], content or ""))
    return messages


def task_of_prompt(place: str, messages: list[Any]) -> _Task:
    """The task that a prompt is: messages without an answer in it."""
    return _task(place, _checked_messages(place, "prompt", messages))


def _task(place: str, messages: Sequence[Message]) -> _Task:
    """The task that is this conversation; one that no response could continue is a text."""
    text, kept = (transcript(messages), ()) if fault_of(messages) else text_and_messages(messages)
    return storable(text, place, "task"), kept


def _rest(messages: Sequence[Message]) -> str:
    """The first answer as it is, and what follows with its roles: nothing of a long conversation is lost."""
    first, *later = messages
    return "\n\n".join([first.content, *(f"{each.role.capitalize()}: {each.content}" for each in later)])
