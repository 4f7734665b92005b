"""Finds a registry by its name."""

from collections.abc import Callable

from django.conf import settings

from engine.domain.entry_points import EntryPoints
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
_REGISTRIES = EntryPoints(ENTRY_POINTS, _OWN)


def registry_names() -> list[str]:
    """Our own names that can be used here, and then those that other packages registered."""
    return [name for name in _REGISTRIES.names if name != "git" or settings.REGISTRY_FOLDER]


def build_registry(name: str) -> Registry:
    """The registry of that name; our own names come first.

    Raises
    ------
    RegistryError
        No installed package has one of that name.
    """
    if (make := _REGISTRIES.find(name)) is None:
        raise RegistryError(f"The registry {name!r} is not installed here.")
    return make()
