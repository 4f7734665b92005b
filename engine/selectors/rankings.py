"""The policies as the judgments so far rank them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.core import Claim, Place, Standing
from engine.domain.policy_space import PolicyName
from engine.models import Experiment
from engine.selectors import designs
from engine.selectors.designs import Observed
from engine.selectors.policies import policy_names

Word = Literal["winner", "leads", "may be as good", "beaten", "open", "ruled out"]


@dataclass(frozen=True)
class Ranked:
    """One policy: its names, its standing as `engine.core` has it, the number of its judged comparisons, and
    the word for its standing on pages, in files and in the API.
    """

    name: PolicyName
    standing: Standing
    comparisons: int
    word: Word


def ranking(experiment: Experiment, observed: Observed | None = None) -> list[Ranked]:
    """All policies, the leader first. Ready at once after an import: nothing is replayed for it.

    While the evidence is being recomputed, a policy counts as ruled out only by the present counts.

    ``observed``: the present evidence, where the caller has it already.
    """
    names = policy_names(experiment)
    design = (observed or designs.load(experiment)).design
    if design.stopped or experiment.state == Experiment.State.CONCLUDED:
        design = designs.load(experiment, late=True).design
    comparisons = design.counts.sum(axis=1)
    judged = bool(comparisons.any())
    return [
        Ranked(
            names[each.policy],
            each,
            round(comparisons[each.policy]),
            _word(experiment, each, judged=judged),
        )
        for each in design.ranking()
    ]


def _word(experiment: Experiment, standing: Standing, *, judged: bool) -> Word:
    """The word for the standing of a policy. Before anything was ``judged`` nobody leads."""
    winner = experiment.winner
    if winner is not None and standing.policy == winner.index:
        return "winner"
    if standing.place is Place.RULED_OUT:
        return "ruled out"
    if standing.place is Place.LEADS and judged:
        return "leads"
    if winner is None:
        return "open"
    return "beaten" if experiment.certified_claim == Claim.BEST else "may be as good"
