"""API tokens. They are random enough for a plain hash, and each is shown once, to the person who made it."""

import secrets
from collections.abc import Collection
from datetime import timedelta

from django.db import transaction
from django.db.models import QuerySet

from engine.domain.credentials import hashed
from engine.domain.errors import TokenError
from engine.models import AuditEntry, Experiment, Token, User, clock
from engine.selectors import people
from engine.services.audit import record

_PREFIX = "llmpo_"
# How long a token lasts unless its maker says otherwise.
USUAL_DAYS = 30


@transaction.atomic
def make_token(
    *,
    user: User,
    name: str,
    valid_days: int,
    scopes: Collection[str] = (Token.Scope.READ,),
    experiment: Experiment | None = None,
) -> tuple[Token, str]:
    """A new token and its secret, which cannot be read again later.

    Raises
    ------
    TokenError
        It has no scope or an unknown one, the experiment is not the user's, or the account is deactivated.
    """
    if not scopes or not set(scopes) <= set(Token.Scope.values):
        raise TokenError("Choose at least one scope: read, annotate or manage.")
    # Waits for a removal or deactivation in progress: either that ends this token, or this sees it.
    user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if not user.is_active:
        raise TokenError("This account is deactivated.")
    if experiment is not None and not people.held_roles(user, experiment.pk):
        raise TokenError("You have no role in that experiment.")
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = Token.objects.create(
        user=user,
        name=name,
        hash=hashed(secret),
        hint=secret[:12],
        scopes=[scope for scope in Token.Scope.values if scope in scopes],
        experiment=experiment,
        expires_at=clock.now() + timedelta(days=valid_days),
    )
    record(
        experiment=None,
        by=user,
        action=AuditEntry.Action.TOKEN_MADE,
        details={
            "hint": token.hint,
            "until": f"{token.expires_at:%Y-%m-%d}",
            "scopes": ", ".join(token.scopes),
            "experiment": None if experiment is None else experiment.pk,
        },
    )
    return token, secret


@transaction.atomic
def revoke_token(*, token_id: int, by: User) -> None:
    """Make a token useless. Revoking twice is revoking once."""
    _revoke(Token.objects.filter(pk=token_id), by=by)


@transaction.atomic
def end_tokens_without_rights(*, user: User, by: User | None) -> None:
    """Revoke those tokens of a user who lost a role that can no longer reach anything."""
    user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    because = "The last right behind it was taken away."
    if not people.has_any_right(user):
        _revoke(Token.objects.filter(user=user), by=by, because=because)
        return
    for token in Token.objects.filter(user=user, revoked_at__isnull=True, experiment__isnull=False):
        if token.experiment_id and not people.held_roles(user, token.experiment_id):
            _revoke(Token.objects.filter(pk=token.pk), by=by, because=because)


@transaction.atomic
def settle_permissions() -> None:
    """End what depended on a permission, after any change of permissions or groups."""
    holders = User.objects.filter(tokens__revoked_at__isnull=True, is_superuser=False).distinct()
    for user in holders.order_by("pk"):
        end_tokens_without_rights(user=user, by=None)


@transaction.atomic
def end_all_tokens(*, user: User, by: User | None, because: str) -> int:
    """Revoke every token of an account; returns how many were valid until then."""
    return _revoke(Token.objects.filter(user=user), by=by, because=because)


def token_of(*, secret: str) -> Token | None:
    """The token with this secret, if it is valid and its user's account is active. Writes nothing."""
    valid = Token.objects.filter(revoked_at__isnull=True, expires_at__gt=clock.now(), user__is_active=True)
    return valid.select_related("user").filter(hash=hashed(secret)).first()


def note_use(*, token_id: int) -> None:
    """Record the use of a token. A worker calls it, because a reading request must not write."""
    Token.objects.filter(pk=token_id).update(used_at=clock.now())


def _revoke(tokens: QuerySet[Token], *, by: User | None, because: str = "") -> int:
    revoked = 0
    for token in tokens.filter(revoked_at__isnull=True):
        if not Token.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=clock.now()):
            continue
        revoked += 1
        record(
            experiment=None,
            by=by,
            action=AuditEntry.Action.TOKEN_REVOKED,
            about=token.user,
            details={"hint": token.hint, "because": because},
        )
    return revoked
