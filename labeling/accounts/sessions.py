"""The session and the user of a request. Every request reads both, so the queries are compiled once."""

from __future__ import annotations

from allauth.account.auth_backends import AuthenticationBackend
from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import VALID_KEY_CHARS
from django.contrib.sessions.models import Session
from django.db.models import BigAutoField, CharField, DateTimeField
from django.utils import timezone

from engine.models import User
from engine.selectors.compiled import Compiled, Given

_SESSION = Compiled(
    lambda: Session.objects.filter(
        session_key=Given("key", CharField()), expire_date__gt=Given("now", DateTimeField())
    )
)
_USER = Compiled(lambda: User.objects.filter(pk=Given("user", BigAutoField())))


class SessionStore(db.SessionStore):
    """Django's sessions in the database."""

    def _validate_session_key(self, key: str | None) -> bool:
        """True if this can be a key. A browser may send anything, and PostgreSQL refuses a text with NUL."""
        is_long_enough = super()._validate_session_key(key)  # type: ignore[misc]  # not in the stubs
        return bool(is_long_enough) and set(key or "").issubset(VALID_KEY_CHARS)

    def _get_session_from_db(self) -> Session | None:
        if found := _SESSION(key=self.session_key, now=timezone.now()):
            return found[0]
        self._session_key = None
        return None


class Backend(AuthenticationBackend):
    """Login by allauth."""

    def get_user(self, user_id: int) -> User | None:
        """The account of a session; ``None`` if it may no longer log in."""
        found = _USER(user=user_id)
        return found[0] if found and self.user_can_authenticate(found[0]) else None
