"""Requests that cannot be answered: too large (413), about an experiment that was just deleted (404). Or the
database is busy or away, the disk is full, or one person sends too much at once (503). The API's errors are
JSON.

503 carries Retry-After. Clients and static/js/pair.js send the same request again then; every write is safe
to repeat.
"""

import errno
import itertools
import logging
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import (
    DisallowedHost,
    PermissionDenied,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import Error, InterfaceError, OperationalError, connections
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse, UnreadablePostError
from django.template.loader import render_to_string
from django.views import defaults

from engine.domain import limits
from engine.models import Experiment

TOO_LARGE = (RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent)
logger = logging.getLogger(__name__)

UNAVAILABLE = (OperationalError, InterfaceError)
# Longer than nearly every transaction here, and short enough for somebody who waits.
_RETRY_SECONDS = 2
_SAY_AGAIN_SECONDS = 60
# Bytes of a request that is refused as too large; four uploads of the largest size.
_MOST_PASSED_OVER = 4 * limits.UPLOAD_BYTES.most
# A full disk counts too, as with PostgreSQL: nothing was written, and an operator can make room.
_SQLITE_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
}
# PostgreSQL: connection lost, rolled back (serialization, deadlock), out of resources, shut down, lock not
# available.
_SQL_STATES = ("08", "40", "53", "57P", "55P03")
_LOST_STATES = ("08", "57P")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# Requests of one person that are answered at once. Browsers open no more connections to one server, and of
# gunicorn's eight threads two are left for others.
MOST_AT_ONCE = 6
_DETAILS = {
    400: "The request cannot be read. See /api/docs for its format.",
    403: "This is not allowed. See /api/docs.",
    404: "This page does not exist, or you may not see it. See /api/docs for the addresses.",
    405: "This address does not support this method. See the header Allow.",
    500: "Something went wrong on the server and was logged. Everything saved before is safe.",
}


