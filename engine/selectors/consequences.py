"""What changing an experiment's settings means for what it may claim, in words."""

from __future__ import annotations

from engine.models import Experiment, Judgment
from engine.selectors.counts import comparison_count


def outcomes_seen(experiment: Experiment) -> bool:
    """Whether anybody could have looked at an outcome, one taken back included."""
    return Judgment.objects.filter(comparison__experiment=experiment).exists()


def budget_consequence(experiment: Experiment, budget: int) -> str:
    """What another budget, in comparisons, means for an experiment, as a sentence."""
    judged = comparison_count(experiment.pk)
    if experiment.state != Experiment.State.DRAFT and budget <= judged:
        return f"{judged} comparisons are judged already, so the experiment concludes as soon as it runs."
    return "The budget only says when to give up. The evidence is valid at any time, so the guarantee stays as it is."


def delta_consequence(experiment: Experiment, delta: float) -> str:
    """What another risk δ, in (0, ½), means for the guarantee, as a sentence."""
    if not outcomes_seen(experiment):
        return "No outcome has been seen yet, so the new risk is as good as one chosen at the start."
    if experiment.stopping != "certified":
        return f"The {experiment.stopping} stop rests on its own assumptions; changing δ on the way is not among them."
    first = experiment.delta if experiment.first_delta is None else experiment.first_delta
    if delta > first:
        return (
            f"This is more than the {first:g} chosen before any outcome was seen. A larger risk chosen after looking "
            "breaks the guarantee: the winner may be wrong more often than δ says. The result will be marked."
        )
    if delta > experiment.delta:
        return (
            f"More evidence was asked for before. The risk stays within the {first:g} chosen before any outcome "
            "was seen, so the guarantee holds."
        )
    return (
        f"A policy is now ruled out only when the evidence against it reaches {1 / delta:,.0f} to 1. The evidence is valid "
        "at any time, so asking for more of it later is fine; expect more comparisons."
    )


def epsilon_consequence(experiment: Experiment, epsilon: float) -> str:
    """What another margin ε, in [0, 0.4], means for the guarantee, as a sentence."""
    if not outcomes_seen(experiment):
        return "No outcome has been seen yet, so the new margin is as good as one chosen at the start."
    meaning = (
        f"This changes what “best” means: a policy now has to win more than {0.5 + epsilon:.0%} against every other "
        "one. All evidence is computed anew from the judgments."
    )
    first = experiment.epsilon if experiment.first_epsilon is None else experiment.first_epsilon
    if epsilon == first:
        return f"{meaning} It is the margin chosen before any outcome was seen, so the guarantee holds."
    return (
        f"{meaning} A margin chosen after looking is not covered by the guarantee. The result will be marked."
    )


def caveats(experiment: Experiment) -> list[str]:
    """Why the certainty that an experiment states is not guaranteed; empty where it is."""
    found = []
    if experiment.first_delta is not None and experiment.delta > experiment.first_delta:
        found.append(
            f"δ was raised from {experiment.first_delta:g} to {experiment.delta:g} after outcomes had been seen, "
            "so the certainty is not guaranteed."
        )
    if experiment.first_epsilon is not None and experiment.epsilon != experiment.first_epsilon:
        found.append(
            f"ε was changed from {experiment.first_epsilon:g} to {experiment.epsilon:g} after outcomes had been "
            "seen, so the certainty is not guaranteed."
        )
    return found
