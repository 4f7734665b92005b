"""Stores the state of the evidence after some number of comparisons."""

from __future__ import annotations

from engine.models import Experiment, Snapshot
from engine.selectors.compiled import EXPERIMENT
from engine.selectors.designs import Observed
from engine.services.compiled_writes import Update, inserting, write


def write_snapshot(*, experiment: Experiment, observed: Observed) -> Snapshot:
    """Add a point to the evidence race, in the caller's transaction. The evidence is then up to date."""
    if experiment.evidence_stale:
        experiment.evidence_stale = False
        experiment.save(update_fields=["evidence_stale"])
    design = observed.design
    progress = design.progress
    decision = design.decision
    policy_ids = [policy.pk for policy in experiment.policies.all()]
    snapshot = Snapshot(
        experiment=experiment,
        comparisons=decision.n_comparisons,
        evidence=[float(value) for value in design.evidence],
        **progress,
        last_judgment=observed.last_judgment,
        threshold=decision.threshold,
        best_id=None if decision.best is None else policy_ids[decision.best],
        open_rivals=len(decision.open) if decision.n_comparisons else design.n_policies - 1,
        expected_left=decision.expected_left,
        reason=decision.reason or "",
    )
    write(_WITHOUT_STREAMS.of(experiment=experiment.pk), inserting(snapshot))
    return snapshot


# They are far larger than the rest of a snapshot, and only those of the newest are read again.
_WITHOUT_STREAMS = Update(Snapshot.objects.filter(experiment=EXPERIMENT, streams__isnull=False), streams=None)
