"""The UUID that identifies a judgment in files: the same in every export, and after every import."""

import hashlib
from uuid import UUID


def mark(experiment_id: int) -> int:
    """The mark that an experiment leaves on the first 32 bits of its judgments' tokens.

    More bits would make each row of an export more expensive. If a token is taken nevertheless, the judgment
    gets another one.
    """
    return int.from_bytes(hashlib.sha256(f"judgments of {experiment_id}".encode()).digest()[:4], "big")


def exchanged(uuid: UUID, mark: int) -> UUID:
    """The token of the judgment with this UUID, or the UUID of the judgment with this token.

    A token is unique in the database, but one judgment may be imported into several experiments. So the token
    is the exclusive or of the UUID and the experiment's mark, and the same operation reverses it.
    """
    return UUID(int=uuid.int ^ (mark << 96))
