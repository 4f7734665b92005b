"""One vote as every format gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from engine.domain.conversations import Message


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
    uuid
        That of a judgment of our own export; ``None`` for any other vote.
    judge
        A person, unless our own export names a rule or a language model.
    n_named
        The number of responses in the list that is the answer; 0 where it is none.
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
    n_named: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Votes:
    """The votes of a file, oldest first where all have a time, and what somebody should know about them."""

    votes: Sequence[Vote]
    warnings: Sequence[str]
