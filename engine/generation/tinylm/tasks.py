"""Puzzles of the paper's four tasks, split for good into a training part and a held-out part.

The split hashes what a puzzle asks, not how it is worded: for a sum its unordered pair of numbers, for
counting its unordered list of things. So no rewording carries a held-out puzzle into the training text.
Nothing here needs more than the standard library.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.domain.texts import NUMBER_WORDS
from engine.generation.tinylm.words import lexicon, words

HELD_OUT_SHARE = 0.12
REPEATS_BEFORE_GIVING_UP = 2000

MOST_THINGS = len(NUMBER_WORDS) - 1

NOUNS = {
    "animals": [
        "pig",
        "duck",
        "dog",
        "cat",
        "cow",
        "horse",
        "sheep",
        "goat",
        "hen",
        "fox",
        "bear",
        "rabbit",
        "snake",
        "frog",
        "donkey",
        "chicken",
    ],
    "fruits": [
        "apple",
        "banana",
        "orange",
        "peach",
        "plum",
        "grape",
        "pear",
        "lemon",
        "mango",
        "cherry",
        "nectarine",
        "strawberry",
    ],
    "vegetables": [
        "carrot",
        "onion",
        "potato",
        "cabbage",
        "cauliflower",
        "yam",
        "pepper",
        "radish",
        "cucumber",
        "turnip",
    ],
    "musical instruments": [
        "piano",
        "violin",
        "flute",
        "drum",
        "trumpet",
        "clarinet",
        "guitar",
        "harp",
        "trombone",
        "accordion",
    ],
    "objects": [
        "lamp",
        "table",
        "chair",
        "bed",
        "stove",
        "oven",
        "fridge",
        "couch",
        "car",
        "toaster",
        "microwave",
        "clock",
    ],
}
IRREGULAR_PLURALS = {"sheep": "sheep", "mango": "mangoes", "potato": "potatoes", "cherry": "cherries"}
IRREGULAR_PLURALS |= {"strawberry": "strawberries"}

ASK_SUM = ("{a} {b}",)
ASK_SUM_OTHERWISE = (
    "{a} + {b}",
    "{a}+{b}",
    "Add {a} and {b}.",
    "What is {a} plus {b}?",
    "What is {a} + {b}?",
    "Sum: {a} {b}",
    "What is the sum of {a} and {b}?",
)
ASK_LETTER = ("{word}",)
ASK_LETTER_OTHERWISE = (
    "What is the second letter of {word}?",
    'What is the second letter of the word "{word}"?',
    "Second letter: {word}",
    "Second letter of {word}",
    "Give the second letter of the word {word}.",
)
ASK_COUNT = ("I have {things}. How many {category} do I have?",)
ASK_COUNT_OTHERWISE = (
    "How many {category} do I have? I have {things}.",
    "There are {things}. How many {category} are there?",
    "Count the {category}: {things}",
    "I see {things}. How many {category} do I see?",
)
ASK_WORD = ("The word {scramble} is a scrambled version of the English word",)
ASK_WORD_OTHERWISE = (
    "The word {scramble} is a scrambled version of the English word what?",
    "Unscramble: {scramble}",
    "Unscramble the word {scramble}.",
    "Unscramble the letters {scramble}",
    "What word can you make from {scramble}?",
)


@dataclass(frozen=True, slots=True)
class TaskItem:
    """One task as a user would send it, with its reference answer."""

    prompt: str
    reference: str
    kind: str


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A task item with what a worked solution needs to know.

    ``key`` names what is asked, free of wording. ``facts`` is, by kind: the two numbers; the word; the counts
    of the things listed with whether each is of the category; the scramble.
    """

    item: TaskItem
    key: str
    facts: tuple[Any, ...]


def is_held_out(kind: str, key: str) -> bool:
    """True if a puzzle belongs to the part that is never trained on."""
    digest = hashlib.sha256(f"{kind}|{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32


def plural(noun: str) -> str:
    """Plural of a noun from :data:`NOUNS`."""
    if noun in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun]
    return noun + ("es" if noun.endswith(("x", "ch", "sh")) else "s")


def with_count(noun: str, count: int) -> str:
    """``a pig``, ``an apple``, ``two ducks``."""
    if count == 1:
        return ("an " if noun[0] in "aeiou" else "a ") + noun
    return f"{NUMBER_WORDS[count]} {plural(noun)}"


