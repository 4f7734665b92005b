"""Derive ``words.txt`` from SCOWL, the word lists behind Debian's ``wamerican``.

Usage, with Debian's package ``scowl`` installed::

    python -m tools.tinylm.derive_words /usr/share/dict/scowl > engine/generation/tinylm/words.txt

Common words (SCOWL sizes 10 and 20) are kept that are not mere inflections of another common word and are not
on the block list. Words of 4-6 letters are kept when no other word up to size 35 has the same letters, so
that each scramble has one answer. Words of 7-10 letters, for the letter task, are from size 10 only.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from engine.generation.tinylm.words import is_blocked

ADDED = {"oasis"}  # the paper's own example, which SCOWL ranks below the common sizes
SHORT = range(4, 7)
ENDINGS = {
    "s": ("",),
    "es": ("",),
    "ies": ("y",),
    "ed": ("", "e"),
    "ied": ("y",),
    "ing": ("", "e"),
    "er": ("", "e"),
    "est": ("", "e"),
    "ier": ("y",),
    "iest": ("y",),
    "ly": ("",),
}
DOUBLING = ("ed", "ing", "er", "est")


def read_size(folder: Path, size: int) -> set[str]:
    """Words of 2-10 plain letters of one SCOWL size."""
    words: set[str] = set()
    for name in ("english-words", "american-words"):
        text = (folder / f"{name}.{size}").read_text(encoding="latin-1")
        words |= {word for word in text.split() if re.fullmatch("[a-z]{2,10}", word)}
    return words


def is_inflection(word: str, known: set[str]) -> bool:
    """True if ``word`` is a known word plus a regular ending."""
    for ending, replacements in ENDINGS.items():
        if not word.endswith(ending):
            continue
        stem = word[: -len(ending)]
        if any(len(stem) > 1 and stem + replacement in known for replacement in replacements):
            return True
        if ending in DOUBLING and len(stem) > 3 and stem[-1] == stem[-2] and stem[:-1] in known:
            return True
    return False


def derive(folder: Path) -> list[str]:
    """Return the sorted word list."""
    most_common, common, wider = (read_size(folder, size) for size in (10, 20, 35))
    known = most_common | common
    same_letters = Counter("".join(sorted(word)) for word in known | wider)
    kept = {
        word
        for word in known
        if (len(word) in SHORT and same_letters["".join(sorted(word))] == 1)
        or (len(word) >= SHORT.stop and word in most_common)
    }
    return sorted(w for w in kept | ADDED if not is_inflection(w, known) and not is_blocked(w))


if __name__ == "__main__":
    print("\n".join(derive(Path(sys.argv[1]))))
