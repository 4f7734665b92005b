"""Registries by name: our own, and those that other packages register.

A package adds one by an entry point in the group "llmpo.registries". Its name is the registry's, and its
object is called without arguments and returns a `Registry`:

    [project.entry-points."llmpo.registries"]
    mine = "my_package:MyRegistry"
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.publishing.winners import Winner

# Stands in a body for the version that an earlier request has made.
MADE = "(the version made above)"


class RegistryError(Exception):
    """The winner did not arrive, or not wholly. Says why, for the page, without a secret."""


@dataclass(frozen=True)
class Place:
    """A destination: server or folder, the prompt's name there, and the label that moves."""

    address: str
    name: str
    label: str


@dataclass(frozen=True)
class Request:
    """One step, sent with this very body; ``path`` goes behind the address.

    ``may_exist``: that something of this name is there already is no failure.
    """

    method: str
    path: str
    body: str = ""
    may_exist: bool = False


# Sends a request with the destination's key, and returns its answer; `None` where there is no such thing.
# Raises `RegistryError`.
Ask = Callable[[Request], Any]


class Registry(Protocol):
    """Another tool's store of prompts.

    Attributes
    ----------
    title
        Its name on pages.
    key_help
        What its key is.
    """

    title: str
    key_help: str

    def check(self, to: Place, *, has_key: bool) -> Place:
        """The destination as it is stored.

        Raises
        ------
        ValueError
            Says what is wrong with it.
        """
        ...

    def requests(self, winner: Winner, to: Place) -> list[Request]:
        """What makes a new version of the winner and moves the label to it."""
        ...

    def back(self, before: str, to: Place) -> list[Request]:
        """What moves the label to this version again."""
        ...

    def marked(self, to: Place, ask: Ask) -> str | None:
        """The version that the label marks; empty: none, `None`: it cannot tell.

        Raises
        ------
        RegistryError
        """
        ...

    def version(self, request: Request, answer: Any) -> str:
        """The version that an answer names; empty without one."""
        ...

    def send(self, request: Request, to: Place, key: str) -> Any:
        """Send one request; see `Ask`."""
        ...
