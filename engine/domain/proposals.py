"""Proposals of a writer: the material that it gets, and the reasons to refuse what it gives."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.domain.texts import is_blank

# A limit on the length of children, in characters: so many times the original's, and never less.
_TIMES_LONGER, _LEAST_LIMIT = 2, 600
# Copies may differ in one word of so many.
_WORDS_PER_CHANGE = 50
# A text names a task if it holds the whole of it, unless that is a phrase of everyday language, or so many of
# its words in a row.
_FEWEST_WORDS, _RUN = 4, 8
# How many tasks a language model compares a proposal with its parent on, and how much of them a proposal must
# win that people are shown: one that is as good loses more in 4% of cases, if a fifth are ties.
SCREENING_TASKS, _LEAST_SCREENED = 5, 1.0
_WORD = re.compile(r"\w+")
_TO_THE_JUDGE = re.compile(
    r"\b(?:choose|prefer|pick|select|vote for|favou?r)\s+(?:\w+\s+){0,2}?(?:this|your|our|my)\s+"
    r"(?:response|answer|reply|text|one|version)\b"
    r"|\b(?:reader|judge|annotator|rater|evaluator|grader|voter)s?\b[^.!?\n]{0,60}"
    r"\b(?:choose|prefer|pick|select|vote|favou?r|rank)s?\b[^.!?\n]{0,40}\b(?:this|it|your?|answer|response)\b"
    r"|\bthe other (?:response|answer|reply)\b"
    r"|\b(?:wähl|bevorzug)\w*\b[^.!?\n]{0,40}\bdies\w* (?:antwort|fassung|text)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Compared:
    """One comparison of the champion on a task that is open to the writer.

    ``outcome``: 1 the champion's answer was preferred, 0 the other one, 0.5 a tie; between them where several
    people judged it. ``shown_as``: the letter over the champion's answer, by which comments may name it.
    """

    task: str
    champion: str
    other: str
    outcome: float
    comments: Sequence[str] = ()
    shown_as: str = "A"


@dataclass(frozen=True)
class Tried:
    """An earlier proposal and its end, in a sentence."""

    text: str
    ended: str


@dataclass(frozen=True)
class Brief:
    """The material for a writer.

    ``effects``: sentences on levels of the experiment. ``longest``: the most characters of a text.
    """

    question: str
    guidelines: str
    factor: str
    kind: str
    champion: str
    longest: int
    compared: Sequence[Compared] = ()
    effects: Sequence[str] = ()
    tried: Sequence[Tried] = ()
    wish: str = ""


def longest_for(original: str) -> int:
    """The most characters of a text that may take the original's place."""
    return max(_LEAST_LIMIT, _TIMES_LONGER * len(original))


def is_worse(screened: Sequence[float]) -> bool:
    """True if a language model has found a proposal worse than its parent; it may have said nothing."""
    # On fewer tasks chance alone would refuse many that are as good.
    return len(screened) == SCREENING_TASKS and sum(screened) < _LEAST_SCREENED


def fault_of(text: str, *, parent: str, others: Iterable[str], longest: int, judged: Collection[str]) -> str:
    """The reason to refuse a proposal; empty if there is none.

    Parameters
    ----------
    others
        Texts that are in the race, or were.
    judged
        The tasks that judge. What the parent says already may stay.
    """
    return next(_faults(text, parent, others, longest, judged), "")


def _faults(
    text: str, parent: str, others: Iterable[str], longest: int, judged: Collection[str]
) -> Iterator[str]:
    if is_blank(text):
        yield "The text is empty."
    if len(text) > longest:
        yield f"The text has {len(text):,} characters, more than the limit of {longest:,}."
    words, of_parent = _words(text), _words(parent)
    if _is_copy(words, of_parent):
        yield "The text is a copy of its parent, or nearly."
    if any(_is_copy(words, _words(other)) for other in others):
        yield "The text is a copy of one that was tried already, or nearly."
    if (found := _TO_THE_JUDGE.search(text)) and found[0].casefold() not in parent.casefold():
        yield f"The text speaks to the person who judges: “{found[0]}”."
    if named := _named(words, of_parent, judged):
        yield f"The text names a task that judges: “{named}”."


def is_answer(text: str, answers: Iterable[str]) -> bool:
    """True if a text is one of these answers, or a part of one: weak writers copy them."""
    words = _words(text)
    said = f" {' '.join(words)} "
    return len(words) >= _RUN and any(said in f" {' '.join(_words(each))} " for each in answers)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _is_copy(words: Sequence[str], others: Sequence[str]) -> bool:
    if list(words) == list(others):
        return True
    most = max(len(words), len(others)) // _WORDS_PER_CHANGE
    if not most or abs(len(words) - len(others)) > most:
        return False
    changes = difflib.SequenceMatcher(None, words, others, autojunk=False).get_opcodes()
    n_changed = (max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in changes if tag != "equal")
    return sum(n_changed) <= most


def _named(words: Sequence[str], parent: Sequence[str], judged: Collection[str]) -> str:
    """The words of a judging task in this text that its parent has not; empty if there are none."""
    said, said_before = (f" {' '.join(each)} " for each in (words, parent))
    runs = set(_runs(words)) - set(_runs(parent))
    for task in judged:
        of_task = _words(task)
        whole = " ".join(of_task)
        if len(of_task) >= _FEWEST_WORDS and f" {whole} " in said and f" {whole} " not in said_before:
            return whole
        if runs and (shared := next((run for run in _runs(of_task) if run in runs), None)):
            return " ".join(shared)
    return ""


def _runs(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(_RUN)), strict=False)
