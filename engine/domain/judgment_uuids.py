"""The UUID by which files know a judgment: the same in every export of it, and after every import."""

from __future__ import annotations

import hashlib
from uuid import UUID


def mark(experiment_id: int) -> int:
    """The mark of an experiment on the first 32 bits of the tokens of its judgments.

    More bits would make each row of an export dearer, and a token that is taken all the same is no fault: the
    judgment then gets another one.
    """
    return int.from_bytes(hashlib.sha256(f"judgments of {experiment_id}".encode()).digest()[:4], "big")


def exchanged(uuid: UUID, mark: int) -> UUID:
    """The token of the judgment that has this UUID in files, or the UUID of the one that has this token.

    A token is unique in the database, but a judgment may be imported into several experiments. So the token
    is the UUID with the experiment's mark on it by exclusive or, and the same again takes the mark off.
    """
    return UUID(int=uuid.int ^ (mark << 96))
