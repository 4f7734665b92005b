"""Whether this installation sends e-mail at all."""

from __future__ import annotations

from django.conf import settings

_NOWHERE = {f"django.core.mail.backends.{name}.EmailBackend" for name in ("console", "dummy")}


def mail_is_sent() -> bool:
    """Messages reach their readers, and not only the log of a process (``EMAIL_URL`` is set)."""
    return settings.EMAIL_BACKEND not in _NOWHERE
