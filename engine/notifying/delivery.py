"""Empties the outbox."""

from __future__ import annotations

import json
import logging
import smtplib

from django.conf import settings
from django.core.mail import EmailMessage
from django.urls import reverse

from engine.domain.mail import why_no_mail
from engine.models import Notification, Subscription
from engine.notifying.webhook import WebhookError, call
from engine.services.notifications import claim_due, mark_sent, mark_unsent

logger = logging.getLogger(__name__)
# A task must end soon, because its worker has other work.
_MOST = 20


def deliver_due() -> int:
    """Send what is due, each message once; returns how many were tried."""
    for number in range(_MOST):
        notification = claim_due()
        if notification is None:
            return number
        _deliver(notification)
    return _MOST


def _deliver(notification: Notification) -> None:
    subscription = notification.subscription
    try:
        if subscription.kind == Subscription.Kind.EMAIL:
            _mail(notification)
        else:
            call(
                url=subscription.target,
                secret=subscription.secret,
                body=webhook_body(notification),
                delivery=str(notification.pk),
            )
    except WebhookError as error:
        logger.warning("Notification %s was not sent: %s", notification.pk, error)
        mark_unsent(notification=notification, error=str(error), final=error.final)
    except (OSError, smtplib.SMTPException) as error:
        # A server that refuses a recipient quotes the address: keep it out of the worker's log.
        said = str(error).replace(subscription.target, f"somebody at {subscription.host}")
        logger.warning("Notification %s was not sent: %s", notification.pk, said)
        mark_unsent(notification=notification, error=f"The mail server: {said}")
    else:
        # console:// wrote it into this worker's log, which reaches nobody.
        if subscription.kind == Subscription.Kind.EMAIL and (reason := why_no_mail()):
            mark_unsent(notification=notification, error=reason, final=True)
        else:
            mark_sent(notification=notification)


def webhook_body(notification: Notification) -> bytes:
    """The body that a webhook receives; documented in docs/api.md."""
    experiment = notification.subscription.experiment
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
                "url": _url(notification),
            },
        }
    ).encode()


def _mail(notification: Notification) -> None:
    EmailMessage(
        # A name with a line break in it must not become a header.
        subject=" ".join(notification.subject.split()),
        body=f"{notification.text}\n\n{_url(notification)}\n",
        to=[notification.subscription.target],
        headers={"X-LLMPO-Delivery": str(notification.pk), "Auto-Submitted": "auto-generated"},
    ).send()


def _url(notification: Notification) -> str:
    path = reverse("dashboard", args=[notification.subscription.experiment_id])
    return settings.SITE_URL.rstrip("/") + path
