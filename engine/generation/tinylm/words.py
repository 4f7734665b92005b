"""The words the model's tasks are made of, and the words it must not say."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
LEXICON_LENGTHS = range(4, 7)


@cache
def words() -> tuple[str, ...]:
    """All words of 4-10 letters, sorted (source and licence: ``WORDS-LICENSE.txt``)."""
    return tuple((HERE / "words.txt").read_text(encoding="ascii").split())


@cache
def lexicon() -> tuple[str, ...]:
    """The words of 4-6 letters: no two have the same letters, so a scramble has one answer."""
    return tuple(word for word in words() if len(word) in LEXICON_LENGTHS)


@cache
def _blocked_digests() -> frozenset[str]:
    return frozenset((HERE / "blocked.txt").read_text(encoding="ascii").split())


def digest(word: str) -> str:
    """The form of a word in ``blocked.txt``: hashed, because the repository should not spell it out."""
    return hashlib.sha256(word.encode()).hexdigest()[:16]


def is_blocked(word: str) -> bool:
    """True if a lower-case word is offensive or out of place in a puzzle."""
    return digest(word) in _blocked_digests()


def contains_blocked(text: str) -> bool:
    """True if a text contains a blocked word, written plainly or with its letters spaced out."""
    lowered = text.lower()
    runs = re.findall(r"[a-z]+", lowered)
    runs += [re.sub(r"[^a-z]", "", spelled) for spelled in re.findall(r"(?:\b[a-z]\b[\s,.-]*){3,}", lowered)]
    return any(is_blocked(run) for run in runs)
