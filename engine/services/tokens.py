"""API tokens. Random enough that a plain hash of one cannot be undone; shown once, to whoever makes it."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from engine.models import AuditEntry, Token, User
from engine.services.audit import record

_PREFIX = "llmpo_"
# When it was used last is told to the minute: not every request should write.
_USED_STEP = timedelta(minutes=1)


@transaction.atomic
def make_token(*, user: User, name: str, valid_days: int) -> tuple[Token, str]:
    """A new token and its secret, which is nowhere to be had again."""
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = Token.objects.create(
        user=user,
        name=name,
        hash=_hash(secret),
        hint=secret[:12],
        expires_at=timezone.now() + timedelta(days=valid_days),
    )
    record(
        experiment=None,
        by=user,
        action=AuditEntry.Action.TOKEN_MADE,
        details={"hint": token.hint, "until": f"{token.expires_at:%Y-%m-%d}"},
    )
    return token, secret


@transaction.atomic
def revoke_token(*, token_id: int, by: User) -> None:
    """Make a token useless. Revoking twice is revoking once."""
    if Token.objects.filter(pk=token_id, revoked_at__isnull=True).update(revoked_at=timezone.now()):
        token = Token.objects.get(pk=token_id)
        record(
            experiment=None,
            by=by,
            action=AuditEntry.Action.TOKEN_REVOKED,
            details={"hint": token.hint},
        )


def token_of(*, secret: str) -> Token | None:
    """The token behind a secret, where it is good and its user's account is; notes that it was used."""
    now = timezone.now()
    token = (
        Token.objects.select_related("user")
        .filter(hash=_hash(secret), revoked_at__isnull=True, expires_at__gt=now, user__is_active=True)
        .first()
    )
    if token is not None and (token.used_at is None or now - token.used_at > _USED_STEP):
        Token.objects.filter(pk=token.pk).update(used_at=now)
    return token


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
