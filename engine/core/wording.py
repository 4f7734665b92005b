"""Numbers in sentences: with their nouns, and rounded where they are estimates."""

from __future__ import annotations


def number(n: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 task", "2,000 tasks".

    Parameters
    ----------
    n
        The number.
    one, many
        The noun, and its plural unless an s makes it.
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def two_digits(expected: float) -> int:
    """An estimated number, rounded so that it does not look like a count: 1234.5 → 1200.

    Parameters
    ----------
    expected
        At least 0.
    """
    return int(round(expected, -max(0, len(str(int(expected))) - 2)))
