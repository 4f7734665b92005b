"""Past votes in words: what they say about themselves, and how the experiment goes on."""

from engine.models import Experiment, Factor
from engine.selectors.past_votes import PastVotes, past_votes
from labeling.dashboard.annotators import Sides

# Not enough to speak of a habit, as this is one of many tests, but too rare to be called chance.
_SELDOM_P = 0.05


def facts(experiment: Experiment) -> list[str]:
    """Sentences about the past votes of an experiment; empty where it has none."""
    if not experiment.past_votes:
        return []
    found = past_votes(experiment)
    said = [_sides(found), _repeated(found), _next(experiment)]
    return [sentence for sentence in said if sentence]


def _sides(found: PastVotes) -> str:
    if not found.sided:
        return "Position bias: unknown. The file does not say on which side each response was shown."
    if not found.vary:
        return (
            "Position bias: cannot be told. Each two policies were always shown in the same order, so a "
            "habit of choosing a side looks like a better policy."
        )
    sides = Sides(found.left, found.sided)
    verdict = "which chance may explain" if sides.p >= _SELDOM_P else "which chance seldom brings"
    if sides.biased:
        direction = "less" if 2 * found.left < found.sided else "more"
        verdict = f"{direction} often than chance explains"
    return (
        f"Position bias: the left side was chosen in {found.left:,} of "
        f"{found.sided:,} votes with a side, {verdict} ({sides.p_text})."
    )


def _repeated(found: PastVotes) -> str:
    if not found.with_texts:
        return (
            "Repeated responses: unknown. The votes came without their responses, so several may be about "
            "the same two."
        )
    those = "" if found.with_texts == found.votes else " with both responses"
    if not found.repeated:
        return f"Every vote{those} is about two responses that no earlier one was about."
    return (
        f"{found.repeated:,} of {found.with_texts:,} votes{those} are about two responses "
        "that an earlier vote was about. They say less than votes about new "
        "responses, and the intervals and the claim do not know that."
    )


def _next(experiment: Experiment) -> str:
    if experiment.state != Experiment.State.PAUSED:
        return ""
    if experiment.responses == Experiment.Responses.IMPORTED:
        how = "new votes are about the responses of the file"
    elif [factor.kind for factor in experiment.factors.all()] == [Factor.Kind.MODEL]:
        how = "these models write new responses, through a connection or a worker that has them"
    else:
        how = "the models write new responses"
    return f"To go on, start the experiment: {how}."
