"""The JSON API: what the pages do, for programs. docs/api.md tells how to use it."""

import json
from functools import cached_property
from math import ceil
from typing import Any, NoReturn

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, Throttled, ValidationError
from ninja.openapi.docs import DocsBase
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from engine.domain import limits
from engine.domain.errors import EngineError, SpecError, UnknownTokenError
from engine.importing.rows import MOST_FAULTS, ImportingError
from engine.importing.strict_json import JSONLimitError, loads
from engine.models import Experiment
from labeling.api import (
    annotating,
    connections,
    experiments,
    gates,
    imports,
    improvements,
    people,
    results,
    sources,
)
from labeling.api.auth import TokenAuth, TokenThrottle
from labeling.api.reference import sections
from labeling.middleware.failures import TOO_LARGE, UNAVAILABLE

# The names that lead to a value are cut to this length; a caller may have made them up.
_LONGEST_PLACE = 200


# In the words of the fields of an upload.
class StrictParser(Parser):
    """JSON by the standard, without texts and numbers that no database stores."""

    def parse_body(self, request: HttpRequest) -> Any:
        body = loads(request.body)
        if fault := _fault(body):
            raise JSONLimitError(fault)
        return body


def _fault(value: Any) -> str:
    """The fault of the first text in a JSON value, names included, that cannot be stored; else empty."""
    if isinstance(value, str):
        return limits.text_fault(value, f"The text {limits.shown(value[:40])}")
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return next(filter(None, map(_fault, parts)), "")


class Reference(DocsBase):
    """The documentation as a page of this site, without scripts and without files from other sites."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        schema = api.get_openapi_schema(path_params=kwargs)
        return render(request, "api/reference.html", {"schema": schema, "sections": sections(schema)})


class _API(NinjaAPI):
    @cached_property
    def _descriptions(self) -> dict[str, OpenAPISchema]:
        return {}

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        """The description of the operations, by the address before theirs; do not change it.

        Made once in a process: it takes a fifth of a second, and anybody may ask for it.
        """
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        if prefix not in self._descriptions:
            self._descriptions[prefix] = super().get_openapi_schema(path_prefix=prefix)
        return self._descriptions[prefix]


api = _API(
    title="LLM-PO",
    version="1",
    description=(
        "Make a token on the page “API tokens” and send it as `Authorization: Bearer "
        "…`. A token has the rights of its user, limited by its scopes: read, annotate, "
        "manage. Each operation names the scope that it needs. An experiment that you "
        "may not see answers 404. An error comes as `{detail}`, which says what to do."
    ),
    auth=TokenAuth(),
    throttle=[TokenThrottle()],
    docs=Reference(),
    parser=StrictParser(),
    urls_namespace="api",
)
api.add_router("/imports", imports.router, tags=["Imports"])
api.add_router("/sources", sources.router, tags=["Sources"])
api.add_router("/experiments", experiments.router, tags=["Experiments"])
api.add_router("/experiments", results.router, tags=["Results"])
api.add_router("/experiments", improvements.router, tags=["Improvements"])
api.add_router("/experiments", gates.router, tags=["Gate"])
api.add_router("/experiments", people.router, tags=["People"])
api.add_router("/connections", connections.router, tags=["Connections"])
api.add_router("/label", annotating.router, tags=["Annotating"])


@api.exception_handler(EngineError)
def _refused(request: HttpRequest, refused: EngineError) -> HttpResponse:
    status = 422 if isinstance(refused, SpecError) else 404 if isinstance(refused, UnknownTokenError) else 409
    return api.create_response(request, {"detail": str(refused)}, status=status)


@api.exception_handler(ImportingError)
def _unreadable(request: HttpRequest, unreadable: ImportingError) -> HttpResponse:
    return api.create_response(request, {"detail": str(unreadable)}, status=422)


@api.exception_handler(PermissionDenied)
def _not_permitted(request: HttpRequest, denied: PermissionDenied) -> HttpResponse:
    return api.create_response(request, {"detail": str(denied)}, status=403)


@api.exception_handler(Http404)
# A draft that somebody deleted after the rights to it were checked.
@api.exception_handler(Experiment.DoesNotExist)
def _missing(request: HttpRequest, missing: Http404 | Experiment.DoesNotExist) -> HttpResponse:
    told = str(missing) if isinstance(missing, Http404) else ""
    detail = told or "It does not exist, or you may not see it. GET /api/experiments lists yours."
    return api.create_response(request, {"detail": detail}, status=404)


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, invalid: ValidationError) -> HttpResponse:
    faults = [
        f"{'.'.join(map(str, fault['loc'][1:]))[:_LONGEST_PLACE]}: "
        f"{fault['msg'].removeprefix('Value error, ')}"
        for fault in invalid.errors[:MOST_FAULTS]
    ]
    if (rest := len(invalid.errors) - MOST_FAULTS) > 0:
        faults.append(f"And {rest} more like these.")
    return api.create_response(request, {"detail": "; ".join(faults)}, status=422)


@api.exception_handler(AuthenticationError)
def _unknown(request: HttpRequest, unknown: AuthenticationError) -> HttpResponse:
    detail = (
        "The token is missing or wrong, or it has ended. Send “Authorization: Bearer TOKEN”; make a new "
        "token on the page of API tokens."
    )
    return api.create_response(request, {"detail": detail}, status=unknown.status_code)


@api.exception_handler(HttpError)
def _failed(request: HttpRequest, failed: HttpError) -> HttpResponse:
    """Explain why a body cannot be read; ninja itself does not."""
    cause = failed.__cause__
    if isinstance(cause, JSONLimitError):
        return api.create_response(request, {"detail": str(cause)}, status=422)
    if isinstance(cause, json.JSONDecodeError):
        place = f"line {cause.lineno}, column {cause.colno}"
        return api.create_response(
            request, {"detail": f"The body is not JSON ({place}): {cause.msg}."}, status=400
        )
    if isinstance(cause, UnicodeDecodeError):
        return api.create_response(
            request, {"detail": f"The body is not {cause.encoding.upper()}. Send it as UTF-8."}, status=400
        )
    return api.create_response(request, {"detail": str(failed)}, status=failed.status_code)


@api.exception_handler(Throttled)
def _throttled(request: HttpRequest, throttled: Throttled) -> HttpResponse:
    seconds = ceil(throttled.wait or 1)
    detail = f"Too many requests of this token. Send the same request again in {seconds} seconds."
    response = api.create_response(request, {"detail": detail}, status=429)
    response["Retry-After"] = str(seconds)
    return response


def _passed_on(request: HttpRequest, error: Exception | type[Exception]) -> NoReturn:
    """Leave the answer to the middleware, which answers for pages too."""
    raise error


for _error in (*TOO_LARGE, *UNAVAILABLE):
    api.add_exception_handler(_error, _passed_on)
