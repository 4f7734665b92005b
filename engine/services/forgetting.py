"""Forgets a person. Their judgments stay without a name, because the evidence rests on them."""

import itertools
import re
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from engine.domain.errors import MembershipError, PersonError
from engine.models import (
    AuditEntry,
    Browser,
    Examination,
    Experiment,
    Flag,
    Invitation,
    InvitationUse,
    Judgment,
    Membership,
    Token,
    Trial,
    Upload,
    User,
    clock,
)
from engine.selectors.person_data import addresses_of, invitations_to, sessions_of, subscriptions_to
from engine.services import connections, worker_holds
from engine.services.audit import record
from engine.services.dashboard_pages import forget_pages
from engine.services.invitations import end_invitation
from engine.services.locks import lock_by_number, lock_experiments_of
from engine.services.notifications import unsubscribe
from engine.services.people import remove_member
from engine.services.tokens import end_all_tokens

# Rows that are deleted with the account; any other row of the engine keeps it.
_GO_WITH_THE_ACCOUNT = {Browser, Membership, Token, Trial, Upload}


@transaction.atomic
def forget_person(
    *, user_id: int, by: User | None, blank_comments: bool = False, delete: bool = False
) -> User | None:
    """Make an account anonymous: its name becomes a number, and nobody can log in to it.

    Judgments, flags, assignments and log entries stay, under the name *former-annotator-7*. Everything else
    about the person is deleted. With ``blank_comments`` their comments are emptied; with ``delete`` an
    account without such rows is deleted altogether. Returns the account, or ``None`` if it was deleted.

    Raises
    ------
    PersonError
        It is forgotten already, or would leave the site or an experiment without anybody in charge.
    """
    lock_experiments_of(user_id)
    # With all superusers: two who forget each other at once must not leave the site without any.
    superusers = User.objects.filter(is_superuser=True, is_active=True)
    lock_by_number(superusers | User.objects.filter(pk=user_id), no_key=False)
    user = User.objects.get(pk=user_id)
    _check(user)
    addresses = addresses_of(user)
    _end_access(user, by, addresses)
    before = user.username
    if delete and not _has_left_a_trace(user):
        _forget_outside_of_the_engine(user, {before, *addresses}, now="a deleted account")
        user.delete()
        what = "Deleted an account that nothing refers to."
        record(experiment=None, by=by, action=AuditEntry.Action.FORGET, details={"what": what})
        return None
    user.username = _free_name()
    _forget_outside_of_the_engine(user, {before, *addresses}, now=user.username)
    _rename_in_findings(user, before)
    forget_pages()
    user.first_name = user.last_name = user.email = ""
    user.is_active = user.is_staff = user.is_superuser = False
    user.last_login = None
    user.preferences = {}
    user.forgotten_at = clock.now()
    user.set_unusable_password()
    user.save()
    InvitationUse.objects.filter(user=user).update(outside_id="", parameters=[])
    user.groups.clear()
    user.user_permissions.clear()
    what = f"Forgot a person, who is now {AuditEntry.PERSON}."
    if blank_comments:
        said = Judgment.objects.filter(annotator=user).exclude(comment="", further="")
        said.update(comment="", further="")
        Flag.objects.filter(annotator=user).exclude(comment="").update(comment="")
        what += " Their comments were blanked."
    record(experiment=None, by=by, about=user, action=AuditEntry.Action.FORGET, details={"what": what})
    return user


def _check(user: User) -> None:
    if user.forgotten_at is not None:
        raise PersonError(f"{user} has already been forgotten.")
    superusers = User.objects.filter(is_superuser=True, is_active=True)
    if user.is_superuser and not superusers.exclude(pk=user.pk).exists():
        raise PersonError(f"{user} is the only superuser. Make somebody else one first.")


def _end_access(user: User, by: User | None, addresses: set[str]) -> None:
    """End everything that lets the person in or sends them news."""
    end_all_tokens(user=user, by=by, because="The person was forgotten.")
    Token.objects.filter(user=user).update(name="", hint="")
    connections.leave(owner=user, by=by)
    for member in Membership.objects.filter(user=user).select_related("experiment"):
        try:
            remove_member(membership_id=member.pk, by=by)
        except MembershipError as refused:
            raise PersonError(f"“{member.experiment}”: {refused}") from refused
    for invitation in Invitation.objects.filter(created_by=user):
        end_invitation(invitation_id=invitation.pk, by=by)
    for subscription in subscriptions_to(addresses).select_related("experiment"):
        unsubscribe(subscription=subscription, by=by)
    for invitation in invitations_to(addresses):
        end_invitation(invitation_id=invitation.pk, by=by)
    invitations_to(addresses).update(email="", mail_key="")
    for session in sessions_of(user):
        session.delete()
    Upload.objects.filter(user=user).delete()
    Browser.objects.filter(user=user).delete()


def _has_left_a_trace(user: User) -> bool:
    """True if a row refers to it that is not deleted with the account."""
    for relation in User._meta.related_objects:
        model: Any = relation.related_model
        if model._meta.app_label != "engine" or model in _GO_WITH_THE_ACCOUNT or relation.many_to_many:
            continue
        if model.objects.filter(**{relation.field.name: user}).exists():
            return True
    return False


def _free_name() -> str:
    names = (
        f"former-annotator-{number}"
        for number in itertools.count(User.objects.exclude(forgotten_at=None).count() + 1)
    )
    return next(name for name in names if not User.objects.filter(username=name).exists())


def _forget_outside_of_the_engine(user: User, names: set[str], *, now: str) -> None:
    """Delete what Django's admin site, django-allauth and other apps keep about an account.

    ``names``: the user name and the e-mail addresses, which ``now`` replaces.
    """
    themselves = ContentType.objects.get_for_model(User)
    LogEntry.objects.filter(content_type=themselves, object_id=str(user.pk)).update(object_repr=now)
    _rename_in_admin_log(names, now)
    for relation in User._meta.related_objects:
        model: Any = relation.related_model
        if model._meta.app_label in {"engine", "admin"} or relation.many_to_many:
            continue
        model._default_manager.filter(**{relation.field.name: user}).delete()


def _rename_in_admin_log(names: set[str], now: str) -> None:
    """Rename the person in entries of the admin site's log, which quote user names and e-mail addresses."""
    # The longest first: an address may begin with the name.
    written = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    whole = re.compile(rf"(?<![\w.@+-])(?:{written})(?![\w.@+-])", re.IGNORECASE)
    for name in names:
        for entry in LogEntry.objects.filter(object_repr__icontains=name):
            entry.object_repr = whole.sub(now, entry.object_repr)[:200]
            entry.save(update_fields=["object_repr"])


def _rename_in_findings(user: User, before: str) -> None:
    """Rename the person in the stored decisions without each annotator."""
    judged = Experiment.objects.filter(comparisons__judgments__annotator=user).distinct()
    for examination in Examination.objects.select_for_update().filter(experiment__in=judged.values("pk")):
        for row in examination.findings.get("rows", ()):
            if row["annotator"] == before:
                row["annotator"] = user.username
        # Replays that are under way hold names too: they stop, and begin anew.
        worker_holds.release(Examination.objects.filter(pk=examination.pk))
        examination.replays = {}
        examination.save(update_fields=["findings", "replays"])
