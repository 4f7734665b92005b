"""Possible slips in tasks that are plain lines, each with its count. Nothing is changed for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from engine.core.wording import number

_SHOWN = 40
# A tag, a comment, or an element with its text.
_OF_HTML = re.compile(r"<!--.*-->|</?[a-zA-Z][\w-]*(?:\s[^<>]*)?/?>|<([a-zA-Z][\w-]*)(?:\s[^<>]*)?>.*</\1>")
# Items of a list, headings, rules and fences. Behind the mark of a copied item stands a tab.
_OF_MARKDOWN = re.compile(r"(?:[-*+•–]|\d{1,4}[.)]|#{1,6})(?: .*)?|-{3,}|={3,}|\*{3,}|`{3}\w*|~{3,}")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\",?|'[^']*',?|“[^“”]*”,?|„[^„“”]*[“”],?|«[^«»]*»,?")
_ANSWER = re.compile(
    r"(?:A|Answer|Antwort|Réponse|Respuesta|Expected|Solution|Response|Assistant)\s?\d{0,4}[:.)]\s?\S.*",
    re.IGNORECASE,
)
# A task and what answers it; without a space a semicolon or | parts columns, which `slips.heading` tells.
_ANSWERED = re.compile(r"\S(?:\s\|\s|\s*(?:=>|->|→)\s*)\S|\?(?:\s*=\s*|;\s+)\S")


def warnings(lines: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Warnings of lines, each with its number in the text: none of them may be meant as a task as it is."""
    texts = [text for _, text in lines]
    for pattern, what in (
        (_OF_HTML, "written in HTML"),
        (_OF_MARKDOWN, "with a mark of a list or of Markdown"),
        (_QUOTED, "in quotation marks"),
    ):
        if found := [text for text in texts if pattern.fullmatch(text)]:
            yield (
                f"{number(len(found), 'task')} {what}, such as {found[0][:_SHOWN]!r}. It is shown as it is. "
                "If that is not meant, write the tasks without."
            )
    yield from _answers(texts)
    if n_blocks := _blocks([n for n, _ in lines]):
        yield (
            f"{number(n_blocks, 'block')} of several lines between empty ones. Each line is one task now. "
            "Where a block is one task, write the tasks as JSON Lines."
        )


def _answers(texts: Sequence[str]) -> Iterator[str]:
    if found := [text for text in texts if _ANSWER.fullmatch(text)]:
        yield (
            f"{number(len(found), 'task')} like an answer, such as {found[0][:_SHOWN]!r}. Put an answer "
            "behind a tab on the line of its task."
        )
    found = [text for text in texts if _ANSWERED.search(text)]
    if len(texts) > 1 and 2 * len(found) > len(texts):
        yield (
            f"{len(found):,} of {number(len(texts), 'line')} may have an answer behind the task, such as "
            f"{found[0][:_SHOWN]!r}. It would be shown with the task. Put a tab between the two."
        )


def _blocks(numbers: Sequence[int]) -> int:
    """The number of runs of lines without an empty one in between, of several lines each; 0 if there is only
    one run.
    """
    starts = [0, *(place for place, (one, other) in enumerate(pairwise(numbers), 1) if other > one + 1)]
    sizes = [end - start for start, end in pairwise([*starts, len(numbers)])]
    return sum(size > 1 for size in sizes) if len(sizes) > 1 else 0
