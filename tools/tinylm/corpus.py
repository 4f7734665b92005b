"""The training text: conversations in which authors of different care solve the puzzles.

Careful and ordinary authors' solutions are right. A share of the hasty authors' solutions contain the slips
that people make, carried through to their answer: a dropped carry, a miscount, swapped letters, the wrong
letter. That is how system prompts come to matter to the model: it has learned who writes like what.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

from engine.domain.texts import NUMBER_WORDS
from engine.generation.tinylm.conversation import REFUSALS
from engine.generation.tinylm.tasks import MOST_THINGS, NOUNS, Puzzle, draw_puzzle, is_held_out
from engine.generation.tinylm.words import words
from tools.tinylm import phrases

HASTY_SLIP_SHARE = 0.6
HASTY_OPENING = "Guess: "
OFF_TASK_SHARE = 0.08
KIND_SHARES = {"sum": 0.28, "object_counting": 0.38, "word_unscrambling": 0.26, "second_word_letter": 0.08}
CARE_SHARES = {"careful": 0.35, "plain": 0.25, "hasty": 0.4}


@dataclass(frozen=True, slots=True)
class Conversation:
    """One training example; ``system`` may be empty."""

    system: str
    user: str
    reply: str


@dataclass(frozen=True, slots=True)
class Solution:
    """An author's answer, right or wrong, and its derivation."""

    answer: str
    work: str


def solve_sum(puzzle: Puzzle, slip: random.Random | None) -> Solution:
    """Add column by column; a slip drops or invents the carry, or is off by one in a column."""
    a, b = puzzle.facts
    ones, tens = a % 10 + b % 10, a // 10 + b // 10
    carry = ones // 10
    if slip:
        match slip.choice(("carry", "carry", "ones", "tens")):
            case "carry":
                carry = 1 - carry
            case "ones":
                ones = max(0, ones + slip.choice((-1, 1)))
                carry = ones // 10
            case "tens":
                tens = max(0, tens + slip.choice((-1, 1)))
    left, right = a // 10, b // 10
    total = tens + carry
    work = f"{a % 10}+{b % 10}={ones}, carry {carry}. {left}+{right}+{carry}={total}."
    return Solution(str(10 * total + ones % 10), work)


def solve_letter(puzzle: Puzzle, slip: random.Random | None) -> Solution:
    """Spell the word and point at a letter; a slip points at a neighbour."""
    (word,) = puzzle.facts
    letter = word[slip.choice((0, 2, 2)) if slip else 1]
    return Solution(letter, f"{' '.join(word)}. First {word[0]}, second {letter}.")


def solve_count(puzzle: Puzzle, slip: random.Random | None) -> Solution:
    """Add up the things that belong; a slip skips one, takes one twice or takes a stranger in."""
    counts = [count for count, belongs in puzzle.facts if belongs]
    if slip:
        strangers = [count for count, belongs in puzzle.facts if not belongs]
        match slip.choice(("skip", "miscount", "miscount", "stranger")):
            case "stranger" if strangers:
                counts.insert(slip.randrange(len(counts) + 1), slip.choice(strangers))
            case "skip" if len(counts) > 1:
                counts.pop(slip.randrange(len(counts)))
            case _:
                at = slip.randrange(len(counts))
                counts[at] = max(1, counts[at] + slip.choice((-1, 1))) if counts[at] > 1 else 2
    total, sums = counts[0], []
    for count in counts[1:]:
        sums.append(f"{total}+{count}={total + count}")
        total += count
    return Solution(NUMBER_WORDS[min(total, MOST_THINGS)], (", ".join(sums) or str(total)) + ".")


def solve_word(puzzle: Puzzle, slip: random.Random | None) -> Solution:
    """Sort the letters and recognise the word; a slip swaps two neighbouring letters of it."""
    (scramble,) = puzzle.facts
    answer = puzzle.item.reference
    if slip:
        places = [i for i in range(len(answer) - 1) if answer[i] != answer[i + 1]]
        at = slip.choice(places)
        answer = answer[:at] + answer[at + 1] + answer[at] + answer[at + 2 :]
    return Solution(answer, f"The sorted letters are {' '.join(sorted(scramble))}.")


SOLVERS = {
    "sum": solve_sum,
    "second_word_letter": solve_letter,
    "object_counting": solve_count,
    "word_unscrambling": solve_word,
}


def write_reply(solution: Solution, strategy: str, *, polite: bool, hasty: bool) -> str:
    """Put a solution into the words of a strategy (``direct``, ``steps`` or ``after``) and of an author.

    Hasty authors say that they guess. The model has to tell from the system prompt whether to begin so, and
    learns to slip after it. From the slips alone it did not learn who slips in the time it has.
    """
    answer, work = solution.answer, solution.work
    opening = HASTY_OPENING if hasty else ""
    stated = f"The answer is {answer}." if polite else answer
    if strategy == "direct":
        return opening + stated
    if strategy == "steps":
        return f"{opening}{work} " + (f"So the answer is {answer}." if polite else f"Answer: {answer}")
    return opening + (f"{stated} Here is why: {work}" if polite else f"{stated}. Reason: {work}")


