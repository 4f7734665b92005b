"""Accounts: made, and changed in ways that go into the log."""

from allauth.mfa.models import Authenticator
from django.db import IntegrityError, transaction
from django.db.models import F

from engine.domain.credentials import hashed
from engine.domain.errors import NameTakenError
from engine.models import AuditEntry, Browser, User
from engine.services.audit import record
from engine.services.tokens import end_all_tokens


def make_account(*, username: str, password: str, email: str = "", superuser: bool = False) -> User:
    """Make an account that may log in.

    The caller has checked the values, as a form or a command does.

    Raises
    ------
    NameTakenError
        Somebody else has taken this user name since, in any case.
    """
    try:
        with transaction.atomic():
            return User.objects.create_user(
                username, email, password, is_staff=superuser, is_superuser=superuser
            )
    except IntegrityError as error:
        raise NameTakenError(f"There is an account {username!r} already.") from error


def end_sessions(*, user: User) -> None:
    """End all sessions of an account for good, also those that would be valid again after it reopens."""
    User.objects.filter(pk=user.pk).update(session_version=F("session_version") + 1)
    # Otherwise the next save of this object would set the old number again.
    user.refresh_from_db(fields=["session_version"])


@transaction.atomic
def log_out_everywhere(*, user: User, tokens: bool) -> int:
    """End all sessions of an account and, with ``tokens``, its API tokens; returns the number of tokens."""
    end_sessions(user=user)
    ended = end_all_tokens(user=user, by=user, because="All sessions were ended.") if tokens else 0
    record(experiment=None, by=user, action=AuditEntry.Action.LOG_OUT, details={"tokens": ended})
    return ended


def note_browser(*, user: User, number: str) -> None:
    """Note that the account has logged in in the browser with this random number."""
    Browser.objects.get_or_create(user=user, hash=hashed(number))


@transaction.atomic
def set_preferences(*, user: User, **changes: object) -> None:
    """Store a person's preferences; ``None`` restores the default."""
    kept = User.objects.select_for_update().get(pk=user.pk).preferences | changes
    user.preferences = {name: value for name, value in kept.items() if value is not None}
    user.save(update_fields=["preferences"])


@transaction.atomic
def allow_reset(*, user: User, without_second_step: bool) -> None:
    """Record in the log that somebody makes a password link for this account on the server's command line.

    ``without_second_step``: turn off its two-step login too.
    """
    if without_second_step:
        Authenticator.objects.filter(user=user).delete()
    also = " Turned off its second step." if without_second_step else ""
    record(experiment=None, by=None, about=user, action=AuditEntry.Action.RESET_LINK, details={"also": also})
