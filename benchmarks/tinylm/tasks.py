"""Puzzles of the paper's four tasks that the model was not trained on, in the paper's wording.

The split hashes what a puzzle asks, such as the unordered pair of numbers of a sum.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.domain.texts import NUMBER_WORDS

HELD_OUT_SHARE = 0.12
# Only the paper's wording is left; its draw keeps the tasks behind the figures of docs/reproduction.md.
_WORDINGS = ("as in the paper",)

NOUNS = {
    category: names.split()
    for category, names in {
        "animals": "pig duck dog cat cow horse sheep goat hen fox bear rabbit snake frog donkey chicken",
        "fruits": "apple banana orange peach plum grape pear lemon mango cherry nectarine strawberry",
        "vegetables": "carrot onion potato cabbage cauliflower yam pepper radish cucumber turnip",
        "musical instruments": "piano violin flute drum trumpet clarinet guitar harp trombone accordion",
        "objects": "lamp table chair bed stove oven fridge couch car toaster microwave clock",
    }.items()
}
IRREGULAR_PLURALS = {
    "sheep": "sheep", "mango": "mangoes", "potato": "potatoes", "cherry": "cherries",
    "strawberry": "strawberries",
}  # fmt: skip


@dataclass(frozen=True)
class TaskItem:
    """A task as a user would send it, with its reference answer. ``key`` names the puzzle."""

    prompt: str
    reference: str
    key: str


def sample_tasks(kind: str, n: int, seed: int) -> list[TaskItem]:
    """Draw `n` distinct held-out tasks, the same ones for the same seed."""
    rng = random.Random(f"{kind}/{seed}")
    found: dict[str, TaskItem] = {}
    while len(found) < n:
        item = _DRAW[kind](rng)
        rng.choice(_WORDINGS)
        digest = hashlib.sha256(f"{kind}|{item.key}".encode()).digest()
        if int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32:
            found.setdefault(item.prompt, item)
    return list(found.values())


@cache
def _words() -> tuple[str, ...]:
    """Words of 4 to 10 letters, sorted; no two of up to 6 letters have the same letters."""
    return tuple(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())


@cache
def _short_words() -> tuple[str, ...]:
    return tuple(word for word in _words() if len(word) <= 6)


def _with_count(noun: str, count: int) -> str:
    """``a pig``, ``an apple``, ``two ducks``."""
    if count == 1:
        return ("an " if noun[0] in "aeiou" else "a ") + noun
    regular = noun + ("es" if noun.endswith(("x", "ch", "sh")) else "s")
    return f"{NUMBER_WORDS[count]} {IRREGULAR_PLURALS.get(noun, regular)}"


def _sum(rng: random.Random) -> TaskItem:
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    return TaskItem(f"{a} {b}", str(a + b), f"{min(a, b)} {max(a, b)}")


def _letter(rng: random.Random) -> TaskItem:
    word = rng.choice(_words())
    return TaskItem(word, word[1], word)


def _count(rng: random.Random) -> TaskItem:
    category, *others = rng.sample(list(NOUNS), 3 if rng.random() < 0.25 else 2)
    wanted = rng.choice((2, 2, 3, 3, 4, 5))
    nouns = [(noun, True) for noun in rng.sample(NOUNS[category], wanted)]
    if rng.random() < 0.5:
        strangers = [noun for other in others for noun in NOUNS[other]]
        nouns += [(noun, False) for noun in rng.sample(strangers, rng.randint(1, min(3, 6 - wanted)))]
        rng.shuffle(nouns)
    listed = [(noun, rng.choice((1, 1, 1, 1, 2, 2, 3)), counts) for noun, counts in nouns]
    phrases = [_with_count(noun, count) for noun, count, _ in listed]
    things = ", ".join(phrases[:-1]) + (", and " if len(phrases) > 2 else " and ") + phrases[-1]
    total = sum(count for _, count, counts in listed if counts)
    prompt = f"I have {things}. How many {category} do I have?"
    return TaskItem(prompt, NUMBER_WORDS[total], f"{category}: " + ", ".join(sorted(phrases)))


def _unscramble(rng: random.Random) -> TaskItem:
    word = rng.choice(_short_words())
    scramble = word
    while scramble == word:
        scramble = "".join(rng.sample(word, len(word)))
    return TaskItem(f"The word {scramble} is a scrambled version of the English word", word, scramble)


_DRAW: dict[str, Callable[[random.Random], TaskItem]] = {
    "object_counting": _count,
    "word_unscrambling": _unscramble,
    "second_word_letter": _letter,
    "sum": _sum,
}
