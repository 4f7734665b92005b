"""Deletes old data. docs/privacy.md lists it, and the data kept for good."""

from datetime import datetime, timedelta
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db.models import F, Q, QuerySet

from engine.models import Invitation, Notification, ReportLink, Token, Trial, Upload, clock
from engine.services.policies import forget_tried_drafts
from engine.services.trials import forget_trials


def forget_old() -> dict[str, int]:
    """Delete rows older than the settings ``KEEP_…_DAYS``; returns their numbers by kind.

    The log of experiments stays: it is part of the record. It names people by their accounts only, and those
    can be forgotten.
    """
    ended = _days_ago(settings.KEEP_ENDED_DAYS)
    messages = _days_ago(settings.KEEP_NOTIFICATIONS_DAYS)
    # It ended when the last one joined.
    used_up = Q(uses__gte=F("most_uses"), created_at__lt=ended) & ~Q(used_by__at__gte=ended)
    old: dict[str, QuerySet[Any]] = {
        "sessions": Session.objects.filter(expire_date__lt=clock.now()),
        # After the sessions, so that each goes with its own.
        "browsers": UserSession.objects.exclude(session_key__in=Session.objects.values("session_key")),
        "invitations": Invitation.objects.filter(Q(expires_at__lt=ended) | Q(ended_at__lt=ended) | used_up),
        "report links": ReportLink.objects.filter(Q(expires_at__lt=ended) | Q(ended_at__lt=ended)),
        "API tokens": Token.objects.filter(Q(expires_at__lt=ended) | Q(revoked_at__lt=ended)),
        "notifications": Notification.objects.filter(created_at__lt=messages).exclude(
            state=Notification.State.WAITING
        ),
        "uploads": Upload.objects.filter(created_at__lt=clock.now() - Upload.KEPT_FOR),
        "admin site's log": LogEntry.objects.filter(action_time__lt=_days_ago(settings.KEEP_ADMIN_LOG_DAYS)),
    }
    gone = {name: rows.delete()[1].get(rows.model._meta.label, 0) for name, rows in old.items()}
    before = clock.now() - Trial.KEPT_FOR
    forget_tried_drafts(before=before)
    return gone | {"trials": forget_trials(before=before)}


def _days_ago(days: int) -> datetime:
    return clock.now() - timedelta(days=days)
