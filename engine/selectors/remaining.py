"""The comparisons that an experiment still needs."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from engine.core import Factorial, Plan, Remaining, Unstructured, forecast
from engine.core.spaces import Space
from engine.domain.claim_settings import Rules
from engine.domain.policy_space import Combination, policy_space
from engine.models import Experiment, Policy, Snapshot
from engine.selectors import designs
from engine.selectors.counts import comparison_count
from engine.selectors.measured_strengths import with_new
from engine.selectors.policies import combinations_of
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
    experiment: Experiment,
    parent: Policy,
    new: Sequence[Combination],
    *,
    losers_leave: bool,
    parent_leaves: bool,
) -> Remaining | None:
    """The comparisons from the moment at which policies join, as by `add_policies`; ``None`` where a single
    one would be present.
    """
    design, known = designs.stored(experiment).design, combinations_of(experiment)
    stay = set(experiment.policies.present().values_list("index", flat=True))
    if losers_leave and experiment.winner:
        stay = {experiment.winner.index}
    if parent_leaves:
        stay -= {parent.index}
    policies = [*(known[index] for index in sorted(stay)), *new]
    if len(policies) < 2:
        return None
    # Who has just joined is not measured.
    measured = [index if index < design.n_policies else None for index in (*sorted(stay), parent.index)]
    *others, origin = with_new(design.drawn_strengths(), measured).T
    noise = np.random.default_rng(1).standard_normal((len(new), origin.size))
    strengths = np.column_stack([*others, *(origin + _CHILD_MEAN + _CHILD_SPREAD * noise)])
    space = _space(experiment, policies)
    if isinstance(space, Factorial):
        strengths = strengths[:, [policies.index(cast(Combination, each)) for each in space.policies]]
    left = max(1, experiment.budget - comparison_count(experiment.pk))
    return forecast(Plan(space, **Rules.of(experiment).plan(), budget=left), strengths)


def _space(experiment: Experiment, policies: Sequence[Combination]) -> Space:
    factors = experiment.factors.order_by("position").values_list("name", flat=True)
    levels = {
        name: list(dict.fromkeys(each))
        for name, each in zip(factors, zip(*policies, strict=True), strict=True)
    }
    try:
        return policy_space(experiment.space, levels, policies)
    except ValueError:  # they do not tell the levels apart
        return Unstructured(len(policies))
