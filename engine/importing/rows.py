"""A row of what people give: its place, the names of its fields, their texts, and what is wrong with it."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from engine.domain import limits
from engine.domain.texts import UNSTORABLE
from engine.importing import headings
from engine.importing.strict_json import loads

# Enough to see a pattern in; a page of thousands of them would help nobody.
MOST_FAULTS = 20


class Remedy(Enum):
    """A way to mend a fault without a change of the file; each way of bringing files has words of its own."""

    # Say which column it is.
    COLUMN = auto()
    # Choose another sheet of the workbook.
    SHEET = auto()
    # Bring a table where tables are read, and not where a description of an experiment is.
    TABLE = auto()


@dataclass(frozen=True)
class Fault:
    """A fault and its place: "line 3", "entry 17", or empty for the text as a whole.

    ``remedy``: what else mends it. ``column``: the meaning of the column that :attr:`Remedy.COLUMN` is about.
    """

    place: str
    message: str
    remedy: Remedy | None = None
    column: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message

    def said(self, remedies: Mapping[Remedy, str]) -> str:
        """The fault with the words for its remedy, in which {} is the meaning of the column."""
        more = remedies.get(self.remedy, "").format(self.column) if self.remedy else ""
        return f"{self} {more}".rstrip()


class ImportingError(ValueError):
    """Something cannot be read. ``faults`` holds every place, up to a number that can be read."""

    def __init__(self, faults: Collection[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def at(cls, place: str, message: str) -> ImportingError:
        """An error with a single fault."""
        return cls([Fault(place, message)])

    def said(self, remedies: Mapping[Remedy, str]) -> list[str]:
        """The faults with the words for their remedies."""
        return [fault.said(remedies) for fault in self.faults]


class NoColumnError(Exception):
    """A row has no such column, or nothing in it.

    ``what``: its name, and others that it may have. ``advice``: a sentence that says what to do.
    """

    def __init__(self, place: str, what: str, advice: str = "Add the column, or rename one.") -> None:
        super().__init__(place, what, advice)
        self.place, self.what, self.advice = place, what, advice

    def fault(self, row: Row, *, several: bool) -> Fault:
        """The fault of this row, with the columns of its table, or else with all fields that have something
        in it.

        ``several``: the file needs several columns.
        """
        found: list[str] = []
        for name in row.heading or row.fields:
            value = row.fields.get(name.lower() if row.heading else name)
            if isinstance(value, Mapping):
                found += [f"{name}.{inner}" for inner in value]
            elif row.heading or value not in (None, "", []):
                found.append(name)
        advice = self.advice
        # Not of a file whose other columns somebody leaves out: those rows have no heading.
        if several and len(row.heading) == 1 and isinstance(row.fields.get(row.heading[0].lower()), str):
            advice = "This is one column: separate columns by a comma, a semicolon, a tab or |."
        return Fault(self.place, f"Missing: {self.what}. Found: {', '.join(found) or 'nothing'}. {advice}")


def missing_everywhere(errors: Sequence[NoColumnError], faults: Sequence[Fault], n_rows: int) -> list[Fault]:
    """The one fault of a file in which each row lacks the same column; empty if there is none.

    ``faults``: of all rows, those of ``errors`` among them.
    """
    if not 0 < n_rows == len(faults) == len(errors) or len({error.what for error in errors}) > 1:
        return []
    fault = replace(faults[0], remedy=Remedy.COLUMN, column=errors[0].what.split()[0])
    if n_rows == 1:
        return [fault]
    return [replace(fault, place="", message=f"{fault.message} None of the {n_rows:,} rows has it.")]


def raise_any(faults: list[Fault]) -> None:
    """Raise what was found wrong, if anything was: what concerns the whole file first, and each thing once
    with all its places.
    """
    places: dict[Fault, dict[str, None]] = {}
    for fault in sorted(faults, key=lambda fault: bool(fault.place)):
        # A row of a wide table is read once for each policy.
        places.setdefault(replace(fault, place=""), {})[fault.place] = None
    faults = [replace(fault, place=_listed([*where])) for fault, where in places.items()]
    if len(faults) > MOST_FAULTS:
        rest = len(faults) - MOST_FAULTS
        faults = [*faults[:MOST_FAULTS], Fault("", f"And {rest} more like these.")]
    if faults:
        raise ImportingError(faults)


def _listed(places: Sequence[str]) -> str:
    """Places in one line, and the number of those beyond what anybody reads."""
    listed = ", ".join(filter(None, places[:MOST_FAULTS]))
    rest = len(places) - MOST_FAULTS
    return f"{listed} and {rest:,} more" if rest > 0 else listed


@dataclass(frozen=True)
class Row:
    """A row of a table, and its place in what people gave.

    ``fields`` have their names in lower case; ``heading`` has the same names as they are written.
    """

    place: str
    fields: Mapping[str, Any]
    heading: Sequence[str] = ()


def same_name(columns: Iterable[str]) -> str:
    """The fault that two columns differ in capitals at most; empty if none do."""
    names = Counter(name.lower() for name in columns)
    if twice := [name for name, n in names.items() if n > 1]:
        return f"{names[twice[0]]:,} columns are named {limits.shown(twice[0])}. Rename all but one of them."
    return ""


class Heading:
    """The names of a table's columns, which its first row holds.

    Columns without a name are left out where programs number the rows in them. A cell that is no number is
    kept under the number of its column, so that somebody is told of it.
    """

    def __init__(self, cells: Sequence[str]) -> None:
        written = [headings.name_in(cell) for cell in cells]
        self._names = [name.lower() for name in written]
        self._shown = [name for name in written if name]
        self._nameless = [number for number, name in enumerate(self._names) if not name]
        self._end = max((number for number, name in enumerate(self._names, 1) if name), default=0)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def fault(self) -> str:
        """The reason why these can be no names of columns; empty if they can."""
        if len(self._shown) == 1 and headings.holds_several(self._shown[0]):
            return (
                f"All names of columns stand in one cell: {limits.shown(self._shown[0])}. Separate the "
                "columns, as by “Text to Columns” in Excel, or take away the quotation marks around lines."
            )
        return same_name(self._shown) or limits.COLUMNS.refusal(len(self))

    def row(self, place: str, cells: Sequence[str]) -> Row | Fault:
        """The row that these cells are, or its fault."""
        if any(map(str.strip, cells[self._end :])):
            return Fault(
                place,
                "A cell stands right of the last column that the first row names. Name it, or remove the "
                "rows above the names of the columns.",
            )
        if all(
            headings.name_in(cell).lower() == name for cell, name in zip(cells, self._names, strict=False)
        ):
            return Fault(place, "This row has the names of the columns again. Remove it.")
        padded = itertools.chain(cells, itertools.repeat(""))
        fields = {name: cell for name, cell in zip(self._names, padded, strict=False) if name}
        for number in self._nameless:
            for cell in cells[number : number + 1]:
                if cell.strip() and not cell.strip().isdecimal():
                    fields.setdefault(f"column {number + 1}", cell)
        return Row(place, fields, self._shown)


def in_json(value: Any) -> Any:
    """The list or the object that a text is as JSON, which tables of texts hold so; any other value as it
    is.
    """
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        with contextlib.suppress(ValueError):
            return loads(value)
    return value


def in_turns(value: Any) -> Any:
    """The messages of an object of lists, one of roles and one of contents: of a list of objects `datasets`
    makes that. Any other value as it is.
    """
    if not isinstance(value, dict) or not value.keys() >= {"role", "content"}:
        return value
    lists = [each for each in value.values() if isinstance(each, list)]
    if len(lists) < len(value) or len({len(each) for each in lists}) > 1:
        return value
    return [dict(zip(value, parts, strict=True)) for parts in zip(*lists, strict=True)]


def text_of(row: Row, names: Collection[str], *, required: bool = True, several: bool = False) -> str:
    """The text of the first of these fields that the row has.

    ``several``: of a list, the first one is meant, as of several right answers.

    Raises
    ------
    NoColumnError
        There is no such field.
    ImportingError
        It is empty, or cannot be stored as text.
    """
    found = next((name for name in names if row.fields.get(name) not in (None, "", [])), None)
    if found is None:
        if required:
            written = {name.lower(): name for name in row.heading}
            if empty := next((name for name in names if name in row.fields or name in written), None):
                raise ImportingError.at(
                    row.place, f"{written.get(empty, empty)} is empty. Fill it in, or remove the row."
                )
            raise NoColumnError(row.place, " or ".join(names))
        return ""
    value = row.fields[found]
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        # SQuAD's answers: their texts, and where each begins.
        value = value["text"] or ""
    if isinstance(value, list) and (several or len(value) == 1):
        value = value[0]
    if isinstance(value, list):
        raise ImportingError.at(
            row.place, f"{found} is a list of {len(value)}. Give each of them a row of its own."
        )
    if isinstance(value, Mapping):
        inside = limits.shown(", ".join(map(str, value)))
        raise ImportingError.at(
            row.place,
            f"{found} is an object of {inside}. Write the one that is meant in its place, as a text.",
        )
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ImportingError.at(row.place, f"{found} must be a text.")
    return storable(str(value), row.place, found)


def storable(text: str, place: str, name: str) -> str:
    """The text itself, unless no database could hold it."""
    # Most texts are ASCII, in which a search for one character is enough, and far faster.
    if "\x00" in text or (not text.isascii() and UNSTORABLE.search(text)):
        raise ImportingError.at(
            place, f"{name} holds a character that cannot be stored (NUL or half of a pair)."
        )
    if message := limits.TEXT_CHARACTERS.refusal(len(text)):
        raise ImportingError.at(place, f"{name}: {message}")
    return text