class Failures:
    """Middleware. Inside of compression, and outside of everything that may fail."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Before the session is read: refusing a thousand requests has to cost next to nothing.
        person = request.COOKIES.get(settings.SESSION_COOKIE_NAME) or request.headers.get("Authorization")
        if person is None:
            return self._answered(request)
        if not _UNDER_WAY.begin(person):
            return _busy(request, f"More than {MOST_AT_ONCE} requests of yours are under way.")
        with ExitStack() as under_way:
            under_way.callback(_UNDER_WAY.end, person)
            response = self._answered(request)
            if isinstance(response, StreamingHttpResponse):
                # A download is under way until its last byte is sent, or its reader is gone.
                sending = under_way.pop_all()
                response.streaming_content = _until_sent(response.streaming_content, sending)
                response._resource_closers.append(sending.close)
        return response

    def _answered(self, request: HttpRequest) -> HttpResponse:
        # By the declared length, before reading: no server here reads more than that.
        if message := limits.UPLOAD_BYTES.refusal(_declared_bytes(request)):
            return _too_large(request, message)
        _CONNECTIONS.renew()
        response = self._get_response(request)
        if response.status_code >= 400 and _is_api(request) and not _is_json(response):
            return _as_json(response)
        return response

    def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        # The next middleware asks for the login, outside of a view. Its error would reach `server_error`,
        # which Django does not call while DEBUG is on.
        try:
            bool(request.user.is_authenticated)
        except UNAVAILABLE as error:
            if refused := _refusal(request, error):
                return refused
            raise
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, Experiment.DoesNotExist):
            # A draft that somebody deleted after the rights to it were checked, as by a second click.
            return defaults.page_not_found(request, error)
        return _refusal(request, error)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer requests refused outside of a view, such as a form that the CSRF check could not read."""
    if isinstance(exception, DisallowedHost):
        logger.warning("Refused with 400: %s. Add the host to ALLOWED_HOSTS if it is this site's.", exception)
        return HttpResponse(render_to_string("400_host.html"), status=HTTPStatus.BAD_REQUEST)
    return _refusal(request, exception) or defaults.bad_request(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without its secret, and tell the operator which setting may be wrong."""
    origin = request.headers.get("Origin")
    asked = f"{request.scheme}://{request.get_host()}"
    if origin in {None, "null", asked}:
        advice = "With HTTPS=true browsers keep cookies of https:// pages only. Else the page was old."
    elif origin.partition("://")[2] == asked.partition("://")[2]:
        advice = "A proxy ends TLS: have it set X-Forwarded-Proto, and set BEHIND_TLS_PROXY=true."
    else:
        advice = f"Have the proxy pass Host on, or set CSRF_TRUSTED_ORIGINS={origin} if that is this site."
    logger.warning("Refused with 403: %s Page at %s, form for %s. %s", reason, origin, asked, advice)
    return defaults.permission_denied(request, PermissionDenied(), template_name="403_csrf.html")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer what failed outside of a view, such as storing the session."""
    error = sys.exc_info()[1]
    return (_refusal(request, error) if error else None) or defaults.server_error(request)


def is_temporary(error: BaseException) -> bool:
    """True if the database is busy or away, so that the same request may succeed a little later."""
    if not isinstance(error, UNAVAILABLE):
        return False
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        # The low byte is the kind of error; the other bytes give its detail.
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE_CODES
    state = getattr(cause, "sqlstate", None)
    return state is None or state.startswith(_SQL_STATES)


def _refusal(request: HttpRequest, error: BaseException) -> HttpResponse | None:
    if isinstance(error, TOO_LARGE):
        # The body cannot be read again, and must not be.
        request._mark_post_parse_error()  # type: ignore[attr-defined]
        limit = limits.REQUEST_BYTES if isinstance(error, RequestDataTooBig) else limits.FORM_FIELDS
        return _too_large(
            request, f"More than {limit.most:,} {limit.thing}, which is the limit. {limit.advice}"
        )
    if isinstance(error, Error) and is_temporary(error):
        # Once a minute: annotators' pages repeat their requests every few seconds, and would fill the log.
        if cache.add("database-away-said", True, _SAY_AGAIN_SECONDS):
            logger.error("The database is busy or away, and requests are refused with 503: %s", error)
        _CONNECTIONS.doubt(error)
        return _busy(request, "The database is busy or cannot be reached.")
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        logger.error("A request was refused with 503: %s", error)
        return _busy(request, "The server's disk is full.")
    return None


def _until_sent(stream: Iterable[bytes], sending: ExitStack) -> Iterator[bytes]:
    with sending:
        yield from stream


class _UnderWay:
    """Counts the requests of each person that this process is answering."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def begin(self, person: str) -> bool:
        """Count one more, or return ``False`` where there are too many."""
        with self._lock:
            if self._counts[person] >= MOST_AT_ONCE:
                return False
            self._counts[person] += 1
            return True

    def end(self, person: str) -> None:
        """Count one less."""
        with self._lock:
            self._counts[person] -= 1
            if not self._counts[person]:
                del self._counts[person]


_UNDER_WAY = _UnderWay()


class _Connections:
    """Makes every thread of this process reconnect after one of them has lost its connection.

    Each thread keeps its own connection. After a restart of the database, each would otherwise refuse one
    request before it notices, long after the database is back.
    """

    def __init__(self) -> None:
        self._lost = itertools.count(1)
        self._last = 0
        self._seen = threading.local()

    def doubt(self, error: Error) -> None:
        """Doubt every connection of this process if the error says that one was lost."""
        state = getattr(error.__cause__, "sqlstate", "")
        if state is None or state.startswith(_LOST_STATES):
            self._last = next(self._lost)

    def renew(self) -> None:
        """Close this thread's connections if they are older than the last one that was lost."""
        last = self._last
        if getattr(self._seen, "last", 0) == last:
            return
        self._seen.last = last
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()


_CONNECTIONS = _Connections()


def _declared_bytes(request: HttpRequest) -> int:
    """The length that a request declares; 0 where it declares none, and then servers give no body."""
    declared = request.META.get("CONTENT_LENGTH") or "0"
    return int(declared) if declared.isdecimal() else 0


def _too_large(request: HttpRequest, message: str) -> HttpResponse:
    _pass_over_body(request)
    return _answer(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, "413.html")


def _pass_over_body(request: HttpRequest) -> None:
    """Read and discard the rest of a request.

    A connection that is closed before that is cut, and a client that is still sending never sees the answer.
    """
    if _declared_bytes(request) <= _MOST_PASSED_OVER:
        with suppress(UnreadablePostError):
            while request.read(1 << 16):
                pass


def _busy(request: HttpRequest, reason: str) -> HttpResponse:
    message = f"{reason} Send the same request again in {_RETRY_SECONDS} seconds."
    response = _answer(request, HTTPStatus.SERVICE_UNAVAILABLE, message, "503.html")
    response["Retry-After"] = str(_RETRY_SECONDS)
    # Django would log each of them as an error.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _answer(request: HttpRequest, status: int, message: str, template: str) -> HttpResponse:
    # Without the request: a page's context processors would ask the database.
    response: HttpResponse = (
        JsonResponse({"detail": message}, status=status)
        if _is_api(request)
        else HttpResponse(render_to_string(template, {"words": message}), status=status)
    )
    response["Cache-Control"] = "no-store"
    return response


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api/")


def _is_json(response: HttpResponse) -> bool:
    return "json" in response.get("Content-Type", "")


def _as_json(response: HttpResponse) -> HttpResponse:
    status = response.status_code
    known: dict[str, Any] = {name: value for name, value in response.items() if name != "Content-Type"}
    known.pop("Content-Length", None)
    # A plain text is a view's own words; a page's HTML is not for programs.
    told = response.content.decode() if response.get("Content-Type", "").startswith("text/plain") else ""
    answer = JsonResponse({"detail": told or _DETAILS.get(status, HTTPStatus(status).phrase)}, status=status)
    for name, value in known.items():
        answer[name] = value
    answer.cookies = response.cookies
    return answer
