"""Who calls the API: a token's user, and nobody by a session, so that no other site can call it in one's name."""

from __future__ import annotations

import time

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.throttling import BaseThrottle

from engine.models import Token
from engine.services.tokens import token_of


class TokenAuth(HttpBearer):
    """``Authorization: Bearer llmpo_…``"""

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        found = token_of(secret=token)
        if found is not None:
            request.user = found.user
        return found


class TokenThrottle(BaseThrottle):
    """So many requests of one token in each minute of the clock."""

    def allow_request(self, request: HttpRequest) -> bool:
        token: Token = request.auth  # type: ignore[attr-defined]
        key = f"api {token.pk} {int(time.time() // 60)}"
        cache.add(key, 0, timeout=120)
        try:
            return cache.incr(key) <= settings.API_REQUESTS_PER_MINUTE
        except ValueError:  # pushed out of the cache in this very moment
            return True

    def wait(self) -> float:
        return 60 - time.time() % 60
