"""Work that many viewers share: done once, by whoever asks first, while the others see what there was before."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TypeVar

from django.conf import settings
from django.core.cache import cache

T = TypeVar("T")

_KEPT_SECONDS = 3600
# What takes long is made less often: it may keep a process busy for one part in twenty.
_REST = 20
_LOCK_SECONDS = 30
_LOOK_SECONDS = 0.02


def shared(name: str, version: Hashable, make: Callable[[], T], *, ages: tuple[float, float]) -> T:
    """What ``make`` returns, or what it returned lately.

    Parameters
    ----------
    name
        What it is, and of what.
    version
        What it was made from: the same version need not be made again.
    ages
        It is made again when it is older than the first and its version has changed, or older than the second
        whatever the version; in units of ``DASHBOARD_SECONDS``. Where making it takes long, later.
    """
    unit = settings.DASHBOARD_SECONDS
    if unit == 0:
        return make()
    found: tuple[float, float, object, T] | None = cache.get(name)
    if found is not None:
        made_at, took, made_from, value = found
        age = time.time() - made_at
        if age < max(ages[0] * unit, _REST * took) or (made_from == version and age < ages[1] * unit):
            return value
    lock = f"{name}:making"
    if not cache.add(lock, True, _LOCK_SECONDS):
        # Somebody else is making it: what there was will do, and before the first there is nothing but to wait.
        return found[-1] if found is not None else _awaited(name, lock, make)
    try:
        started = time.time()
        value = make()
        cache.set(name, (time.time(), time.time() - started, version, value), _KEPT_SECONDS)
    finally:
        cache.delete(lock)
    return value


def _awaited(name: str, lock: str, make: Callable[[], T]) -> T:
    while cache.get(lock) is not None:
        time.sleep(_LOOK_SECONDS)
    found = cache.get(name)
    return make() if found is None else found[-1]
