"""Pairs that wait while nobody judges, by queries that are cheap enough for every sweep."""

from datetime import timedelta

from django.conf import settings

from engine.models import AuditEntry, Comparison, Experiment, Judgment, clock

_BEGINNINGS = (AuditEntry.Action.START, AuditEntry.Action.RESUME, AuditEntry.Action.REOPEN)


def stall(experiment: Experiment) -> str:
    """A sentence if pairs have been ready for `STALL_HOURS` and nobody has judged; empty otherwise.

    An experiment that was started, resumed or reopened within these hours has not stalled.
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
