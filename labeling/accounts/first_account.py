"""The link that makes the first account of an installation.

It is signed with ``SECRET_KEY`` and stored nowhere: only somebody who sees the output of the program has it.
"""

from datetime import timedelta

from django.core.signing import BadSignature, TimestampSigner
from django.urls import reverse

_SIGNER = TimestampSigner(salt="first-account")
_VALID = timedelta(days=1)
_SIGNED = "first"


def first_account_path() -> str:
    """The address of the page, with a new token."""
    token = _SIGNER.sign(_SIGNED).removeprefix(f"{_SIGNED}:")
    return reverse("first_account", args=[token])


def opens_first_account(token: str) -> bool:
    """True if we made the token, not longer than a day ago."""
    try:
        _SIGNER.unsign(f"{_SIGNED}:{token}", max_age=_VALID)
    except BadSignature:
        return False
    return True
