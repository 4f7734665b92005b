"""E-mail: its words, and whether this installation sends it."""

from typing import Any

from django.conf import settings
from django.template.loader import render_to_string

# console:// and dummy:// of EMAIL_URL.
_SENDS_NOTHING = {
    "django.core.mail.backends.console.EmailBackend",
    "django.core.mail.backends.dummy.EmailBackend",
}


def worded(event: str, **facts: Any) -> tuple[str, str]:
    """The subject and the text of a message: the first line of ``templates/mail/EVENT.txt``, and the rest."""
    subject, _, text = render_to_string(f"mail/{event}.txt", facts).partition("\n")
    return subject, text.strip()


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
