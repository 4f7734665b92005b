"""The comparisons that an experiment still needs."""

from __future__ import annotations

import numpy as np

from engine.core import Plan, Remaining, Unstructured, forecast
from engine.domain.claim_settings import Rules
from engine.models import Experiment, Policy, Snapshot
from engine.selectors import designs
from engine.selectors.counts import comparison_count
from engine.selectors.measured_strengths import with_new
from engine.selectors.snapshots import latest_snapshot

# The strength of a policy less that of the one that it was made from, in log-odds: mostly a bit weaker.
_CHILD_MEAN, _CHILD_SPREAD = -0.1, 0.4


def remaining_of(experiment: Experiment, latest: Snapshot | None = None) -> Remaining | None:
    """The comparisons that remain; ``None`` if too little is known, or the experiment has none to come.

    A paused one needs as many as before its pause.

    Parameters
    ----------
    latest
        The latest snapshot, where the caller has it already.
    """
    if experiment.state not in {Experiment.State.RUNNING, Experiment.State.PAUSED}:
        return None
    latest = latest or latest_snapshot(experiment)
    if latest is None or latest.remaining is None:
        return None
    return Remaining(**latest.remaining).within(experiment.budget - latest.comparisons)


def remaining_after_joining(
    experiment: Experiment, parent: Policy, n_new: int = 1, *, losers_leave: bool, parent_leaves: bool
) -> Remaining | None:
    """The comparisons from the moment at which policies join, as by `add_policies`; ``None`` where a single
    one would be present.
    """
    design = designs.stored(experiment).design
    stay = set(experiment.policies.present().values_list("index", flat=True))
    if losers_leave and experiment.winner:
        stay = {experiment.winner.index}
    if parent_leaves:
        stay -= {parent.index}
    # Who has just joined is not measured.
    measured = [index if index < design.n_policies else None for index in (*sorted(stay), parent.index)]
    *others, origin = with_new(design.drawn_strengths(), measured).T
    noise = np.random.default_rng(1).standard_normal((n_new, origin.size))
    strengths = np.column_stack([*others, *(origin + _CHILD_MEAN + _CHILD_SPREAD * noise)])
    if strengths.shape[1] < 2:
        return None
    left = max(1, experiment.budget - comparison_count(experiment.pk))
    plan = Plan(Unstructured(strengths.shape[1]), **Rules.of(experiment).plan(), budget=left)
    return forecast(plan, strengths)
