"""The result that an experiment would have without the judgments of one annotator."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from engine.core import Design
from engine.core.robustness import summed_wins
from engine.domain.rules import LADDER
from engine.models import Experiment, User
from engine.selectors import counts, designs, sequences

_NAMES = dict(Experiment.CLAIMS)


@dataclass(frozen=True)
class Standing:
    """The result of some of an experiment's judgments.

    Attributes
    ----------
    comparisons
        The comparisons that count.
    leader
        Name of the leading policy; empty where nothing counts.
    claims
        Names of the claims that hold; ``None`` where the evidence is not known.
    """

    comparisons: int
    leader: str
    claims: list[str] | None


@dataclass(frozen=True)
class LeavingOut:
    """The judgments of one annotator that would be voided, and the result before and after."""

    judgments: int
    now: Standing
    then: Standing

    @property
    def comparisons_lost(self) -> int:
        """The comparisons that would leave the evidence until somebody judges them again."""
        return self.now.comparisons - self.then.comparisons

    @property
    def leader_changes(self) -> bool:
        """True if another policy would lead."""
        return self.then.leader not in {"", self.now.leader}


def leaving_out(experiment: Experiment, annotator: User, *, seconds: float = math.inf) -> LeavingOut:
    """The result with and without the judgments of an annotator. Changes nothing.

    ``seconds``: time for replaying the evidence without them. If it runs out, the claims that would hold are
    not known; the leader always is.
    """
    judgments = counts.standing_judgments(experiment.pk).filter(annotator=annotator).count()
    known = designs.continued(experiment)
    now = designs.known_design(experiment) if known is None else known.design
    return LeavingOut(
        judgments=judgments,
        now=_standing(now, counts.comparison_count(experiment.pk), known is not None),
        then=_without(experiment, annotator, time.monotonic() + seconds),
    )


def _without(experiment: Experiment, annotator: User, deadline: float) -> Standing:
    outcomes = sequences.outcomes_without(experiment, [annotator.pk])[annotator.pk]
    n_judged = sum(outcome is not None for _, _, outcome in outcomes)
    of, labels = designs.labelled_space(experiment)
    settings = designs.design_settings(experiment)
    design = Design(of, labels=labels, **settings)
    for each in outcomes:
        if design.stopped:
            break
        if time.monotonic() >= deadline:
            wins = summed_wins(of.n_policies, outcomes)
            return _standing(Design.from_counts(of, wins, labels=labels, **settings), n_judged, False)
        design.tell(*each)
    return _standing(design, n_judged, True)


def _standing(design: Design, comparisons: int, evidence_known: bool) -> Standing:
    decision = design.decision
    held = {state.claim for state in decision.claims if state.holds or state.follows_from}
    return Standing(
        comparisons=comparisons,
        leader="" if decision.best is None or not comparisons else design.labels[decision.best],
        claims=[_NAMES[claim.value] for claim in LADDER if claim in held] if evidence_known else None,
    )
