"""The JSON API: what the pages do, for programs. docs/api.md tells how to use it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.errors import ValidationError
from ninja.openapi.docs import DocsBase
from ninja.parser import Parser

from engine.errors import EngineError, SpecError, UnknownTokenError
from labeling.api import annotating, experiments
from labeling.api.auth import TokenAuth, TokenThrottle
from labeling.api.reference import sections


class StrictParser(Parser):
    """JSON as the standard has it, without texts that no database stores."""

    def parse_body(self, request: HttpRequest) -> Any:
        def refuse(constant: str) -> NoReturn:
            raise ValueError(f"{constant} is not JSON")

        body = json.loads(request.body, parse_constant=refuse)
        # Half of a surrogate pair cannot be encoded, and PostgreSQL takes no zero byte.
        if "\0" in _texts(body):
            raise ValueError("a text holds a zero byte")
        return body


def _texts(value: Any) -> str:
    """Every text in a JSON value, names included. Raises ValueError where one cannot be encoded."""
    if isinstance(value, str):
        value.encode()
        return value
    if isinstance(value, dict):
        return "".join(_texts(key) + _texts(each) for key, each in value.items())
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return ""


class Reference(DocsBase):
    """The documentation as a page like the others: no script, and nothing from elsewhere."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        schema = api.get_openapi_schema(path_params=kwargs)
        return render(request, "api/reference.html", {"schema": schema, "sections": sections(schema)})


api = NinjaAPI(
    title="LLM-PO",
    version="1",
    description=(
        "Make a token on the page of API tokens and send it as `Authorization: Bearer …`. It may do what its user may do, as far as its "
        "scopes go: read, annotate, manage. Each operation names the scope that it needs. Experiments of others do not exist (404). "
        "An error comes as `{detail}`, which says what to do."
    ),
    auth=TokenAuth(),
    throttle=[TokenThrottle()],
    docs=Reference(),
    parser=StrictParser(),
    urls_namespace="api",
)
api.add_router("/experiments", experiments.router, tags=["Experiments"])
api.add_router("/label", annotating.router, tags=["Annotating"])


@api.exception_handler(EngineError)
def _refused(request: HttpRequest, refused: EngineError) -> HttpResponse:
    status = 422 if isinstance(refused, SpecError) else 404 if isinstance(refused, UnknownTokenError) else 409
    return api.create_response(request, {"detail": str(refused)}, status=status)


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, invalid: ValidationError) -> HttpResponse:
    faults = "; ".join(f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in invalid.errors)
    return api.create_response(request, {"detail": faults}, status=422)
