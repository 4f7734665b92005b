"""Sources of tasks by name: our own, and those that other packages register.

A package adds one by an entry point in the group "llmpo.sources". Its name is the source's, and its object is
called without arguments and returns a `Source`:

    [project.entry-points."llmpo.sources"]
    mine = "my_package:MySource"
"""

from dataclasses import dataclass
from typing import Protocol

from engine.importing.reading_process import Source as Files


class SourceError(Exception):
    """Nothing came. Says why and what to do; never quotes a token."""


@dataclass(frozen=True)
class Wanted:
    """What somebody wants of a source.

    Attributes
    ----------
    name
        The data set, or for files the path.
    configuration, split, revision
        Of the hub.
    number
        The most rows to draw at random; ``seed`` draws the same rows again.
    address
        The server, where a source has several.
    token
        The key; of two parts joined by a colon.
    """

    name: str
    configuration: str = ""
    split: str = ""
    revision: str = ""
    number: int = 200
    seed: int = 1
    address: str = ""
    token: str = ""


@dataclass(frozen=True)
class Fetched:
    """The files that came, a sentence on what they are, and a short name of it with its revision."""

    files: Files
    told: str
    label: str


class Source(Protocol):
    """A place from which tasks come."""

    def fetch(self, wanted: Wanted) -> Fetched:
        """The rows as files, which are then read as uploaded ones are.

        Raises
        ------
        SourceError
        """
        ...
