"""A row of a table, its faults, and the records that are made of rows."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from engine.domain import limits
from engine.domain.texts import UNSTORABLE
from engine.importing.strict_json import loads

# Faults that one message lists. A list of all of them can be downloaded.
MOST_FAULTS = 20
# Faults that are kept: a file may be nothing but faults.
_KEPT_FAULTS = 10_000
_EMPTY: tuple[Any, ...] = (None, "", [], {})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where: "line 3", "entry 17", or empty for the whole file."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class ImportingError(ValueError):
    """Something cannot be read. ``faults`` holds every place, up to a number that people can read.

    Where only some rows cannot be read, ``summary`` says how many can, and ``all_faults`` holds each.
    """

    summary = ""
    all_faults: Sequence[Fault] = ()

    def __init__(self, faults: Collection[Fault]) -> None:
        super().__init__()
        self.faults = list(faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))

    @classmethod
    def at(cls, place: str, message: str) -> Self:
        """An error with a single fault."""
        return cls([Fault(place, message)])


class NoColumnError(ImportingError):
    """Rows have no column of a role."""

    @classmethod
    def of(cls, row: Row, wanted: str) -> NoColumnError:
        """This row has no column of the role that ``wanted`` begins with."""
        found = ", ".join(limits.shown(name) for name in list(row.fields)[:MOST_FAULTS]) or "nothing"
        return cls.at(
            row.place,
            f"No column is the {wanted}. Found: {found}. Rename a column. A new experiment's page “Columns” "
            f"and --map COLUMN={wanted.split(maxsplit=1)[0]} of the command say it without that.",
        )


@dataclass(frozen=True, slots=True)
class Row:
    """The named values of one row. Names are as the file writes them.

    ``file``: the path of its file, within an archive that of the archive before it.
    """

    place: str
    fields: Mapping[str, Any]
    file: str = ""


@dataclass
class Records(Generic[T]):
    """What was made of the rows of a file, and the faults of the other rows.

    Attributes
    ----------
    n_rows, n_faulty
        Rows that were read, and those of them with a fault.
    """

    items: list[T] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    n_rows: int = 0
    n_faulty: int = 0

    @property
    def summary(self) -> str:
        """“113 of 120 rows can be read. 7 rows: …”, the most common faults first."""
        kinds = Counter(fault.message for fault in self.faults).most_common(3)
        listed = " ".join(f"{n:,} {'row' if n == 1 else 'rows'}: {message}" for message, n in kinds)
        return f"{self.n_rows - self.n_faulty:,} of {self.n_rows:,} rows can be read. {listed}"


class FaultyRowsError(ImportingError):
    """Some rows cannot be read; the others could be imported without them."""

    def __init__(self, records: Records[Any]) -> None:
        super().__init__(_gathered(records.faults))
        self.summary = records.summary if records.n_rows > records.n_faulty else ""
        self.all_faults = records.faults


def read(rows: Iterable[Row | Fault], make: Callable[[Row], Sequence[T]], limit: limits.Limit) -> Records[T]:
    """The records that ``make`` makes of each row, and the faults of the rows of which it makes none."""
    records: Records[T] = Records()
    # The message alone: the error itself would keep this frame, and with it the child that reads.
    missing = ""
    for row in rows:
        records.n_rows += 1
        if message := limit.refusal(max(records.n_rows, len(records.items))):
            raise ImportingError.at("", message)
        if isinstance(row, Fault):
            records.n_faulty += 1
            records.faults += [row] * (len(records.faults) < _KEPT_FAULTS)
            continue
        try:
            records.items += make(row)
        except ImportingError as error:
            records.n_faulty += 1
            if isinstance(error, NoColumnError):
                missing = missing or error.faults[0].message
            if len(records.faults) < _KEPT_FAULTS:
                records.faults += error.faults
    if missing and not records.items:
        others = [fault for fault in records.faults if fault.message != missing]
        raise NoColumnError([Fault("", missing), *_gathered(others)])
    return records


def _gathered(faults: Sequence[Fault]) -> list[Fault]:
    """Each message once with its places, and no more of them than people read."""
    places: dict[str, list[str]] = {}
    for fault in sorted(faults, key=lambda fault: bool(fault.place)):
        places.setdefault(fault.message, []).append(fault.place)
    gathered = [Fault(_listed(where), message) for message, where in places.items()]
    if (rest := len(gathered) - MOST_FAULTS) > 0:
        gathered[MOST_FAULTS:] = [Fault("", f"And {rest} more like these.")]
    return gathered


def _listed(places: Sequence[str]) -> str:
    rest = len(places) - MOST_FAULTS
    return ", ".join(filter(None, places[:MOST_FAULTS])) + (f" and {rest:,} more" if rest > 0 else "")


def is_empty(value: Any) -> bool:
    """True for a cell without a value."""
    return value in _EMPTY


def in_json(value: Any) -> Any:
    """The list or the object that a cell holds as JSON; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        with contextlib.suppress(ValueError):
            return loads(value, of_table=True)
    return value


def text_in(place: str, name: str, value: Any, *, json_texts: bool = False) -> str:
    """The text of a value. ``json_texts``: an object or a list is taken as its JSON text."""
    if isinstance(value, (dict, list)):
        if not json_texts:
            inside = (
                f" Its values: {name}.{f', {name}.'.join(list(value)[:5])}."
                if value and isinstance(value, dict)
                else ""
            )
            what = "an object" if isinstance(value, dict) else "a list"
            raise ImportingError.at(
                place,
                f"{name} is {what}, not a text. Choose one of its values by its path, or take objects and "
                f"lists as their JSON text (the box on the page “Columns”, or --json-texts).{inside}",
            )
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        value = json.dumps(value)
    return storable(str(value), place, name)


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
