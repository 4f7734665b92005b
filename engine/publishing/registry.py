"""Finds a registry by its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from django.conf import settings

from engine.publishing.base import Registry, RegistryError
from engine.publishing.over_http import Langfuse, LangSmith, MLflow, Webhook
from engine.publishing.working_tree import WorkingTree

ENTRY_POINTS = "llmpo.registries"
_OWN: dict[str, Callable[[], Registry]] = {
    "langfuse": Langfuse,
    "mlflow": MLflow,
    "langsmith": LangSmith,
    "git": WorkingTree,
    "webhook": Webhook,
}


def registry_names() -> list[str]:
    """Our own names that can be used here, and then those that other packages registered."""
    own = [name for name in _OWN if name != "git" or settings.REGISTRY_FOLDER]
    return [*own, *sorted(entry_points(group=ENTRY_POINTS).names - _OWN.keys())]


def build_registry(name: str) -> Registry:
    """The registry of that name; our own names come first.

    Raises
    ------
    RegistryError
        No installed package has one of that name.
    """
    if name in _OWN:
        return _OWN[name]()
    others = entry_points(group=ENTRY_POINTS)
    if name not in others.names:
        raise RegistryError(f"The registry {name!r} is not installed here.")
    found: Registry = others[name].load()()
    return found
