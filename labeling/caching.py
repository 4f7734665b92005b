"""Work that many viewers share: the first one does it, while the others see the previous result."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TypeVar

from django.conf import settings
from django.core.cache import cache

from engine.models import clock

T = TypeVar("T")

_KEPT_SECONDS = 3600
# Expensive results are recomputed at most every 20 × their own run time.
_REST = 20
_LOCK_SECONDS = 30
_LOOK_SECONDS = 0.02


def shared(name: str, version: Hashable, make: Callable[[], T], *, ages: tuple[float, float]) -> T:
    """The result of ``make``, or a recent result.

    Parameters
    ----------
    name
        Name of the result and of its subject.
    version
        Version of the input: the same version is not computed again.
    ages
        Recomputed when older than the first age with a new version, or older than the second age with any
        version; in units of ``DASHBOARD_SECONDS``. Expensive results are recomputed later.
    """
    if settings.DASHBOARD_SECONDS == 0:
        return make()
    found: tuple[float, float, object, T] | None = cache.get(name)
    if found is not None and _is_recent(found, version, ages):
        return found[-1]
    lock = f"{name}:making"
    if not cache.add(lock, True, _LOCK_SECONDS):
        # Another viewer is computing it: return the previous result, or wait if there is none.
        return found[-1] if found is not None else _awaited(name, lock, make)
    try:
        started = _now()
        value = make()
        cache.set(name, (_now(), _now() - started, version, value), _KEPT_SECONDS)
    finally:
        cache.delete(lock)
    return value


def is_shared(name: str, version: Hashable, *, ages: tuple[float, float]) -> bool:
    """True if `shared` has a result that it would return without computing it."""
    found = cache.get(name)
    return settings.DASHBOARD_SECONDS > 0 and found is not None and _is_recent(found, version, ages)


def _now() -> float:
    """Seconds, the same on every web machine: one reads what another has put there."""
    return clock.now().timestamp()


def _is_recent(
    found: tuple[float, float, object, object], version: Hashable, ages: tuple[float, float]
) -> bool:
    made_at, took, made_from, _ = found
    age, unit = _now() - made_at, settings.DASHBOARD_SECONDS
    return age < max(ages[0] * unit, _REST * took) or (made_from == version and age < ages[1] * unit)


def remembered(name: str, version: Hashable, make: Callable[[], T]) -> T:
    """The result of ``make`` for exactly this version of its input, made once by each process.

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


def _awaited(name: str, lock: str, make: Callable[[], T]) -> T:
    while cache.get(lock) is not None:
        time.sleep(_LOOK_SECONDS)
    found = cache.get(name)
    return make() if found is None else found[-1]
