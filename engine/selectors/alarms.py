"""Trouble of a running experiment, cheap enough to be checked at every sweep."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from engine.models import AuditEntry, Comparison, Experiment, Judgment, Response, clock
from engine.selectors import workers

_BEGINNINGS = (AuditEntry.Action.START, AuditEntry.Action.RESUME, AuditEntry.Action.REOPEN)


def trouble(experiment: Experiment) -> str:
    """The reason why responses are not written as they should be; empty if they are."""
    waiting = Response.objects.filter(policy__experiment=experiment, state=Response.State.WAITING)
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    worker = workers.latest("generation")
    if worker is None:
        return "No generation worker has ever run. Start one."
    if not worker.alive:
        return f"No generation worker has run since {worker.seen_at:%Y-%m-%d %H:%M} UTC. Start one."
    if oldest is not None and clock.now() - oldest > timedelta(seconds=60):
        return (
            "Responses have waited for more than a minute: the generation workers are too slow. Start "
            "another one."
        )
    return ""


def stall(experiment: Experiment) -> str:
    """Since when nobody has judged although pairs were ready; empty where somebody did, or had nothing to
    judge.
    """
    since = clock.now() - timedelta(hours=settings.STALL_HOURS)
    ready = Comparison.objects.filter(experiment=experiment, state=Comparison.State.READY, ready_at__lt=since)
    if not ready.exists():
        return ""
    if Judgment.objects.filter(created_at__gte=since, comparison__experiment=experiment).exists():
        return ""
    if experiment.audit_entries.filter(action__in=_BEGINNINGS, at__gte=since).exists():
        return ""
    return (
        f"Nobody has judged a pair for {settings.STALL_HOURS:g} hours, although {ready.count()} pairs "
        "are ready."
    )
