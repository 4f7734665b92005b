"""Finds a writer by its name."""

from collections.abc import Callable

from engine.domain.entry_points import EntryPoints
from engine.writing.base import Ask, Writer, WriterError
from engine.writing.prepared import PreparedWriter
from engine.writing.reflective import ReflectiveWriter

PREPARED, REFLECTIVE = "prepared", "reflective"
ENTRY_POINTS = "llmpo.writers"
_OWN: dict[str, Callable[[Ask], Writer]] = {PREPARED: PreparedWriter, REFLECTIVE: ReflectiveWriter}
_WRITERS = EntryPoints(ENTRY_POINTS, _OWN)


def writer_names() -> list[str]:
    """Our own names, and then those that other packages registered."""
    return _WRITERS.names


def build_writer(name: str, ask: Ask) -> Writer:
    """The writer of that name; our own names come first.

    Raises
    ------
    WriterError
        No installed package has one of that name.
    """
    if (make := _WRITERS.find(name)) is None:
        raise WriterError(f"The writer {name!r} is not installed here.")
    return make(ask)
