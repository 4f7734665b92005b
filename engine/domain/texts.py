"""Texts that come from outside."""

from __future__ import annotations

import hashlib
import re

# The position of a number word is its value.
NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
# NUL is refused by PostgreSQL, half of a surrogate pair by UTF-8.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with a mark in place of each character that cannot be stored; a model may write such ones."""
    return UNSTORABLE.sub("\ufffd", text)


def is_blank(text: str) -> bool:
    """True if nobody sees anything of the text: space, or what has no shape, as U+200B and DOS's end mark."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def digest(text: str) -> str:
    """16 hexadecimal digits that stand for a text, without the space around it, which nobody sees."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def two_texts(first: str, second: str) -> str:
    """A name for two texts to a task that is given elsewhere, by their digests in either order."""
    return f"{min(first, second)}:{max(first, second)}"


def pair_of_texts(task_id: int, first: str, second: str) -> str:
    """A name for two texts to one task, given by their digests in either order."""
    return f"{task_id}:{two_texts(first, second)}"
