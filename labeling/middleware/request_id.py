"""A name for every request, in the log."""

import re
import uuid
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from engine.domain import log_context

_NAME = re.compile(r"[\w-]{8,64}", re.ASCII)


class RequestId:
    """Middleware. A proxy may name the request by ``X-Request-ID``, which links its log and ours."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        named = _NAME.fullmatch(given)
        # The name holds until the next request begins: Django logs refusals after the last middleware.
        log_context.begin(request=given if named else uuid.uuid4().hex)
        response = self._get_response(request)
        # A name of our own is not sent: annotators' replies must not differ by what they are about.
        if named:
            response["X-Request-ID"] = given
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponse], args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        """Note the experiment, which most addresses name."""
        if "experiment_id" in kwargs:
            log_context.note(experiment=kwargs["experiment_id"])
