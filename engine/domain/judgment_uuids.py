"""The UUID by which files know a judgment: the same in every export of it, and after every import."""

from __future__ import annotations

import hashlib
from uuid import UUID


def mark(experiment_id: int) -> int:
    """The mark of an experiment on the tokens of its judgments: 128 bits."""
    return int.from_bytes(hashlib.sha256(f"judgments of {experiment_id}".encode()).digest()[:16], "big")


def exchanged(uuid: UUID, experiment_id: int) -> UUID:
    """The token of the judgment that has this UUID in files, or the UUID of the one that has this token.

    A token is unique in the database, but a judgment may be imported into several experiments. So the token
    is the UUID with the experiment's mark on it by exclusive or, and the same again takes the mark off.
    """
    return UUID(int=uuid.int ^ mark(experiment_id))


def marks_of_halves(experiment_id: int) -> tuple[int, int]:
    """The mark as two numbers of 64 bits with a sign, as databases have them: the first half comes first."""
    data = mark(experiment_id).to_bytes(16, "big")
    return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[8:], "big", signed=True)
