"""Checks of a response's text, each with its kind: what a correct response equals, contains or matches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import re2

KINDS = ("equals", "contains", "icontains", "regex")


@dataclass(frozen=True, slots=True)
class TextCheck:
    """A text that a correct response equals, contains (``icontains``: in any case), or matches as an RE2
    pattern, anywhere in it.
    """

    kind: str
    value: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"A check has one of the kinds {', '.join(KINDS)}, not {self.kind[:60]!r}.")
        if not self.value:
            raise ValueError(f"A check {self.kind} needs a value.")
        if self.kind == "regex":
            try:
                re2.compile(self.value)
            except re2.error as error:
                raise ValueError(f"{self.value[:60]!r} is no pattern that RE2 understands.") from error

    def holds(self, text: str) -> bool:
        """True if the text passes."""
        match self.kind:
            case "equals":
                return text.strip() == self.value.strip()
            case "contains":
                return self.value in text
            case "icontains":
                return self.value.casefold() in text.casefold()
        return re2.search(self.value, text) is not None


def read_checks(given: Any) -> tuple[TextCheck, ...]:
    """Checks out of JSON.

    Raises
    ------
    ValueError
        Says what is wrong.
    """
    if not isinstance(given, Sequence) or not all(
        isinstance(each, Mapping)
        and each.keys() == {"kind", "value"}
        and all(isinstance(part, str) for part in each.values())
        for each in given
    ):
        raise ValueError("checks is a list of objects, each with a kind and a value, both texts.")
    return tuple(TextCheck(**each) for each in given)


def all_hold(checks: Iterable[TextCheck], text: str) -> bool:
    """True if the text passes each of the checks."""
    return all(each.holds(text) for each in checks)
