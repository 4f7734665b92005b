"""Numbers in sentences: with their nouns, and rounded where they are estimates."""

from datetime import UTC, datetime


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


def duration(seconds: float) -> str:
    """A time span in its largest unit, rounded down: 11330 → "3 hours".

    Parameters
    ----------
    seconds
        At least 0.
    """
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return number(int(seconds // length), unit)
    return number(int(seconds), "second")


def moment(at: datetime) -> str:
    """A time in a sentence: "2026-11-29 14:05 UTC"; pages show it in their reader's zone."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def two_digits(expected: float) -> int:
    """An estimated number, rounded so that it does not look like a count: 1234.5 → 1200.

    Parameters
    ----------
    expected
        At least 0.
    """
    return int(round(expected, -max(0, len(str(int(expected))) - 2)))
