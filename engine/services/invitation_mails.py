"""Invitations by e-mail, through the outbox."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from engine.domain.credentials import hashed, secret_from
from engine.domain.errors import InvitationError
from engine.domain.limits import MAILED
from engine.domain.mail_state import mail_is_sent
from engine.models import AuditEntry, Experiment, Invitation, Notification, User, clock
from engine.services.audit import record
from engine.services.invitations import make_invitation, open_invitation
from engine.services.locks import locked_experiment

EVENT = "invitation"


# ---------------------------------------------------------------- words


def validity(invitation: Invitation) -> str:
    """ "works once, until Friday 27 November": the uses and the end of a link."""
    most = invitation.most_uses
    uses = "once" if most == 1 else f"for up to {most:,} people"
    return f"works {uses}, until {day_in_words(invitation.expires_at)}"


def day_in_words(moment: datetime) -> str:
    """ "Friday 27 November", with the year unless it is this one."""
    today, day = timezone.localtime(clock.now()), timezone.localtime(moment)
    year = "" if day.year == today.year else f" {day.year}"
    return f"{day:%A} {day.day} {day:%B}{year}"


def message(invitation: Invitation) -> str:
    """The text before the link, in an e-mail or in a message that somebody sends by hand."""
    facts = {"invitation": invitation, "validity": validity(invitation)}
    return render_to_string("mail/invitation.txt", facts).strip()


# ---------------------------------------------------------------- sending


@transaction.atomic
def invite_by_mail(
    *, experiment: Experiment, by: User, role: str, addresses: Sequence[str], valid_days: int
) -> list[Invitation]:
    """Send each address a link of its own, which works once.

    Raises
    ------
    InvitationError
        Mail is not configured; an address is invalid or given twice; or there are too many for one day.
    MembershipError
        ``by`` may not give this role.
    """
    _check(addresses)
    made = []
    for address in addresses:
        mail_key = secrets.token_urlsafe(32)
        invitation = make_invitation(
            experiment=experiment,
            by=by,
            role=role,
            most_uses=1,
            valid_days=valid_days,
            secret=secret_from(mail_key),
            email=address,
            mail_key=mail_key,
        )
        made.append(invitation)
    # Each of them holds the experiment's lock, so that two senders at once do not pass the limit together.
    for invitation in made:
        _send(invitation, by)
    return made


@transaction.atomic
def resend(*, invitation_id: int, by: User) -> Invitation:
    """Send an invitation's link again; the link and its expiry do not change.

    Raises
    ------
    InvitationError
        It has no address, it has ended, or its last message is not sent yet.
    """
    found = Invitation.objects.select_related("experiment").get(pk=invitation_id)
    locked_experiment(found.experiment_id)
    invitation = open_invitation(invitation_id=invitation_id)
    _check([invitation.email])
    if invitation.notifications.filter(state=Notification.State.WAITING).exists():
        raise InvitationError("The last message is still on its way. Wait until it is sent or has failed.")
    _send(invitation, by)
    return invitation


def secret_to_send(invitation: Invitation) -> str:
    """The secret of the link to send now.

    Raises
    ------
    InvitationError
        The invitation has ended, or SECRET_KEY has changed since.
    """
    open_invitation(invitation_id=invitation.pk)
    secret = secret_from(invitation.mail_key)
    if hashed(secret) != invitation.hash:
        raise InvitationError("SECRET_KEY has changed since then. End this invitation, and make another one.")
    return secret


def _check(addresses: Sequence[str]) -> None:
    if not mail_is_sent():
        raise InvitationError("Mail is not configured here, so no invitation is sent. Make a link instead.")
    seen = set()
    for address in addresses:
        try:
            validate_email(address)
        except ValidationError as error:
            raise InvitationError(
                f"“{address}” is not an e-mail address. Give one a line, such as name@example.org."
            ) from error
        if address.lower() in seen:
            raise InvitationError(f"{address} is there twice. Each person gets one invitation.")
        seen.add(address.lower())


def _send(invitation: Invitation, by: User) -> None:
    experiment = invitation.experiment
    yesterday = clock.now() - timedelta(days=1)
    sent = Notification.objects.filter(invitation__experiment=experiment, created_at__gt=yesterday).count()
    if refusal := MAILED.refusal(sent + 1):
        raise InvitationError(refusal)
    Notification.objects.create(
        invitation=invitation,
        event=EVENT,
        key=f"{EVENT} {secrets.token_hex(8)}",
        # The inviter's name is added on sending: names are stored with accounts only.
        subject=experiment.name,
        text=message(invitation),
    )
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.MAIL_INVITATION,
        details={"role": invitation.role},
    )
