"""Gates for pull requests: what main holds, and how the challenges of changes stand."""

from engine.core import Claim
from engine.models import Experiment, Gate, MainText, Subscription
from engine.selectors.findings import doubts_about_risk

SAME, PASSED, WORSE, OPEN, STOPPED = "same", "passed", "worse", "open", "stopped"
# The places of both sides in a challenge.
OF_MAIN, OF_CHANGE = 0, 1


def gate_of(experiment: Experiment) -> Gate | None:
    """The gate whose challenge this experiment is."""
    return Gate.objects.filter(challenge=experiment).first()


def main_texts(experiment: Experiment) -> dict[tuple[str, str], str]:
    """The texts of main, by factor and level, where levels began with others."""
    rows = MainText.objects.filter(level__factor__experiment=experiment)
    return {
        (factor, level): text
        for factor, level, text in rows.values_list("level__factor__name", "level__name", "text")
    }


def has_forge(experiment: Experiment) -> bool:
    """True if the states of its commits are posted somewhere."""
    return experiment.subscriptions.filter(kind__in=Subscription.FORGES).exists()


def state_of(gate: Gate) -> str:
    """Where its challenge stands: open, or one of the three ends."""
    challenge = gate.challenge
    if challenge.state != Experiment.State.CONCLUDED:
        return OPEN
    if challenge.winner is None:
        return STOPPED
    # Somebody may have stopped on another claim, such as that main is good enough.
    ends = {
        (OF_CHANGE, Claim.GOOD_ENOUGH): PASSED,
        (OF_CHANGE, Claim.BEST): PASSED,
        (OF_MAIN, Claim.BEST): WORSE,
    }
    return ends.get((challenge.winner.index, Claim(challenge.certified_claim)), STOPPED)


def in_few_words(state: str, experiment: Experiment) -> str:
    """A state as a commit status says it."""
    risk = "its page says at what risk"
    if state in {PASSED, WORSE} and not doubts_about_risk(experiment):
        risk = f"risk {100 * experiment.delta:.4g}% for each text that is tried"
    return {
        SAME: "Nothing to compare: the texts that are sent are the same.",
        PASSED: f"Not worse than main by more than {100 * experiment.epsilon:.4g} points; {risk}.",
        WORSE: f"Worse than main; {risk}.",
        OPEN: "People compare it with main.",
        STOPPED: "Stopped without a claim.",
    }[state]
