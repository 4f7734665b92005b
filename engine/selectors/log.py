"""The log of an experiment, and its subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from engine.models import AuditEntry, Experiment, Notification, Subscription


def audit_entries(experiment: Experiment) -> QuerySet[AuditEntry]:
    """Newest first, each with who did it, and to whom."""
    return experiment.audit_entries.select_related("by", "about").order_by("-pk")


def subscriptions(experiment: Experiment) -> Sequence[Subscription]:
    """Each with the words for its events (``wanted``) and the newest message that was written to it
    (``latest``).
    """
    rows = list(experiment.subscriptions.select_related("created_by").order_by("pk"))
    for row in rows:
        row.wanted = [Subscription.Event(event).label for event in row.events]  # type: ignore[attr-defined]  # for the page
        row.latest = Notification.objects.filter(subscription=row).order_by("-pk").first()  # type: ignore[attr-defined]  # for the page
    return rows
