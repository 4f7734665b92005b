"""The ladder of an experiment's claims, and the sentences of its conclusion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Q, QuerySet

from engine.core import Claim, ClaimState, Decision, Design, StopReason
from engine.core.contradictions import Misfit, is_qualified, misfit, summed_ties
from engine.core.robustness import summed_wins
from engine.core.spaces import BradleyTerry
from engine.core.types import Missing
from engine.domain import claim_sentences
from engine.domain.claim_settings import LADDER
from engine.domain.wording import moment, number, two_digits
from engine.models import Conclusion, Experiment, Judgment
from engine.selectors import consequences, counts, designs
from engine.selectors.designs import Observed
from engine.selectors.pool_claims import of_pool, unproven
from engine.selectors.remaining import remaining_of
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.task_changes import risk_of_changes

_NAMES = dict(Experiment.CLAIMS)


@dataclass(frozen=True)
class Rung:
    """One claim, and how far it has come.

    Attributes
    ----------
    claim, name
        Which one, and its name on pages.
    stops
        True for the claim that the experiment is to stop on.
    holds
        True if its own evidence establishes it at the accepted risk.
    follows_from
        The claim that holds and implies it, where its own evidence does not suffice; ``None`` elsewhere.
    policy
        Index of the policy that it names, or comes closest to naming.
    n_open
        Number of policies that it has still to exclude; 0 where it holds or follows.
    text
        The claim, its assumptions, and whether one person gave all judgments; or what is missing.
    qualified
        True if it holds only if the levels' effects add up, and no test with power supports that.
    contradicted
        True if the text says that the evidence establishes the opposite, too.
    risk
        The probability, at most, that it is wrong where it holds: δ for each stage that it uses.
    """

    claim: Claim
    name: str
    stops: bool
    holds: bool
    follows_from: Claim | None
    policy: int | None
    n_open: int
    text: str
    qualified: bool
    contradicted: bool
    risk: float


@dataclass(frozen=True)
class ByAnswers:
    """The policy that the answers alone name, by its index, where pairs without an outcome keep the claim
    from holding.

    ``gamma``: how much oftener outcomes may be missing where they speak against it; ``text`` says it.
    """

    policy: int
    gamma: float
    text: str


@dataclass(frozen=True)
class Ladder:
    """The claims from the weakest to the strongest.

    It is empty where the stopping rule makes no claims, and while the evidence has still to be replayed.

    Attributes
    ----------
    rungs
        The claims.
    n_claims, joint_risk
        Among how many claims somebody chooses who picks one after looking, and the risk of that, in [0, 1].
    unproven
        A sentence where the risks are not proven; empty where they are.
    by_answers
        ``None`` where the claim to stop on holds, and where the answers alone would not do either.
    conclusions
        All that were drawn, the oldest first, each with its time; empty where the result says the only one.
    risk_of_all
        The risk of these, in words.
    """

    rungs: list[Rung]
    n_claims: int
    joint_risk: float
    unproven: str = ""
    by_answers: ByAnswers | None = None
    conclusions: Sequence[str] = ()
    risk_of_all: str = ""

    @property
    def shown(self) -> list[Rung]:
        """Those to read at a glance: the claim that the experiment is to stop on, and all that hold."""
        return [rung for rung in self.rungs if rung.holds or rung.stops]

    @property
    def goal(self) -> Rung | None:
        """The claim that the experiment is to stop on."""
        return next((rung for rung in self.rungs if rung.stops), None)


def ladder(experiment: Experiment, observed: Observed | None = None) -> Ladder:
    """The claims by the evidence as it is shown, or by that which a caller has."""
    drawn = list(experiment.conclusions.all())
    # One that the result says already is not listed.
    if len(drawn) == 1 and experiment.certified_claim == drawn[0].claim:
        drawn = []
    conclusions = [
        f"{moment(each.created_at)}, after {number(each.comparisons, 'comparison')}: {each.text}"
        for each in drawn
    ]
    if experiment.evidence_stale:
        return Ladder([], 0, 1.0, conclusions=conclusions)
    observed = observed or designs.shown(experiment)
    design = observed.design
    if design.withheld:
        return Ladder(
            [], 0, 1.0, conclusions=conclusions, risk_of_all=_risk_of_all(experiment, design, drawn)
        )
    decision, tested = design.decision, _model_test(experiment, observed)
    states = {state.claim: state for state in decision.claims}
    told = _told(experiment, observed) if any(state.holds for state in states.values()) else _Told()
    return Ladder(
        rungs=[_rung(states[claim], design, told, tested) for claim in LADDER if claim in states],
        n_claims=consequences.claims_to_choose(experiment),
        joint_risk=picked_risk(experiment, design),
        unproven=unproven(experiment),
        by_answers=_by_answers(experiment, design, decision),
        conclusions=conclusions,
        risk_of_all=_risk_of_all(experiment, design, drawn),
    )


def _risk_of_all(experiment: Experiment, design: Design, drawn: Sequence[Conclusion]) -> str:
    """The risk of all that was concluded, in words."""
    rules = {(each.claim, each.delta, each.epsilon) for each in drawn}
    others = rules - {(experiment.claim, experiment.delta, experiment.epsilon)}
    joint = max((each.joint_risk for each in drawn), default=0.0)
    if joint > design.delta or (len(drawn) > 1 and others):
        said = (
            "1 conclusion was drawn here; it"
            if len(drawn) == 1
            else (f"{len(drawn)} conclusions were drawn here, so any of them")
        )
        found = consequences.chosen_late(experiment, drawn)
        return f"{said} is wrong with at most {100 * joint:.4g}%{found}."
    # Under other settings than now each has the risk that it names.
    return "" if others else claim_sentences.risk_of_all(design)


def picked_risk(experiment: Experiment, design: Design) -> float:
    """The risk of a claim that is picked after a look at several, and at the stages that they use."""
    earlier = sum(each.n_stages - 1 for each in design.decision.claims)
    return min(1.0, consequences.joint_risk(experiment) + design.delta * earlier)


def _model_test(experiment: Experiment, observed: Observed) -> Misfit | None:
    """The test of the assumption that levels add up, on the comparisons of this evidence.

    ``None`` where there is nothing to test. Also where a claim that holds, or the finding that none is best,
    does not rest on that assumption. It takes up to a few tenths of a second.
    """
    design = observed.design
    of, decision = design.space, design.decision
    none_best = decision.reason == StopReason.NO_SINGLE_BEST and decision.assumes_model
    wanted = none_best or any(state.holds and state.assumes_model for state in decision.claims)
    if not isinstance(of, BradleyTerry) or not wanted:
        return None
    judged = experiment.comparisons.filter(designs.counted_in(observed, "pk"), outcome__isnull=False)
    rows = judged.values_list("policy_i__index", "policy_j__index", "outcome")
    outcomes = [(i, j, outcome) for i, j, outcome in rows if outcome is not None]
    return misfit(of, summed_wins(of.n_policies, outcomes), summed_ties(of.n_policies, outcomes))


def _by_answers(experiment: Experiment, design: Design, decision: Decision) -> ByAnswers | None:
    decided = decision.reason in {StopReason.CERTIFIED, StopReason.NO_SINGLE_BEST}
    if decided or design.missing is Missing.ANSWERS or not design.n_missing:
        return None
    found = design.by_answers()
    # It holds whatever they say where the pairs that are open are all that it waits for.
    if found is None or math.isinf(found.gamma):
        return None
    remaining = remaining_of(experiment, latest_snapshot(experiment))
    more = ""
    if remaining is not None and remaining.likely is not None:
        people = experiment.judge == Experiment.Judge.HUMAN
        n = two_digits(remaining.likely * (experiment.overlap if people else 1))
        more = number(n, "more click" if people else "more comparison")
    text = claim_sentences.by_answers_alone(design, found.policy, found.gamma, more)
    return ByAnswers(found.policy, found.gamma, text)


def _rung(state: ClaimState, design: Design, told: _Told, tested: Misfit | None) -> Rung:
    text = claim_sentences.sentence(design, state, tested)
    stops = state.claim == design.claim
    shown = state.holds or state.follows_from is not None
    return Rung(
        claim=state.claim,
        name=_NAMES[state.claim.value],
        stops=stops,
        holds=state.holds,
        follows_from=state.follows_from,
        policy=state.policy,
        n_open=len(state.open),
        text=told.around(text) if shown else text,
        qualified=shown and is_qualified(tested, assumes_model=state.assumes_model),
        contradicted=state.contradicted,
        risk=min(1.0, design.delta * state.n_stages),
    )


def finding_of(experiment: Experiment, observed: Observed) -> str:
    """The claim of an experiment that has stopped by itself, in words; empty if it makes none."""
    design = observed.design
    decision = design.decision
    if decision.reason not in {StopReason.CERTIFIED, StopReason.NO_SINGLE_BEST}:
        return ""
    said = claim_sentences.conclusion(design, _model_test(experiment, observed))
    if decision.claim is None:
        # A stop other than the certified one names a winner, but makes no claim.
        wins = "No policy wins." if decision.best is None else f"{design.labels[decision.best]} wins."
        said = f"{wins} {said}"
    return _told(experiment, observed).around(said, *of_pool(experiment))


def finding_on(experiment: Experiment, observed: Observed, state: ClaimState) -> str:
    """The claim of an experiment that somebody stops on it, in words.

    The claim of the setup was not picked after looking: it errs as rarely if somebody stops on it.
    """
    if state.claim == observed.design.claim:
        return finding_of(experiment, observed)
    picked = f"Somebody stopped on it after looking at {consequences.claims_to_choose(experiment)} claims"
    if not unproven(experiment):
        risk = f"{100 * picked_risk(experiment, observed.design):.4g}%"
        picked += f"; the risk that any of them is ever made wrongly is at most {risk}"
    picked += "."
    text = claim_sentences.sentence(observed.design, state, _model_test(experiment, observed))
    return _told(experiment, observed).around(text, picked, *of_pool(experiment))


def finding_about(experiment: Experiment, observed: Observed, claim: Claim, policy: int) -> str:
    """A claim that the evidence establishes about a policy, in words, whoever the claim has named first."""
    state = next(each for each in observed.design.decision.claims if each.claim is claim)
    state = replace(state, holds=True, policy=policy, open=(), follows_from=None, contradicted=False)
    text = claim_sentences.sentence(observed.design, state)
    return _told(experiment, observed).around(text, *of_pool(experiment))


def doubts_about_risk(experiment: Experiment) -> list[str]:
    """Reasons why an experiment's accepted risk is not the one that its claims have; empty if it is."""
    others = [unproven(experiment), risk_of_changes(experiment)]
    return [*consequences.caveats(experiment), *filter(None, others)]


