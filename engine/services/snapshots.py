"""Stores the state of the evidence after some number of comparisons."""

from dataclasses import asdict

from engine.models import Experiment, Snapshot
from engine.selectors.designs import Observed


def write_snapshot(*, experiment: Experiment, observed: Observed) -> Snapshot:
    """Add a point to the evidence race, in the caller's transaction. The evidence is then up to date."""
    if experiment.evidence_stale:
        experiment.evidence_stale = False
        experiment.save(update_fields=["evidence_stale"])
    design = observed.design
    decision, remaining = design.decision, design.remaining
    voided: float = sum(won for _, _, won in design.progress["left_out"])
    policy_ids = [policy.pk for policy in experiment.policies.all()]
    return Snapshot.objects.create(
        experiment=experiment,
        comparisons=design.n_comparisons - round(voided),
        evidence=design.evidence.tolist(),
        peak_evidence=design.peak_evidence.tolist(),
        threshold=decision.threshold,
        best_id=None if decision.best is None else policy_ids[decision.best],
        open_rivals=len(decision.open) if decision.n_comparisons else design.n_policies - 1,
        remaining=remaining and asdict(remaining),
        reason=decision.reason or "",
    )
