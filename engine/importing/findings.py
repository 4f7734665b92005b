"""What was found in a file of another tool: what of it was taken, and what was left out and why."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.domain.specs import ReadyMade
from engine.domain.wording import number
from engine.importing.rows import Fault

_EXAMPLES = 3
_LONGEST_EXAMPLE, _LONGEST_REASON = 80, 240
_MANY = {
    "policy": "policies",
    "file of tests": "files of tests",
    "provider that judges": "providers that judge",
}


@dataclass
class Findings:
    """The tally of one file. Each thing that was found is either taken or left out, so that sums agree.

    Attributes
    ----------
    slips
        Faults that the other tool runs without a word; they refuse the file.
    notes
        Sentences about the whole file.
    tool
        The tool whose run it is; empty for a table of somebody's own.
    """

    slips: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tool: str = ""
    _taken: Counter[str] = field(default_factory=Counter)
    _left: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def take(self, what: str, n: int = 1) -> None:
        """Count things of the kind ``what``, a noun in the singular, that were taken."""
        self._taken[what] += n

    def leave(self, what: str, reason: str, place: str = "", example: str = "") -> None:
        """Note one that was left out."""
        shown = _cut(example, _LONGEST_EXAMPLE)
        # It may quote a whole traceback.
        reason = _cut(reason, _LONGEST_REASON)
        self._left.setdefault((what, reason), []).append(": ".join(filter(None, [place, shown])))

    def slip(self, place: str, message: str) -> None:
        """Note a fault for which the file is refused."""
        self.slips.append(Fault(place, message))

    def note(self, sentence: str) -> None:
        """Note something about the whole file, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def note_gaps(self, made: Sequence[ReadyMade]) -> None:
        """Note what is missing for a comparison of these responses."""
        by_task: dict[int, set[str]] = {}
        for each in made:
            by_task.setdefault(each.task, set()).add(each.policy)
        single = sum(len(names) == 1 for names in by_task.values())
        if single:
            self.note(f"{number(single, 'task')} with answers of one policy alone, which compares nothing.")
        if len({each.policy for each in made}) == 1:
            self.note("One policy: bring answers of a second prompt or model.")
        elif single == len(by_task):
            self.note("No two policies share a task, so that nothing can be compared.")

    def n_taken(self, what: str) -> int:
        """The number of things of a kind that were taken."""
        return self._taken[what]

    def n_left(self, what: str) -> int:
        """The number of things of a kind that were left out."""
        return sum(len(places) for (kind, _), places in self._left.items() if kind == what)

    def counts(self) -> list[dict[str, Any]]:
        """For each kind of things: how many were found, taken and left out."""
        kinds = dict.fromkeys([*self._taken, *(what for what, _ in self._left)])
        return [
            {"what": what, "found": taken + left, "taken": taken, "left_out": left}
            for what in kinds
            if (taken := self.n_taken(what)) + (left := self.n_left(what))
        ]

    def left_out(self) -> list[dict[str, Any]]:
        """For each reason: what was left out for it, how many, and the first of them."""
        return [
            {
                "counted": _number(len(places), what),
                "reason": reason,
                "examples": [*filter(None, places)][:_EXAMPLES],
            }
            for (what, reason), places in self._left.items()
        ]

    def sentences(self) -> Iterator[str]:
        """All of it in sentences, for a command and the API."""
        for each in self.counts():
            yield (
                f"{_number(each['found'], each['what'])} found: {each['taken']:,} taken, "
                f"{each['left_out']:,} left out."
            )
        for each in self.left_out():
            examples = f" ({'; '.join(each['examples'])})" if each["examples"] else ""
            yield f"Left out: {each['counted']}, {each['reason']}{examples}."
        yield from self.notes


def _cut(text: str, most: int) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= most else f"{shown[:most]}…"


def _number(n: int, what: str) -> str:
    return number(n, what, _MANY.get(what, ""))