def by_one_person(experiment: Experiment, observed: Observed | None = None) -> bool:
    """True if one person gave all judgments that stand, of those in this evidence if it is given.

    Ties of identical texts are nobody's.
    """
    if experiment.judge != Experiment.Judge.HUMAN:
        return False
    judgments = _judged_in(experiment, observed).exclude(via__in=Judgment.UNSEEN)
    # Without an annotator it is a language model's judgment, or a past vote of an unnamed person.
    people = list(judgments.values_list("annotator", flat=True).distinct()[:2])
    return len(people) == 1 and people[0] is not None


def _judged_in(experiment: Experiment, observed: Observed | None) -> QuerySet[Judgment]:
    """The judgments that stand, of those in this evidence if it is given."""
    judgments = counts.standing_judgments(experiment.pk)
    return judgments if observed is None else judgments.filter(designs.counted_in(observed, "comparison"))


@dataclass(frozen=True)
class _Told:
    """Parts of every sentence about a result: the machines' judgments, and who judged."""

    by_machines: str = ""
    whose: tuple[str, ...] = ()

    def around(self, claim: str, *more: str) -> str:
        """The whole sentence. Machine judgments come first, because a claim reads as if people made it."""
        return " ".join(filter(None, [self.by_machines, claim, *self.whose, *more]))


