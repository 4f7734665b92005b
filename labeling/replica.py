"""Reads from a replica of the database, where DATABASE_REPLICA_URL names one: dashboards and downloads.

A replica is a moment behind. So rights are read from the database itself, and so is everything for a browser
that has just written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse

REPLICA = "replica"
# Much longer than a healthy replica is behind.
_BEHIND_SECONDS = 15
_COOKIE = "wrote"
_SAFE = {"GET", "HEAD", "OPTIONS"}

_reading: ContextVar[bool] = ContextVar("reading", default=False)
_wrote: ContextVar[bool] = ContextVar("wrote", default=False)

T = TypeVar("T")


class Router:
    """Reads go to the replica inside of `reading`, and everything else to the database."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return _alias()

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return DEFAULT_DB_ALIAS

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == DEFAULT_DB_ALIAS


class ReadYourWrites:
    """Middleware. A browser that writes reads from the database itself for some seconds."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if REPLICA not in settings.DATABASES:
            return self._get_response(request)
        writes = request.method not in _SAFE
        token = _wrote.set(writes or _COOKIE in request.COOKIES)
        try:
            response = self._get_response(request)
        finally:
            _wrote.reset(token)
        if writes and not hasattr(request, "only_reads"):
            response.set_cookie(
                _COOKIE,
                "1",
                max_age=_BEHIND_SECONDS,
                secure=settings.SESSION_COOKIE_SECURE,
                httponly=True,
                samesite="Lax",
            )
        return response


def only_reads(request: HttpRequest) -> None:
    """Take this request for one that changes nothing, though the log's sake makes it a POST."""
    request.only_reads = True  # type: ignore[attr-defined]
    _wrote.set(_COOKIE in request.COOKIES)


@contextmanager
def reading() -> Iterator[None]:
    """Read from the replica, if there is one and this request's browser has not just written."""
    token = _reading.set(REPLICA in settings.DATABASES and not _wrote.get())
    try:
        yield
    finally:
        _reading.reset(token)


def read(pieces: Iterator[T]) -> Iterator[T]:
    """The pieces of a stream, each made inside `reading`, because the view has returned by then."""
    return _read(pieces, _wrote.get())


def _read(pieces: Iterator[T], wrote: bool) -> Iterator[T]:
    while True:
        token = _wrote.set(wrote)
        try:
            with reading():
                piece = next(pieces)
        except StopIteration:
            return
        finally:
            _wrote.reset(token)
        yield piece


def connection() -> BaseDatabaseWrapper:
    """The connection that reads go through now."""
    return connections[_alias()]


def _alias() -> str:
    return REPLICA if _reading.get() else DEFAULT_DB_ALIAS
