"""Long work in a process whose other threads answer clicks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_SLICE_SECONDS = 0.005
# Another thread may have held a slice up, which asks for no longer rest.
_LONGEST_REST_SECONDS = 0.02
_is_unhurried: ContextVar[bool] = ContextVar("is_unhurried", default=False)


@contextmanager
def unhurried() -> Iterator[None]:
    """Have `paced` rest in this thread after each slice of work, for as long as the slice took.

    One thread of a process runs Python at a time. A click comes back from the database a hundred times, and
    each time it waits for the thread that is at work.
    """
    token = _is_unhurried.set(True)
    try:
        yield
    finally:
        _is_unhurried.reset(token)


def paced(items: Iterable[T]) -> Iterator[T]:
    """The items, with rests between them where `unhurried` asks for them."""
    if not _is_unhurried.get():
        yield from items
        return
    began = time.monotonic()
    for item in items:
        yield item
        if (took := time.monotonic() - began) >= _SLICE_SECONDS:
            time.sleep(min(took, _LONGEST_REST_SECONDS))
            began = time.monotonic()
