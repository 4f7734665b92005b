"""The policies as the judgments so far rank them."""

from dataclasses import dataclass
from typing import Literal

from engine.core import Claim, Place, Standing
from engine.domain.claim_settings import CERTIFIED
from engine.domain.policy_space import PolicyName
from engine.models import Experiment
from engine.selectors import designs
from engine.selectors.designs import Observed
from engine.selectors.policies import policy_names

Word = Literal[
    "winner", "leads", "open", "not clearly better", "beaten", "ruled out", "perhaps as good", "retired"
]


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
    """All policies: the leader, and the others by their win rates against it. Ready at once after an import:
    nothing is replayed for it.

    While the evidence is being recomputed, the present counts alone exclude rivals.

    ``observed``: the evidence as it is shown, where the caller has it already.
    """
    names = policy_names(experiment)
    design = (observed or designs.shown(experiment)).design
    decision = design.decision
    still_open = decision.open if decision.n_comparisons else range(design.n_policies)
    if design.stopped or experiment.state == Experiment.State.CONCLUDED:
        # Late clicks count in the win rates, and not in the decision.
        design = designs.load(experiment, late=True).design
    beats_all = {each.policy for each in decision.claims if each.claim is Claim.BEST and each.holds}
    comparisons = design.counts.sum(axis=1)
    judged = bool(comparisons.any())
    return [
        Ranked(
            names[each.policy],
            each,
            round(comparisons[each.policy]),
            _word(experiment, each, beats_all, excluded=each.policy not in still_open, judged=judged),
        )
        for each in design.ranking()
    ]


def _word(
    experiment: Experiment, standing: Standing, beats_all: set[int | None], *, excluded: bool, judged: bool
) -> Word:
    """The word for the standing of a policy. Before anything was ``judged`` nobody leads."""
    winner = experiment.winner
    if standing.place is Place.RETIRED:
        return "retired"
    if winner is None:
        if standing.place is Place.LEADS and judged:
            return "leads"
        return excluded_word(experiment) if excluded else "open"
    if standing.policy == winner.index:
        return "winner"
    if experiment.certified_claim == Claim.BEST or winner.index in beats_all:
        return "beaten"
    is_out = experiment.certified_claim == Claim.BEST_IF_ANY or standing.place is Place.RULED_OUT
    return "ruled out" if is_out else "perhaps as good"


def excluded_word(experiment: Experiment) -> Word:
    """The word for a rival that the claim to stop on has excluded."""
    claim = experiment.claim if experiment.stopping == CERTIFIED else ""
    if claim == Claim.GOOD_ENOUGH:
        return "not clearly better"
    return "beaten" if claim == Claim.BEST else "ruled out"