def _draw_sum(rng: random.Random, wordings: tuple[str, ...]) -> Puzzle:
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    item = TaskItem(rng.choice(wordings).format(a=a, b=b), str(a + b), "sum")
    return Puzzle(item, f"{min(a, b)} {max(a, b)}", (a, b))


def _draw_letter(rng: random.Random, wordings: tuple[str, ...]) -> Puzzle:
    word = rng.choice(words())
    item = TaskItem(rng.choice(wordings).format(word=word), word[1], "second_word_letter")
    return Puzzle(item, word, (word,))


def _draw_count(rng: random.Random, wordings: tuple[str, ...]) -> Puzzle:
    category, *others = rng.sample(list(NOUNS), 3 if rng.random() < 0.25 else 2)
    wanted = rng.choice((2, 2, 3, 3, 4, 5))
    nouns = [(noun, True) for noun in rng.sample(NOUNS[category], wanted)]
    if rng.random() < 0.5:
        strangers = [noun for other in others for noun in NOUNS[other]]
        nouns += [(noun, False) for noun in rng.sample(strangers, rng.randint(1, min(3, 6 - wanted)))]
        rng.shuffle(nouns)
    listed = [(noun, rng.choice((1, 1, 1, 1, 2, 2, 3)), counts) for noun, counts in nouns]
    phrases = [with_count(noun, count) for noun, count, _ in listed]
    things = ", ".join(phrases[:-1]) + (", and " if len(phrases) > 2 else " and ") + phrases[-1]
    total = sum(count for _, count, counts in listed if counts)
    prompt = rng.choice(wordings).format(things=things, category=category)
    key = f"{category}: " + ", ".join(sorted(phrases))
    item = TaskItem(prompt, NUMBER_WORDS[total], "object_counting")
    return Puzzle(item, key, tuple((count, counts) for _, count, counts in listed))


def _draw_word(rng: random.Random, wordings: tuple[str, ...]) -> Puzzle:
    word = rng.choice(lexicon())
    scramble = word
    while scramble == word:
        scramble = "".join(rng.sample(word, len(word)))
    item = TaskItem(rng.choice(wordings).format(scramble=scramble), word, "word_unscrambling")
    return Puzzle(item, scramble, (scramble,))


_DRAW: dict[
    str, tuple[Callable[[random.Random, tuple[str, ...]], Puzzle], tuple[str, ...], tuple[str, ...]]
] = {
    "object_counting": (_draw_count, ASK_COUNT, ASK_COUNT_OTHERWISE),
    "word_unscrambling": (_draw_word, ASK_WORD, ASK_WORD_OTHERWISE),
    "second_word_letter": (_draw_letter, ASK_LETTER, ASK_LETTER_OTHERWISE),
    "sum": (_draw_sum, ASK_SUM, ASK_SUM_OTHERWISE),
}
KINDS = tuple(_DRAW)


def draw_puzzle(kind: str, rng: random.Random, *, held_out: bool, reworded: bool = False) -> Puzzle:
    """Draw one puzzle from the training or the held-out part.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`.
    held_out : bool
        The part to draw from.
    reworded : bool
        Use one of the natural variants instead of the paper's own wording.
    """
    if kind not in _DRAW:
        raise ValueError(f"unknown kind of task {kind!r}: use one of {', '.join(KINDS)}")
    draw, as_in_paper, otherwise = _DRAW[kind]
    while True:
        puzzle = draw(rng, otherwise if reworded else as_in_paper)
        if is_held_out(kind, puzzle.key) == held_out:
            return puzzle


def sample_tasks(kind: str, n: int, seed: int) -> list[TaskItem]:
    """Draw ``n`` distinct held-out tasks in the paper's wording, the same ones for the same seed.

    Raises
    ------
    ValueError
        ``kind`` is unknown, or there are not ``n`` distinct tasks of that kind.
    """
    rng = random.Random(f"{kind}/{seed}")  # noqa: S311
    found: dict[str, TaskItem] = {}
    repeats = 0
    while len(found) < n:
        item = draw_puzzle(kind, rng, held_out=True).item
        repeats = repeats + 1 if item.prompt in found else 0
        if repeats == REPEATS_BEFORE_GIVING_UP:
            raise ValueError(f"there are not {n} distinct held-out tasks of kind {kind!r}: ask for fewer")
        found.setdefault(item.prompt, item)
    return list(found.values())
