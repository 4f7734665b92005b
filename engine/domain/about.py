"""The subjects of the work under way, for each line of the log: the request or the task, the experiment, the
claim, the comparison. Of one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

_names: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


def names() -> Mapping[str, str]:
    """The subjects now, by kind."""
    return _names.get()


def begin(**first: object) -> None:
    """A piece of work begins, and what the one before was about is over."""
    _names.set({kind: str(name) for kind, name in first.items()})


def note(**more: object) -> None:
    """Say more of what it is about."""
    _names.set({**_names.get(), **{kind: str(name) for kind, name in more.items()}})
