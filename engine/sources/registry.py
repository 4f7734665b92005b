"""Finds a source by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.domain.entry_points import EntryPoints
from engine.domain.limits import FILE_BYTES
from engine.domain.specs import ExperimentSpec
from engine.importing.findings import Findings
from engine.importing.found_files import FoundFile
from engine.importing.gathered import Sample
from engine.importing.items import USUAL, Wishes, tasks_and_warnings
from engine.importing.other_tools import export_in
from engine.importing.reading_process import source_at
from engine.sources.base import Fetched, Source, SourceError, Wanted
from engine.sources.hub import Hub
from engine.sources.langfuse import Langfuse
from engine.sources.langsmith import LangSmith
from engine.sources.phoenix import Phoenix

ENTRY_POINTS = "llmpo.sources"
FILES = "files"


class FilesHere:
    """Files on this machine, which only a command may read."""

    def fetch(self, wanted: Wanted) -> Fetched:
        """The file or the folder at a path."""
        try:
            return Fetched(source_at(Path(wanted.name), FILE_BYTES), f"From {wanted.name}.", wanted.name)
        except OSError as error:
            raise SourceError(f"{wanted.name} cannot be read: {error.strerror}.") from error


_OWN: dict[str, Callable[[], Source]] = {
    FILES: FilesHere,
    "hub": Hub,
    "langfuse": Langfuse,
    "langsmith": LangSmith,
    "phoenix": Phoenix,
}
_SOURCES = EntryPoints(ENTRY_POINTS, _OWN)


def source_names(*, of_pages: bool = False) -> list[str]:
    """Our own names, then those of other packages; ``of_pages``: those that a page may ask."""
    return [name for name in _SOURCES.names if not (of_pages and name == FILES)]


def build_source(name: str, *, of_pages: bool = False) -> Source:
    """The source of that name; our own names come first.

    Raises
    ------
    SourceError
        There is none of that name here.
    """
    names = source_names(of_pages=of_pages)
    make = _SOURCES.find(name) if name in names else None
    if make is None:
        raise SourceError(f"There is no source {name[:100]!r} here. Choose one of {', '.join(names)}.")
    return make()


def draw(
    name: str, wanted: Wanted, *, of_pages: bool = False, tasks_alone: bool = True
) -> tuple[Fetched, FoundFile | None]:
    """What a source gives, and what it holds if it is data or traces of another tool.

    Raises
    ------
    SourceError, ImportingError
    """
    fetched = build_source(name, of_pages=of_pages).fetch(wanted)
    sample = Sample(wanted.number, wanted.seed)
    return fetched, export_in(fetched.files, name=fetched.label, sample=sample, tasks_alone=tasks_alone)


def draw_tasks(
    name: str, wanted: Wanted, wishes: Wishes = USUAL, *, of_pages: bool = False, tasks_alone: bool = True
) -> FoundFile:
    """The tasks that a source gives, also those of a table, under the name of their origin."""
    fetched, found = draw(name, wanted, of_pages=of_pages, tasks_alone=tasks_alone)
    if found is None:
        tasks, warnings = tasks_and_warnings(fetched.files, wishes)
        found = FoundFile(ExperimentSpec(fetched.label, [], tasks), Findings(notes=warnings), 0)
    found.findings.notes.insert(0, fetched.told)
    return found
