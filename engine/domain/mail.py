"""The e-mail of this installation: if it is sent, and the reason if it is not."""

from __future__ import annotations

from django.conf import settings

# console:// and dummy:// of EMAIL_URL.
_SENDS_NOTHING = {
    "django.core.mail.backends.console.EmailBackend",
    "django.core.mail.backends.dummy.EmailBackend",
}


def mail_is_sent() -> bool:
    """True if messages are sent, and not only written to the log of a process."""
    return settings.EMAIL_BACKEND not in _SENDS_NOTHING


def why_no_mail() -> str:
    """The reason why no e-mail is sent, and the remedy; empty if e-mail is sent."""
    if mail_is_sent():
        return ""
    return (
        "Mail is not configured here, so no e-mail is sent. "
        "Set EMAIL_URL, such as submission://user:password@host:587, or use a webhook."
    )
