"""Finds a writer by its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from engine.writing.base import Ask, Writer, WriterError
from engine.writing.prepared import PreparedWriter
from engine.writing.reflective import ReflectiveWriter

PREPARED, REFLECTIVE = "prepared", "reflective"
_OWN: dict[str, Callable[[Ask], Writer]] = {PREPARED: PreparedWriter, REFLECTIVE: ReflectiveWriter}
ENTRY_POINTS = "llmpo.writers"


def writer_names() -> list[str]:
    """Our own names, and then those that other packages registered."""
    return [*_OWN, *sorted(entry_points(group=ENTRY_POINTS).names - _OWN.keys())]


def build_writer(name: str, ask: Ask) -> Writer:
    """The writer of that name; our own names come first.

    Raises
    ------
    WriterError
        No installed package has one of that name.
    """
    if name in _OWN:
        return _OWN[name](ask)
    others = entry_points(group=ENTRY_POINTS)
    if name not in others.names:
        raise WriterError(f"The writer {name!r} is not installed here.")
    writer: Writer = others[name].load()(ask)
    return writer
