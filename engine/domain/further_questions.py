"""Questions that are asked beside the one that decides: each for a side, for two marks, or for a text.

They are written one to a line. ``(1-5)`` at the end of a line asks for a mark of each response, ``(text)``
for a text; otherwise one response is chosen, or neither.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine.domain.errors import SpecError

MOST, LONGEST, LONGEST_TEXT = 5, 150, 1000
SIDES = ("left", "tie", "right")
MARKS = (1, 2, 3, 4, 5)
_KIND = re.compile(r"\s*\((1\s*[-–]\s*5|text)\)$", re.IGNORECASE)


class Kind(StrEnum):
    """What is answered."""

    SIDE = "side"
    MARKS = "marks"
    TEXT = "text"


@dataclass(frozen=True)
class FurtherQuestion:
    """A question that decides nothing."""

    text: str
    kind: Kind

    def reads(self, answer: Any) -> bool:
        """True if this can be an answer to it: a side, the two marks of left and right, or a text."""
        if self.kind == Kind.SIDE:
            return answer in SIDES
        if self.kind == Kind.TEXT:
            return isinstance(answer, str) and 0 < len(answer) <= LONGEST_TEXT
        return (
            isinstance(answer, list)
            and len(answer) == 2
            and all(type(mark) is int and mark in MARKS for mark in answer)
        )


def read_questions(given: str) -> tuple[FurtherQuestion, ...]:
    """The questions of a text with one on each line.

    Raises
    ------
    SpecError
        They are too many or too long, or one is there twice.
    """
    found = []
    for line in filter(None, map(str.strip, given.splitlines())):
        said = _KIND.search(line)
        kind = Kind.SIDE if said is None else Kind.TEXT if said[1].lower() == "text" else Kind.MARKS
        found.append(FurtherQuestion(_KIND.sub("", line), kind))
    if len(found) > MOST:
        raise SpecError(f"These are {len(found)} further questions; ask at most {MOST}.")
    for question in found:
        if not 0 < len(question.text) <= LONGEST:
            raise SpecError(
                f"A further question has 1 to {LONGEST} characters; change “{question.text[:40]}…”."
            )
    if len({question.text for question in found}) < len(found):
        raise SpecError("A further question is there twice. Leave one out.")
    return tuple(found)


def stored(questions: tuple[FurtherQuestion, ...], answers: Mapping[str, Any]) -> str:
    """The answers by question as JSON, as a judgment keeps them.

    Raises
    ------
    SpecError
        There is no such question, or this is no answer to it.
    """
    by_text = {question.text: question for question in questions}
    for text, answer in answers.items():
        if (question := by_text.get(text)) is None:
            raise SpecError(f"There is no further question “{text[:LONGEST]}”.")
        if not question.reads(answer):
            how = {
                Kind.SIDE: f"one of {', '.join(SIDES)}",
                Kind.MARKS: "two marks from 1 to 5, of the left and the right response",
                Kind.TEXT: f"a text of at most {LONGEST_TEXT:,} characters",
            }
            raise SpecError(f"The answer to “{text}” must be {how[question.kind]}.")
    return json.dumps(dict(answers), ensure_ascii=False)
