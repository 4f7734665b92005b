"""Django's sessions in the database, for keys that the database can look up, with a fixed end."""

from datetime import datetime, timedelta

from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import VALID_KEY_CHARS


class SessionStore(db.SessionStore):
    """A browser may send any text as its key, and PostgreSQL refuses one with NUL."""

    def _validate_session_key(self, key: str | None) -> bool:
        is_long_enough = super()._validate_session_key(key)  # type: ignore[misc]  # not in the stubs
        return bool(is_long_enough) and set(key or "").issubset(VALID_KEY_CHARS)

    def set_expiry(self, value: datetime | timedelta | int | None) -> None:
        """End at a moment: else whatever a session stores later would put its end off."""
        super().set_expiry(timedelta(seconds=value) if isinstance(value, int) and value else value)
