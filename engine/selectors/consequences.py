"""The consequences of a change of settings for an experiment's claim, in words."""

from collections.abc import Sequence

from engine.core import Claim
from engine.domain.claim_settings import CERTIFIED
from engine.models import Conclusion, Experiment, Judgment
from engine.selectors.counts import comparison_count

# "Best", and "best, if there is a best".
_WITHOUT_MARGIN = 2
_MARGINS = {
    Claim.GOOD_ENOUGH: (
        "This changes what “good enough” means: no other policy may be better by more than {points} points."
    ),
    Claim.BEST_IF_ANY: (
        "This changes what “best” means: a policy now has to win more than {share} against every other one."
    ),
    Claim.BEST: (
        "This changes what “good enough” means on the dashboard: {points} points. The claim “best” has "
        "no margin."
    ),
}


def outcomes_seen(experiment: Experiment) -> bool:
    """True if anybody could have seen an outcome, even one that was taken back."""
    return Judgment.objects.filter(comparison__experiment=experiment).exists()


def budget_consequence(experiment: Experiment, budget: int) -> str:
    """The meaning of another budget, in comparisons, for an experiment, as a sentence."""
    judged = comparison_count(experiment.pk)
    if experiment.state != Experiment.State.DRAFT and budget <= judged:
        said = f"{judged} comparisons are already judged, so the experiment concludes as soon as it runs."
        return said if budget == judged else f"{said} Its evidence is that of the first {budget}."
    return "The budget only limits the number of comparisons. The guarantee does not change."


def claim_consequence(experiment: Experiment, claim: str) -> str:
    """The meaning of another claim to stop on for the guarantee, as a sentence."""
    if not outcomes_seen(experiment):
        return "No outcome has been seen yet, so you can choose the claim freely."
    if claim == (experiment.first_claim or experiment.claim):
        return "It is the claim chosen before any outcome was seen, so the accepted risk holds."
    return (
        f"A claim chosen after looking has the risk of {_all_to_choose(experiment)}: at most "
        f"{100 * joint_risk(experiment, changed=True):.3g}% instead of {100 * experiment.delta:.3g}%. "
        "The result will be marked. The evidence is recomputed from the judgments."
    )


def _all_to_choose(experiment: Experiment) -> str:
    """The claims that `joint_risk` counts after a change, in words."""
    if experiment.epsilon == 0:
        return "both claims together"
    return "four claims together (the three on the dashboard, and “best, if there is a best” with the margin)"


def joint_risk(experiment: Experiment, *, changed: bool | None = None) -> float:
    """The risk, in [0, 1], that any of several claims is ever made wrongly: the sum of their risks.

    ``changed``: as for :func:`claims_to_choose`.
    """
    return min(1.0, experiment.delta * claims_to_choose(experiment, changed=changed))


def claims_to_choose(experiment: Experiment, *, changed: bool | None = None) -> int:
    """The number of claims among which somebody chooses who has looked at them.

    ``changed``: whether the claim to stop on is another one than at first, as it is unless given. Then they
    are all that could be watched, and else those that are watched beside one. "Best, if there is a best" is
    watched without a margin, and with it where it stops.
    """
    if changed is None:
        changed = claim_changed(experiment)
    margins = 0 if experiment.epsilon == 0 else 2 if changed else 1
    return _WITHOUT_MARGIN + margins


def claim_changed(experiment: Experiment) -> bool:
    """True if the claim to stop on is another one than before any outcome was seen."""
    return bool(experiment.first_claim) and experiment.claim != experiment.first_claim


def delta_consequence(experiment: Experiment, delta: float) -> str:
    """The meaning of another risk δ, in (0, ½), for the guarantee, as a sentence."""
    if not outcomes_seen(experiment):
        return "No outcome has been seen yet, so you can choose the risk freely."
    if experiment.stopping != CERTIFIED:
        return (
            f"The {experiment.stopping} stop has assumptions of its own. A change of the accepted risk "
            "during the experiment violates them."
        )
    first = experiment.delta if experiment.first_delta is None else experiment.first_delta
    if delta > first:
        return (
            f"This is more than the {first:g} chosen before any outcome was seen. "
            "A larger risk chosen after looking breaks the guarantee: the winner "
            "may be wrong more often than this. The result will be marked."
        )
    if delta > experiment.delta:
        return (
            f"The risk so far was smaller. The new risk stays within the {first:g} chosen before any outcome "
            "was seen, so the guarantee holds."
        )
    return (
        f"A policy is now ruled out only when the evidence against it reaches {1 / delta:,.0f} to 1. You may "
        "demand more evidence at any time. Expect more comparisons."
    )


def epsilon_consequence(experiment: Experiment, epsilon: float) -> str:
    """The meaning of another margin ε, in [0, 0.4], for the guarantee, as a sentence."""
    if not outcomes_seen(experiment):
        return "No outcome has been seen yet, so you can choose the margin freely."
    meaning = _MARGINS[Claim(experiment.claim)].format(
        points=f"{100 * epsilon:g}", share=f"{0.5 + epsilon:.0%}"
    )
    meaning += " The evidence is recomputed from the judgments."
    first = experiment.epsilon if experiment.first_epsilon is None else experiment.first_epsilon
    if epsilon == first:
        return f"{meaning} It is the margin chosen before any outcome was seen, so the guarantee holds."
    return (
        f"{meaning} A margin chosen after looking is not covered by the guarantee. The result will be marked."
    )


def chosen_late(experiment: Experiment, drawn: Sequence[Conclusion]) -> str:
    """The condition under which the risks of these conclusions hold, as the end of a sentence."""
    risk, margin = experiment.first_delta, experiment.first_epsilon
    late = any(
        (risk is not None and each.delta > risk) or (margin is not None and each.epsilon != margin)
        for each in drawn
    )
    return ", if risk and margin were not chosen by the outcomes" if late else ""


def caveats(experiment: Experiment) -> list[str]:
    """Reasons why the risk that an experiment states is not guaranteed; empty if it is."""
    found = []
    if claim_changed(experiment):
        names = dict(Experiment.CLAIMS)
        found.append(
            f"The claim was changed from “{names[experiment.first_claim]}” to "
            f"“{names[experiment.claim]}” after outcomes had been seen, so the risk is up to "
            f"{100 * joint_risk(experiment):.3g}% instead of {100 * experiment.delta:.3g}%. It "
            f"is that of {_all_to_choose(experiment)}."
        )
    if experiment.first_delta is not None and experiment.delta > experiment.first_delta:
        found.append(
            f"The accepted risk was raised from {experiment.first_delta:g} to "
            f"{experiment.delta:g} after outcomes had been seen, so the risk is not guaranteed."
        )
    if experiment.first_epsilon is not None and experiment.epsilon != experiment.first_epsilon:
        found.append(
            f"The margin was changed from {experiment.first_epsilon:g} to {experiment.epsilon:g} "
            "after outcomes had been seen, so the risk is not guaranteed."
        )
    return found + of_past_votes(experiment)


def of_past_votes(experiment: Experiment) -> list[str]:
    """A sentence if past votes count: nobody can check how they were given."""
    if not experiment.past_votes:
        return []
    are = "past vote counts" if experiment.past_votes == 1 else "past votes count"
    said = f"{experiment.past_votes:,} {are}"
    if experiment.stopping != CERTIFIED:
        return [f"{said}, although LLM-PO did not choose their pairs."]
    return [
        f"{said}. The risk of {100 * experiment.delta:.3g}% holds only if no vote was dropped or added "
        "because of its result, which nobody can check."
    ]
