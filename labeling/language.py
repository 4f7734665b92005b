"""The language of pages: the reader's language for annotators, English for admins."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.middleware.locale import LocaleMiddleware
from django.utils import translation

_ADMINS = ("experiments/", "models/", "tokens/", "api/", "persons/", "report/", "help/")


def in_english(request: HttpRequest) -> None:
    """Answer the rest of this request in English, with its dates and numbers: a mixture would be worse than
    either language.
    """
    translation.activate("en")
    request.in_english = True  # type: ignore[attr-defined]  # for the templates


class PageLanguage(LocaleMiddleware):
    """Middleware. The reader's language, and English where admins work."""

    def process_view(self, request: HttpRequest, *_view: Any) -> None:
        match = request.resolver_match
        if match is not None and match.route.startswith(_ADMINS):
            in_english(request)
