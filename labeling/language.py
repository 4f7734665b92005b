"""The language of pages: the reader's language for annotators, English for admins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import translation

_ADMINS = ("experiments/", "models/", "tokens/", "api/", "persons/", "report/", "help/")


def in_english(request: HttpRequest) -> None:
    """Answer the rest of this request in English, with its dates and numbers: a mixture would be worse than
    either language.
    """
    translation.activate("en")
    request.in_english = True  # type: ignore[attr-defined]  # for the templates


class AdminsPagesInEnglish:
    """Middleware. It belongs after Django's own for languages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, *_view: Any) -> None:
        match = request.resolver_match
        if match is not None and match.route.startswith(_ADMINS):
            in_english(request)
