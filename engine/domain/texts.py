"""Texts that come from outside."""

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
    """The text with a mark in place of each character that cannot be stored. Models sometimes write some."""
    return UNSTORABLE.sub("\ufffd", text)


def is_blank(text: str) -> bool:
    """True if the text has no visible character: only space, or characters without a shape such as U+200B."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def digest(text: str) -> str:
    """16 hexadecimal digits that identify a text; space around it is ignored, since nobody sees it."""
    seen = "" if is_blank(text) else text.strip()
    return hashlib.sha256(seen.encode()).hexdigest()[:16]


# The digest of a text without visible characters.
NOTHING = digest("")


def two_texts(first: str, second: str) -> str:
    """The name of two texts, from their digests in either order. It does not say which task they answer."""
    return f"{min(first, second)}:{max(first, second)}"


def pair_of_texts(task_id: int, first: str, second: str) -> str:
    """The name of two texts that answer one task, from their digests in either order."""
    return f"{task_id}:{two_texts(first, second)}"