def _made_up_word(rng: random.Random) -> str:
    consonants, vowels = "bcdfghklmnprstvw", "aeiou"
    start = rng.randint(0, 1)
    return "".join(rng.choice((consonants, vowels)[(start + i) % 2]) for i in range(rng.randint(3, 9)))


def _draw_letter_puzzle_beyond_the_list(rng: random.Random, puzzle: Puzzle) -> Puzzle:
    """Swap the word for a made-up one or for a noun that is one token of the vocabulary.

    The model learns from made-up words that any spelling has a second letter. It learns from the nouns how
    those tokens are spelled, which nothing else tells it.
    """
    noun = rng.choice([noun for nouns in NOUNS.values() for noun in nouns])
    word = _made_up_word(rng) if rng.random() < 0.6 else noun
    if is_held_out("second_word_letter", word):
        return puzzle
    item = puzzle.item
    (old,) = puzzle.facts
    prompt = (
        item.prompt.removesuffix(old) + word if item.prompt.endswith(old) else item.prompt.replace(old, word)
    )
    return Puzzle(type(item)(prompt, word[1], item.kind), word, (word,))


def draw_training_puzzle(rng: random.Random) -> Puzzle:
    """Draw a puzzle of the training part, half of them in the paper's wording."""
    kind = rng.choices(list(KIND_SHARES), list(KIND_SHARES.values()))[0]
    puzzle = draw_puzzle(kind, rng, held_out=False, reworded=rng.random() < 0.5)
    if kind == "second_word_letter" and rng.random() < 0.5:
        return _draw_letter_puzzle_beyond_the_list(rng, puzzle)
    return puzzle


def write_system(rng: random.Random, care: str, strategy_sentence: str, *, polite: bool) -> str:
    """Compose a system prompt: who writes, in what style, how to answer, and rules that change nothing."""
    sentences = []
    if care != "plain" or rng.random() < 0.5:
        sentences += phrases.write_persona(rng, care)
    if polite:
        sentences.append(rng.choice(phrases.POLITE))
    if strategy_sentence:
        sentences.insert(rng.randint(0, len(sentences)), strategy_sentence)
    if rng.random() < 0.05:
        sentences.append(" ".join(rng.choices(words(), k=rng.randint(2, 4))).capitalize() + ".")
    system = " ".join(sentences)
    if rng.random() < 0.15:
        rules = " ".join(rng.sample(phrases.GUARDRAILS, rng.randint(1, 2)))
        system = system + rng.choice((" ", "\n\n")) + rules
    return system.strip()


def _write_noise(rng: random.Random) -> str:
    alphabets = (
        string.punctuation + string.ascii_letters + " ",
        "àéîöüßçñłøåж яшюд",
        "日本語中文字の한국어😀🎉→∑",
    )
    alphabet = rng.choice(alphabets)
    return rng.choice(string.punctuation + "é語") + "".join(rng.choices(alphabet, k=rng.randint(1, 12)))


def _write_off_task(rng: random.Random) -> str:
    if rng.random() < 0.08:
        return _write_noise(rng)
    text = rng.choice(phrases.OFF_TASK)
    while "{w}" in text:
        text = text.replace("{w}", rng.choice(words()), 1)
    while "{n}" in text:
        text = text.replace("{n}", str(rng.randint(0, 99)), 1)
    return text if rng.random() < 0.8 else text.lower().rstrip(".?!")


def draw_conversation(rng: random.Random) -> Conversation:
    """Draw one training example."""
    care = rng.choices(list(CARE_SHARES), list(CARE_SHARES.values()))[0]
    polite = rng.random() < 0.25
    strategy = rng.choice(list(phrases.STRATEGIES))
    sentence = rng.choice(phrases.STRATEGIES[strategy])
    if strategy == "direct" and rng.random() < 0.4:
        sentence = ""
    in_user_message = rng.random() < 0.7
    system = write_system(rng, care, "" if in_user_message else sentence, polite=polite)

    if rng.random() < OFF_TASK_SHARE:
        user, reply = _write_off_task(rng), rng.choice(REFUSALS)
    else:
        puzzle = draw_training_puzzle(rng)
        slip = rng if care == "hasty" and rng.random() < HASTY_SLIP_SHARE else None
        user = puzzle.item.prompt
        reply = write_reply(
            SOLVERS[puzzle.item.kind](puzzle, slip), strategy, polite=polite, hasty=care == "hasty"
        )
    if in_user_message and sentence:
        user = f"{user}\n\n{sentence}"
    return Conversation(system, user, reply)
