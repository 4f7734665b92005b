"""``/metrics`` for Prometheus, and the time of every other request."""

import secrets
import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST

from labeling import metrics

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class Metrics:
    """Middleware. Serves ``/metrics`` if ``METRICS_TOKEN`` is set, to callers that send it as a bearer
    token. Like probes they have no session, use plain HTTP, and ask for the container's address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info == "/metrics" and settings.METRICS_TOKEN:
            return _answered(request)
        started = time.perf_counter()
        response = self._get_response(request)
        found = request.resolver_match
        # Unknown paths and methods must not become labels: anybody could make up a million of them.
        view = found.view_name if found is not None else ""
        method = request.method if request.method in _METHODS else ""
        metrics.REQUEST_SECONDS.labels(view, method, response.status_code).observe(
            time.perf_counter() - started
        )
        return response


def _answered(request: HttpRequest) -> HttpResponse:
    if request.method not in {"GET", "HEAD"}:
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    given = request.headers.get("Authorization", "")
    if not secrets.compare_digest(given.encode(), f"Bearer {settings.METRICS_TOKEN}".encode()):
        return HttpResponse(status=401, headers={"WWW-Authenticate": "Bearer"})
    return HttpResponse(
        metrics.exposition(), content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"}
    )
