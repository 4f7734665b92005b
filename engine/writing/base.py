"""Writers of new texts by name: our own, and those that other packages register.

A package adds one by an entry point in the group "llmpo.writers". Its name is the writer's, and its object is
called with an `Ask`, which asks the improvement's model, and returns a `Writer`:

    [project.entry-points."llmpo.writers"]
    mine = "my_package:MyWriter"
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.domain.conversations import Message
from engine.domain.proposals import Brief

# Sends messages to the improvement's model, with a JSON schema for its answer, and returns the text of it.
# Raises `WriterError`. What is sent and what comes is recorded with the proposals.
Ask = Callable[[Sequence[Message], Mapping[str, Any]], str]


class WriterError(Exception):
    """There are no texts this time. Says why, for the page; it is tried again later."""


class ExhaustedError(WriterError):
    """There will never be more texts."""


@dataclass(frozen=True)
class Written:
    """A new text, and the writer's reason in one sentence."""

    text: str
    reason: str = ""


class Writer(Protocol):
    """Writes children of the champion."""

    def write(self, brief: Brief, n: int) -> list[Written]:
        """Up to ``n`` texts.

        Raises
        ------
        WriterError
        """
        ...
