"""Things by name: our own, and those that other packages register by an entry point."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True)
class EntryPoints(Generic[T]):
    """What makes each thing of a kind; ``group``: that of the entry points. Our own names come first."""

    group: str
    own: Mapping[str, T]

    @property
    def names(self) -> list[str]:
        """Our own names, and then those that other packages registered."""
        return [*self.own, *sorted(entry_points(group=self.group).names - self.own.keys())]

    def find(self, name: str) -> T | None:
        """What makes the thing of this name; ``None`` where no installed package has one."""
        if name in self.own:
            return self.own[name]
        others = entry_points(group=self.group)
        return cast(T, others[name].load()) if name in others.names else None
