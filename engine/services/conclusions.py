"""Keeps each conclusion as it was drawn."""

import dataclasses

from engine.core import ClaimState, Conclusion
from engine.domain import claim_sentences
from engine.models import Conclusion as Stored
from engine.models import Experiment
from engine.selectors.consequences import claim_changed, joint_risk
from engine.selectors.designs import Observed
from engine.selectors.findings import picked_risk
from engine.selectors.task_changes import added_risk


def keep_conclusions(*, experiment: Experiment, observed: Observed) -> None:
    """Store the conclusions of a locked experiment's design that are not stored yet.

    Under another claim, risk or margin the evidence is replayed, and a design knows nothing of what was
    concluded before: the risks of both add up.
    """
    drawn = observed.design.decision.conclusions
    if not drawn:
        return
    kept = list(experiment.conclusions.all())
    own = [each for each in kept if _rules(each) == _rules(experiment)]
    known = {(each.stage, each.policy, tuple(each.among)) for each in own}
    before = [each.joint_risk for each in kept if _rules(each) != _rules(experiment)]
    # Whoever changed the claim has chosen among several.
    chosen = joint_risk(experiment) - experiment.delta if claim_changed(experiment) else 0.0
    for each in drawn:
        told = dataclasses.replace(each, risk=each.risk + chosen, joint_risk=each.joint_risk + chosen)
        if (told.stage, told.policy, told.among) not in known:
            _store(experiment, observed, told, before[-1] if before else 0.0)


def keep_picked(*, experiment: Experiment, observed: Observed, state: ClaimState) -> None:
    """Store the claim that somebody stops a locked experiment on, after a look at several."""
    if state.claim == experiment.claim:
        return
    before = experiment.conclusions.last()
    design = observed.design
    told = Conclusion(
        stage=design.stage,
        claim=state.claim,
        policy=state.policy,
        among=tuple(design.present.nonzero()[0].tolist()),
        risk=(risk := picked_risk(experiment, design)),
        joint_risk=risk,
    )
    _store(experiment, observed, told, before.joint_risk if before else 0.0)


def _store(experiment: Experiment, observed: Observed, told: Conclusion, before: float) -> None:
    own, of_all = added_risk(experiment)
    told = dataclasses.replace(
        told, risk=min(1.0, told.risk + own), joint_risk=min(1.0, before + told.joint_risk + of_all)
    )
    Stored.objects.create(
        **dataclasses.asdict(told) | {"among": list(told.among), "claim": told.claim.value},
        experiment=experiment,
        delta=experiment.delta,
        epsilon=experiment.epsilon,
        comparisons=observed.design.n_comparisons,
        text=claim_sentences.earlier(observed.design, told),
    )


def _rules(of: Experiment | Stored) -> tuple[str, float, float]:
    return of.claim, of.delta, of.epsilon
