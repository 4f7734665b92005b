"""The log of an experiment, and its subscriptions."""

from dataclasses import dataclass

from django.db.models import OuterRef, QuerySet, Subquery

from engine.models import AuditEntry, Experiment, Notification, Subscription


def audit_entries(experiment: Experiment) -> QuerySet[AuditEntry]:
    """The entries of the log, newest first, each with its author and the person concerned."""
    return experiment.audit_entries.select_related("by", "about").order_by("-pk")


@dataclass(frozen=True)
class Subscribed:
    """A subscription, and the newest message that was written to it; ``None`` before the first."""

    subscription: Subscription
    latest: Notification | None


def subscriptions(experiment: Experiment) -> list[Subscribed]:
    """The subscriptions of an experiment, the oldest first."""
    newest = Notification.objects.filter(subscription=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    rows = list(experiment.subscriptions.select_related("created_by").order_by("pk"))
    latest = Notification.objects.filter(
        pk__in=experiment.subscriptions.order_by().values_list(Subquery(newest))
    )
    by_subscription = {each.subscription_id: each for each in latest}
    return [Subscribed(row, by_subscription.get(row.pk)) for row in rows]
