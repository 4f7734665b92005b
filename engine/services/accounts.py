"""Actions on accounts that go into the log."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from engine.models import AuditEntry, User
from engine.services.audit import record
from engine.services.tokens import revoke_token


@transaction.atomic
def sign_out_everywhere(*, user: User, tokens: bool) -> int:
    """End all sessions of an account and, where ``tokens`` says so, its API tokens; returns how many of those."""
    User.objects.filter(pk=user.pk).update(session_version=F("session_version") + 1)
    ids = list(user.tokens.filter(revoked_at__isnull=True).values_list("pk", flat=True)) if tokens else []
    for token_id in ids:
        revoke_token(token_id=token_id, by=user)
    record(experiment=None, by=user, action=AuditEntry.Action.SIGN_OUT, details={"tokens": len(ids)})
    return len(ids)


def note_reset_link(*, user: User, second_step_removed: bool) -> None:
    """Write down that somebody at the server's command line made a link for this account."""
    also = " Turned off its second step." if second_step_removed else ""
    record(experiment=None, by=None, about=user, action=AuditEntry.Action.RESET_LINK, details={"also": also})
