"""What is wrong with a running experiment, cheap enough to be asked at every sweep."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from engine.models import AuditEntry, Comparison, Experiment, Judgment, Response, WorkerPulse
from engine.selectors.capabilities import is_recent

_BEGINNINGS = (AuditEntry.Action.START, AuditEntry.Action.RESUME, AuditEntry.Action.REOPEN)


def trouble(experiment: Experiment) -> str:
    """Why responses are not being written as they should be; empty where they are."""
    waiting = Response.objects.filter(policy__experiment=experiment, state=Response.State.WAITING)
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    seen_at = (
        WorkerPulse.objects.filter(queue="generation")
        .order_by("-seen_at")
        .values_list("seen_at", flat=True)
        .first()
    )
    now = timezone.now()
    if seen_at is None:
        return "No generation worker has ever been seen; start one."
    if not is_recent((now - seen_at).total_seconds()):
        return f"No generation worker has been seen since {seen_at:%Y-%m-%d %H:%M} UTC; start one."
    if oldest is not None and now - oldest > timedelta(seconds=60):
        return "Responses have been waiting for more than a minute: the generation workers do not keep up."
    return ""


def stall(experiment: Experiment) -> str:
    """Since when nobody has judged although pairs were ready; empty where somebody did, or had nothing to judge."""
    since = timezone.now() - timedelta(hours=settings.STALL_HOURS)
    ready = Comparison.objects.filter(experiment=experiment, state=Comparison.State.READY, ready_at__lt=since)
    if not ready.exists():
        return ""
    if Judgment.objects.filter(created_at__gte=since, comparison__experiment=experiment).exists():
        return ""
    if experiment.audit_entries.filter(action__in=_BEGINNINGS, at__gte=since).exists():
        return ""
    return f"Nobody has judged a pair for {settings.STALL_HOURS:g} hours, and {ready.count()} are ready."
