"""Responses that name their own prompt or model would tell an annotator which policy wrote them."""

import re
from collections.abc import Iterable

# A shorter instruction ("Be kind.") is ordinary language, which a response may contain by chance.
_SHORTEST_TELLING = 15
_SENTENCE = re.compile(r"[^.!?\n]+")
_WORD = re.compile(r"\w+")


def find_leak(text: str, *, instructions: Iterable[str], model: str) -> str:
    """The sentence of its instructions, or the name of its model, that a response reveals; else empty.

    Case, punctuation and spacing are ignored.
    """
    said = f" {_plain(text)} "
    for instruction in instructions:
        for sentence in _SENTENCE.findall(instruction):
            plain = _plain(sentence)
            if len(plain) >= _SHORTEST_TELLING and f" {plain} " in said:
                return f"its instructions: {sentence.strip()}"
    name = _plain(model.rsplit("/", 1)[-1])
    if name and f" {name} " in said:
        return f"its model: {model}"
    return ""


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
