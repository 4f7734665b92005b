"""The rule judge of the paper's real experiments, for tasks with a reference answer.

A correct response beats an incorrect one. Of two correct ones, either the one that shows its steps or the
more concise one is preferred, as the experiment says. Otherwise a fair coin decides.
[LLM-PO, section Real Experiments]
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.domain.text_checks import TextCheck, all_hold
from engine.domain.texts import NUMBER_WORDS

_DIGITS = {word: str(value) for value, word in enumerate(NUMBER_WORDS)}
_MARKER = re.compile(r"\banswer\b(?:\s+is)?\s*[:=]?\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
# A number keeps its minus sign, be it a hyphen or the real one.
_WORD = re.compile(r"(?:(?<!\w)[-−](?=\d))?\w+(?:[.,'-]\w+)*")
_MOST_WORDS_IN_A_BARE_ANSWER = 3


@dataclass(frozen=True)
class Verdict:
    """The preferred side and the reason."""

    choice: str
    reason: str


def judge(
    *,
    left: str,
    right: str,
    reference: str,
    prefer: str,
    seed: int,
    checks: Sequence[TextCheck] = (),
) -> Verdict:
    """Compare two responses with the reference answer, or with the checks if there are any.

    Parameters
    ----------
    checks
        A correct response passes all of them. They read its whole text, and not its final answer.
    prefer : {"steps", "concise"}
        Rule for two correct responses.
    seed : int
        Seed of the fair coin: the same comparison is judged the same way again.
    """
    left_right, right_right = (
        all_hold(checks, text) if checks else is_correct(text, reference) for text in (left, right)
    )
    if left_right != right_right:
        return Verdict("left" if left_right else "right", "Only this response is correct.")
    if not left_right:
        return Verdict(_coin(seed), "Both are wrong: a fair coin.")
    if prefer == "steps" and shows_steps(left) != shows_steps(right):
        return Verdict(
            "left" if shows_steps(left) else "right", "Both are correct; this one shows its steps."
        )
    if len(left.strip()) != len(right.strip()):
        shorter = "left" if len(left.strip()) < len(right.strip()) else "right"
        return Verdict(shorter, "Both are correct; this one is more concise.")
    return Verdict(_coin(seed), "Both are correct and equally long: a fair coin.")


def is_correct(text: str, reference: str) -> bool:
    """True if the response's final answer is the reference, up to case, punctuation and number words.

    A short sentence ("There are 3.") is correct if its last word is.
    """
    answer, right = _normal(final_answer(text)), _normal(reference)
    return bool(right) and (answer == right or answer.rpartition(" ")[2] == right)


def final_answer(text: str) -> str:
    """The final answer in a response.

    The text after its last "answer:" or "the answer is". Else its first sentence if that is a bare answer (up
    to three words); else the last word of that sentence.
    """
    text = unicodedata.normalize("NFKC", text).strip()
    marked = list(_MARKER.finditer(text))
    if marked and (after := text[marked[-1].end() :].strip()):
        text = after
    sentence = _SENTENCE_END.split(text, maxsplit=1)[0]
    words = _WORD.findall(sentence)
    if not words:
        return ""
    return " ".join(words) if len(words) <= _MOST_WORDS_IN_A_BARE_ANSWER else words[-1]


def shows_steps(text: str) -> bool:
    """True if a response says more than its answer."""
    return (
        len(_WORD.findall(text)) > len(_WORD.findall(final_answer(text))) + _MOST_WORDS_IN_A_BARE_ANSWER + 1
    )


def _normal(answer: str) -> str:
    words = (
        word.replace("−", "-").casefold() for word in _WORD.findall(unicodedata.normalize("NFKC", answer))
    )
    return " ".join(_DIGITS.get(word, word) for word in words)


def _coin(seed: int) -> str:
    return "left" if np.random.default_rng([seed, 2]).integers(2) else "right"
