"""The answer of a vote, in the words of every format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.domain import limits
from engine.importing.rows import ImportingError, NoColumnError
from engine.importing.slips import is_nothing
from engine.importing.votes.columns import WINNER, first_of, text_in, unmarked
from engine.importing.votes.vote import Winner

_THINGS = ("", "policy", "model", "response", "answer", "option", "output", "completion", "text", "assistant")
_NAMED = {
    f"{thing}{word}": (Winner.A, Winner.B)[place]
    for thing in _THINGS
    for words in (("a", "b"), ("1", "2"))
    for place, word in enumerate(words)
}
NEITHER = dict.fromkeys(
    ("tie", "tied", "draw", "equal", "equallygood", "bothgood", "same", "tieinconsistent"), Winner.TIE
) | (dict.fromkeys(("bothbad", "tiebothbad", "bothbadtie", "neither"), Winner.BOTH_BAD))
_ON_SIDE = {f"{thing}{side}": side == "left" for thing in _THINGS for side in ("left", "right")} | {
    "a": True, "b": False,
}  # fmt: skip
# AlpacaEval's, whose 1 and 2 are the sides.
_MIDDLE = "1.5"
# A sign or a doubt makes it another answer: -1, ≠A, "B?".
_MARKED = re.compile(r"\s*[-+−±.,<>=≠≤≥!¬~%/].*|.*\?\s*", re.DOTALL)
KAGGLE = {"winnermodela": Winner.A, "winnermodelb": Winner.B, "winnertie": Winner.TIE}


def said_in(value: Any) -> str | None:
    """The answer that a text gives, in one spelling; ``None`` where it gives none."""
    key = _word(value) if isinstance(value, str) else ""
    return _NAMED.get(key) or NEITHER.get(key) or (key if key in {"left", "right"} else None)


def is_answer(value: str) -> bool:
    """True if the text names one of two responses, or neither."""
    key = _word(value)
    return key in _NAMED or key in NEITHER or key in {"left", "right"}


def _word(text: str) -> str:
    """The text without case and marks; empty where a mark makes another answer of it."""
    return "" if _MARKED.fullmatch(text) else unmarked(text)


def side_of_a(place: str, fields: Mapping[str, Any]) -> bool | None:
    """True if a was shown on the left, False on the right; ``None`` where no column says it."""
    value = fields.get("sidea")
    if value in (None, "") or is_nothing(str(value).strip()):
        return None
    side = unmarked(str(value))
    if side not in {"left", "right"}:
        raise ImportingError.at(
            place, f"side_a is {limits.shown(value)}. Write left or right, or leave it empty."
        )
    return side == "left"


def winner_of(
    place: str,
    fields: Mapping[str, Any],
    given: Any,
    policies: tuple[str, str],
    *,
    a_on_left: bool | None,
    by_side: bool,
) -> Winner:
    """The answer. ``by_side``: the format names sides, so a word for one is no policy of that name."""
    # A vote without a winner is none, whatever another column says.
    said = given if given is not None else first_of(fields, ["winner"] if "winner" in fields else WINNER)
    if said is None:
        marked = [
            winner for name, winner in KAGGLE.items() if str(fields.get(name)).lower() in {"1", "1.0", "true"}
        ]
        if len(marked) == 1:
            return marked[0]
        raise _no_winner(place, fields)
    text = text_in(place, "winner", said) or ""
    if text in {"1.0", "2.0"} and text not in policies:
        # Programs take numbers beside an empty cell for fractions.
        text = text[0]
    found = {
        place_of
        for name, place_of in zip(policies, (Winner.A, Winner.B), strict=True)
        if text.strip() == name
    }
    key = _word(text)
    if text == _MIDDLE and text not in policies:
        return Winner.TIE
    if by_side and (key in _NAMED or key in NEITHER or key in _ON_SIDE):
        found = set()
    if key in _NAMED:
        found.add(_NAMED[key])
    elif key in NEITHER:
        found.add(NEITHER[key])
    elif key.endswith(("left", "right")) and key in _ON_SIDE:
        if a_on_left is None:
            raise ImportingError.at(
                place, f"winner is {limits.shown(text)}, but nothing says which policy was there. Add side_a."
            )
        found.add(Winner.A if _ON_SIDE[key] == a_on_left else Winner.B)
    if len(found) == 1:
        return found.pop()
    if found:
        raise ImportingError.at(
            place,
            f"winner is {limits.shown(text)}, which is a policy's name and also says the other one. Write a "
            "or b.",
        )
    # As of a ClassLabel of `datasets` in CSV.
    is_number = text.replace(".", "").isdecimal()
    number = " Nothing says what a number stands for, except 1, 2 and 1.5." * is_number
    raise ImportingError.at(
        place,
        f"winner is {limits.shown(text)}. Write a, b, tie or both_bad, or the name of one of the two "
        f"policies.{number}",
    )


def _no_winner(place: str, fields: Mapping[str, Any]) -> Exception:
    """The error of a row without an answer."""
    if not fields.keys().isdisjoint(KAGGLE):
        return ImportingError.at(
            place,
            "One of winner_model_a, winner_model_b and winner_tie must be 1, and the others 0. Correct them, "
            "or remove the row.",
        )
    if column := next((name for name in WINNER if name in fields), ""):
        named = "" if column == "winner" else f" ({column})"
        return ImportingError.at(
            place, f"The winner{named} is empty. Write a, b, tie or both_bad, or remove the row."
        )
    return NoColumnError(place, "winner")
