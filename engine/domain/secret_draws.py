"""Derives everything that an annotator must not be able to predict from an experiment's secret.

Sides, tasks, the seeds of responses, the order of checks and the sides of gold items come from no random
number generator with a known seed. Anybody with the seed and this code could draw them too. Each is the
output of HMAC-SHA256 under the experiment's secret. The secret is published after the conclusion; anybody can
then derive every value again and compare it with the record.

The derivation, version 1:

* The key is the secret: 32 random bytes, written as 64 hexadecimal digits and used as bytes.
* The message is ``llmpo/1/PURPOSE/N/N/…`` in ASCII: the purpose, then its whole numbers in decimal.
* The digest is read as an unsigned big-endian integer of 256 bits.

==============  ==================================  =======================================================
purpose         numbers                             meaning of the digest
==============  ==================================  =======================================================
``side``        number of the comparison            odd: policy i's response stands on the left
``draw``        number of the comparison            seed of numpy's ``default_rng`` for task and responses
``check``       annotator, number of the pair       its first 53 bits as a fraction of 2^53, against the rates
``repeat``      annotator, number of the pair       modulo the number of candidates: the judgment to repeat
``gold-side``   annotator, gold item                odd: the better response stands on the left
``open-task``   position of the task                order of the tasks, of which the first half is open to
                                                    the writer of an improvement
==============  ==================================  =======================================================

The number of a comparison is the column ``plan_number`` of an export. Annotators, gold items and the number
of the pair are those of the row of the check. docs/blinding.md shows how to verify a record.
"""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

_SECRET_BYTES = 32
_DIGEST_BITS = 256
_MANTISSA_BITS = 53


def new_secret() -> str:
    """A secret for an experiment."""
    return secrets.token_hex(_SECRET_BYTES)


def new_seed() -> int:
    """A seed for the choice of pairs. SQLite and PostgreSQL both store 63 bits."""
    return secrets.randbits(63)


def digest(secret: str, purpose: str, *numbers: int) -> int:
    """256 bits that nobody can tell from random ones without the secret."""
    message = "/".join(["llmpo", "1", purpose, *map(str, numbers)]).encode("ascii")
    return int.from_bytes(hmac.digest(bytes.fromhex(secret), message, "sha256"), "big")


def i_on_left(secret: str, number: int) -> bool:
    """True if policy i's response stands on the left in the comparison of this number."""
    return bool(digest(secret, "side", number) & 1)


def draw_seed(secret: str, number: int) -> int:
    """The seed of the generator that draws the task and the responses of the comparison of this number."""
    return digest(secret, "draw", number)


def check_draw(secret: str, annotator: int, number: int) -> float:
    """A number from [0, 1): below the experiment's rates, the annotator's pair of this number is a check."""
    return float(
        (digest(secret, "check", annotator, number) >> (_DIGEST_BITS - _MANTISSA_BITS)) / 2**_MANTISSA_BITS
    )


def repeat_choice(secret: str, annotator: int, number: int, candidates: Sequence[int]) -> int:
    """The one of ``candidates`` that the annotator's pair of this number repeats."""
    return candidates[digest(secret, "repeat", annotator, number) % len(candidates)]


def better_on_left(secret: str, annotator: int, gold: int) -> bool:
    """True if the better response of a gold item stands on the left for this annotator."""
    return bool(digest(secret, "gold-side", annotator, gold) & 1)


def open_task(secret: str, position: int) -> int:
    """The place of a task in the order by which tasks are open to the writer of an improvement."""
    return digest(secret, "open-task", position)


@dataclass(frozen=True)
class Period:
    """The comparisons that one secret is about: from the number ``first`` on, up to the next period's.

    An experiment has one period. Reopening it begins another one, as the secret may have been published.
    """

    first: int
    secret: str


def secret_of(periods: Sequence[Period], number: int) -> str:
    """The secret that the comparison of this number was planned under.

    Raises
    ------
    ValueError
        No period covers it.
    """
    covering = [period.secret for period in periods if period.first <= number]
    if not covering:
        raise ValueError(f"No published secret is about comparison number {number}.")
    return covering[-1]
