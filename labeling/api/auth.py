"""Authentication of the API by tokens only. Without sessions, no other site can call it in a user's name."""

from typing import ClassVar, cast

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from django.utils import timezone
from ninja.errors import HttpError
from ninja.security import HttpBearer
from ninja.throttling import BaseThrottle

from engine.models import Token
from engine.services.tokens import token_of
from engine.tasks import note_token_use, wake
from labeling.requests import TokenRequest

# Shortest time between two records of a token's use, in seconds. A worker writes them, not the request.
_NOTE_EVERY = 3600


class TokenAuth(HttpBearer):
    """``Authorization: Bearer llmpo_…``. An operation without a scope refuses everybody."""

    scope: ClassVar[Token.Scope | None] = None

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        found = token_of(secret=token)
        if found is None or self.scope is None:
            return None
        if self.scope not in found.scopes:
            raise HttpError(
                403,
                f"This token lacks the scope “{self.scope}”; it has: {', '.join(found.scopes)}. "
                "Make a token with that scope on the page of API tokens.",
            )
        request.user = found.user
        if cache.add(f"api-token-noted-{found.pk}", True, timeout=_NOTE_EVERY):
            wake(note_token_use, found.pk)
        return found


# One class each: the OpenAPI description names a security scheme after its class.
class ReadScope(TokenAuth):
    scope = Token.Scope.READ
    openapi_description = "A token with the scope “read”"


class AnnotateScope(TokenAuth):
    scope = Token.Scope.ANNOTATE
    openapi_description = "A token with the scope “annotate”"


class ManageScope(TokenAuth):
    scope = Token.Scope.MANAGE
    openapi_description = "A token with the scope “manage”"


READ, ANNOTATE, MANAGE = ReadScope(), AnnotateScope(), ManageScope()


class TokenThrottle(BaseThrottle):
    """Limit on the requests of one token in each minute of the clock."""

    def allow_request(self, request: HttpRequest) -> bool:
        token = cast(TokenRequest, request).auth
        key = f"api-{token.pk}-{int(timezone.now().timestamp() // 60)}"
        cache.add(key, 0, timeout=120)
        try:
            return cache.incr(key) <= settings.API_REQUESTS_PER_MINUTE
        except ValueError:  # the cache dropped the key between the two calls
            return True

    def wait(self) -> float:
        return 60 - timezone.now().timestamp() % 60
