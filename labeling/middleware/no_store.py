"""Forbids browsers and proxies to store answers."""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control


class NothingIsStored:
    """Middleware. No view's answer may be stored: pages, exports, setup files and API replies are personal.

    Static files never come here: WhiteNoise answers first, and lets browsers keep them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        patch_cache_control(response, private=True, no_store=True)
        return response