def _told(experiment: Experiment, observed: Observed) -> _Told:
    whose = (*_people(experiment, observed), *consequences.of_past_votes(experiment))
    return _Told(by_machines(experiment, observed), whose)


def by_machines(experiment: Experiment, observed: Observed | None = None) -> str:
    """A sentence where no person gave some of the outcomes; empty elsewhere.

    ``observed``: of those in this evidence, if it is given.
    """
    found = _judged_in(experiment, observed).aggregate(
        all=Count("comparison", distinct=True),
        people=Count("comparison", distinct=True, filter=Q(judge=Judgment.Judge.HUMAN)),
    )
    n, machines = found["all"], found["all"] - found["people"]
    if not machines:
        return ""
    nobody = ", none by a person" if machines == n else ""
    return f"{machines:,} of {n:,} outcomes {'was' if machines == 1 else 'were'} given by machines{nobody}."


def _people(experiment: Experiment, observed: Observed) -> list[str]:
    """A sentence on the people who judged, and on those who gave most judgments."""
    people = _judged_in(experiment, observed).filter(judge=Judgment.Judge.HUMAN, annotator__isnull=False)
    counted = people.order_by().values_list("annotator").annotate(n=Count("pk")).values_list("n", flat=True)
    answers = sorted(counted, reverse=True)
    if len(answers) < 2:
        alone = by_one_person(experiment, observed)
        return ["It rests on the judgments of one person alone."] if alone else []
    most = next(k for k in range(1, len(answers) + 1) if 2 * sum(answers[:k]) >= sum(answers))
    return [
        f"{len(answers):,} people judged; {most:,} of them gave {sum(answers[:most]) / sum(answers):.0%} of "
        "their answers."
    ]
