"""Empties the outbox."""

import json
import logging
import smtplib
from typing import cast

from django.conf import settings
from django.core.mail import EmailMessage
from django.urls import reverse

from engine.domain.errors import InvitationError, KeyUnreadableError
from engine.domain.forges import status_call
from engine.domain.mail_state import why_no_mail
from engine.models import Notification, Subscription
from engine.notifying.chat_messages import for_slack, for_teams
from engine.notifying.signed_calls import WebhookError, call
from engine.services.invitation_mails import secret_to_send
from engine.services.keys import token_of
from engine.services.notifications import claim_due, mark_sent, mark_unsent

logger = logging.getLogger(__name__)
# A task must end soon, because its worker has other work.
_MOST = 20


def deliver_due() -> int:
    """Send all due messages once; returns the number of attempts."""
    for number in range(_MOST):
        notification = claim_due()
        if notification is None:
            return number
        _deliver(notification)
    return _MOST


def _deliver(notification: Notification) -> None:
    subscription = notification.subscription
    by_mail = subscription is None or subscription.kind == Subscription.Kind.EMAIL
    try:
        if subscription is not None and not by_mail:
            _call(subscription, notification)
        else:
            _mail(notification)
    except WebhookError as error:
        logger.warning("Notification %s was not sent: %s", notification.pk, error)
        mark_unsent(notification=notification, error=str(error), final=error.final)
    except (InvitationError, KeyUnreadableError) as error:
        mark_unsent(notification=notification, error=str(error), final=True)
    except (OSError, smtplib.SMTPException) as error:
        # A server that refuses a recipient quotes the address: keep it out of the worker's log.
        address = notification.address
        said = str(error).replace(address, f"somebody at {address.rpartition('@')[2]}")
        logger.warning("Notification %s was not sent: %s", notification.pk, said)
        mark_unsent(notification=notification, error=f"The mail server: {said}")
    else:
        # console:// wrote it into this worker's log, which reaches nobody.
        if by_mail and (reason := why_no_mail()):
            mark_unsent(notification=notification, error=reason, final=True)
        else:
            mark_sent(notification=notification)


def _call(subscription: Subscription, notification: Notification) -> None:
    if subscription.kind in Subscription.FORGES:
        told = json.loads(notification.text)
        url, headers, status = status_call(
            subscription.kind,
            subscription.target,
            token_of(subscription),
            sha=told["sha"],
            state=told["state"],
            experiment=subscription.experiment_id,
            words=notification.subject,
            link=_address(reverse("dashboard", args=[told["experiment"]])),
        )
        call(url=url, secret="", body=json.dumps(status).encode(), delivery="", headers=headers)
        return
    call(
        url=subscription.target,
        secret=subscription.secret,
        body=_body(subscription, notification),
        delivery=str(notification.pk),
    )


def _body(subscription: Subscription, notification: Notification) -> bytes:
    if subscription.kind == Subscription.Kind.WEBHOOK:
        return webhook_body(subscription, notification)
    shape = for_slack if subscription.kind == Subscription.Kind.SLACK else for_teams
    return shape(notification.subject, notification.text, _dashboard(subscription))


def webhook_body(subscription: Subscription, notification: Notification) -> bytes:
    """The body that a webhook receives; documented in docs/api.md."""
    experiment = subscription.experiment
    return json.dumps(
        {
            "event": notification.event,
            "subject": notification.subject,
            "text": notification.text,
            "at": notification.created_at.isoformat(),
            "experiment": {
                "id": experiment.pk,
                "name": experiment.name,
                "state": experiment.state,
                "conclusion": experiment.conclusion,
                "winner": None if experiment.winner is None else experiment.winner.label,
                "url": _dashboard(subscription),
            },
        }
    ).encode()


def _mail(notification: Notification) -> None:
    subject = notification.subject
    if (invitation := notification.invitation) is not None:
        subject = f"{invitation.created_by} invites you: {subject}"
        link = _address(reverse("join", args=[secret_to_send(invitation)]))
    else:
        link = _dashboard(cast(Subscription, notification.subscription))
    EmailMessage(
        # A name with a line break in it must not become a header.
        subject=" ".join(subject.split()),
        body=f"{notification.text}\n\n{link}\n",
        to=[notification.address],
        headers={"X-LLMPO-Delivery": str(notification.pk), "Auto-Submitted": "auto-generated"},
    ).send()


def _dashboard(subscription: Subscription) -> str:
    return _address(reverse("dashboard", args=[subscription.experiment_id]))


def _address(path: str) -> str:
    return settings.SITE_URL + path
