"""Secrets that let their holder in: invitations, API tokens, links to reports."""

from __future__ import annotations

import hashlib


def hashed(secret: str) -> str:
    """The SHA-256 under which a secret is stored. Ours are long and random, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()
