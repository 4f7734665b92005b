"""The context of each line of the log: the request or task, the experiment, the claim, the comparison.

Each thread has its own.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

_names: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


def names() -> Mapping[str, str]:
    """The present context, by kind."""
    return _names.get()


def begin(**first: object) -> None:
    """Start the context of a new piece of work; the one before is dropped."""
    _names.set({kind: str(name) for kind, name in first.items()})


def note(**more: object) -> None:
    """Add to the context."""
    _names.set({**_names.get(), **{kind: str(name) for kind, name in more.items()}})
