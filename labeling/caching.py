"""Figures that many viewers share for some seconds."""

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from django.conf import settings
from django.core.cache import cache

T = TypeVar("T")

_KEPT_SECONDS = 3600


def shared(name: str, make: Callable[[], T], *, age: float) -> T:
    """The result of ``make``, or one of at most this age, in units of ``DASHBOARD_SECONDS``."""
    return cast(T, cache.get_or_set(name, make, age * settings.DASHBOARD_SECONDS))


def remembered(name: str, version: Hashable, make: Callable[[], T]) -> T:
    """The result of ``make`` for exactly this version of its input.

    Parameters
    ----------
    name
        Name of the result and of its subject.
    """
    found: tuple[object, T] | None = cache.get(name)
    if found is not None and found[0] == version:
        return found[1]
    value = make()
    cache.set(name, (version, value), _KEPT_SECONDS)
    return value
