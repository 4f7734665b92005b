"""Secrets that let their holder in: invitations, API tokens, links to reports; and secrets that are kept."""

import base64
import hashlib
from collections.abc import Iterable

from cryptography.fernet import Fernet, MultiFernet
from django.utils.crypto import salted_hmac


def hashed(secret: str) -> str:
    """The SHA-256 of a secret, as stored. Our secrets are long and random, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def secret_from(mail_key: str) -> str:
    """The secret of an e-mailed invitation, derived from its random key and SECRET_KEY.

    It is derived anew for each sending, so neither the outbox nor the invitation stores it.
    """
    digest = salted_hmac("engine.invitations", mail_key, algorithm="sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def cipher(purpose: str, secrets: Iterable[str]) -> MultiFernet:
    """A cipher for this purpose alone, from secrets of the site: the first encrypts, all of them decrypt."""
    digests = (salted_hmac(purpose, "", secret=secret, algorithm="sha256").digest() for secret in secrets)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])
