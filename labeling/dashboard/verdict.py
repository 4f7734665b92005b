"""The card that a dashboard opens with: the policy to use, or how far the decision has come."""

from collections.abc import Iterable, Sequence
from typing import Any

from engine.core import Claim, Remaining
from engine.domain.claim_settings import CERTIFIED
from engine.domain.wording import moment, number
from engine.models import Experiment, Snapshot
from engine.selectors.findings import Ladder, doubts_about_risk
from engine.selectors.gates import gate_of
from engine.selectors.policies import policy_names
from engine.selectors.pool_claims import tasks_left_out
from engine.selectors.pools import Supply
from engine.selectors.pulses import Pulse
from engine.selectors.rankings import Ranked
from engine.selectors.spending import money_trouble
from engine.selectors.standings import closing, of_100, standing_of
from engine.selectors.task_changes import tasks_changed
from labeling.dashboard import status
from labeling.dashboard.terms import OPEN, SETTLED
from labeling.formatting import judging_time, percents

# One of the claims has a name that would read oddly in a sentence.
_GOALS = dict(Experiment.CLAIMS) | {Claim.BEST_IF_ANY: "the best, if there is one"}


# What not every verdict has.
_EMPTY: dict[str, Any] = {
    "defined": [],
    "finding": "",
    "goal": "",
    "n_as_good": 0,
    "over_budget": False,
    "percent_done": None,
    "preferred": None,
    "risk": None,
    "time": "",
}


def verdict_of(
    experiment: Experiment,
    snapshot: Snapshot | None,
    pulse: Pulse,
    remaining: Remaining | None,
    *,
    ranked: Sequence[Ranked],
    ladder: Ladder | None,
    comparisons: int,
    hours_each: float | None,
    n_annotators: int,
    pool: Supply | None,
) -> dict[str, Any]:
    """The result of an experiment so far, in words and figures for the card.

    ``ranked``, ``ladder``: the ranking and the claims shown beside it; no claims before the first comparison.
    ``comparisons``: those that are judged. ``hours_each``: people's hours for one of them;
    ``None`` where nobody can tell. ``pool``: what they can still judge, where texts come again.
    """
    if experiment.state == Experiment.State.CONCLUDED:
        return _concluded(experiment, snapshot, ranked, comparisons, ladder)
    running = experiment.state == Experiment.State.RUNNING
    stalled = running and not pulse.healthy
    used_up = running and pulse.healthy and experiment.used_up
    if used_up or stalled or closing(experiment):
        # Nobody can tell before there is more to judge; or the open pairs are all that it takes.
        remaining = None
    standing = standing_of(experiment, snapshot, policy_names(experiment), stalled=stalled)
    over_budget = remaining is not None and remaining.likely is None
    likely = remaining.likely if remaining else None
    n_through = pool.n_through if pool and comparisons else 0
    answers = (likely or 0.0) * experiment.overlap
    too_few = pool if n_annotators and pool and pool.n_answers < answers else None
    n_able = n_annotators - n_through
    return _EMPTY | {
        "standing": standing,
        "goal": "" if comparisons else _goal(experiment),
        "time": f"To decide it: about {judging_time(likely * hours_each, n_able)}."
        if likely and hours_each and n_able
        else "",
        "defined": meanings(experiment, ["open"] if standing.n_open else []),
        "sentences": [
            *_by_answers(ladder),
            *status.troubles(experiment, pulse),
            *filter(None, [money_trouble(experiment) if running else ""]),
            *([status.through(n_through, n_annotators)] if n_through and not used_up else []),
            *([status.too_few_texts(too_few.n_answers)] if too_few else []),
            *status.notes(experiment),
            *tasks_changed(experiment),
        ],
        # A server refused a policy's request, which waits for somebody to try again.
        "refused": running and bool(pulse.refused),
        "waits": [{"pk": each.pk, "name": each.name} for each in pulse.waits] if stalled else [],
        "condition": _condition(experiment),
        "percent_done": round(100 * comparisons / (comparisons + likely)) if likely else None,
        # The headline while the workers stand still, as nothing else helps before.
        "trouble": _trouble(pulse) if stalled else "",
        "over_budget": over_budget and not stalled,
    }


def _by_answers(ladder: Ladder | None) -> list[str]:
    return [ladder.by_answers.text] if ladder and ladder.by_answers else []


def _trouble(pulse: Pulse) -> str:
    return "Responses come too slowly" if pulse.slow else "The work has stopped"


def _goal(experiment: Experiment) -> str:
    """The claim to stop on, as a statement about the policy that it names; empty without one."""
    if experiment.stopping != CERTIFIED:
        return ""
    claim = Claim(experiment.claim)
    wins = of_100(experiment)
    by = f" in at least {wins} comparisons" if experiment.epsilon else ""
    meaning = {
        Claim.GOOD_ENOUGH: f"no other policy wins more than {wins} comparisons against it",
        Claim.BEST: "it beats every other policy",
        Claim.BEST_IF_ANY: f"no other policy can beat every other one{by}",
    }[claim]
    return f"It stops when one is {_GOALS[claim]}: {meaning}."


def meanings(experiment: Experiment, words: Iterable[str]) -> list[tuple[str, str]]:
    """The words for standings that need one, each with its meaning."""
    claim = experiment.claim if experiment.stopping == CERTIFIED else Claim.BEST_IF_ANY
    known = SETTLED | {"open": OPEN[claim]}
    return [(word, known[word].format(wins=of_100(experiment))) for word in words if word in known]


def _concluded(
    experiment: Experiment,
    snapshot: Snapshot | None,
    ranked: Sequence[Ranked],
    comparisons: int,
    ladder: Ladder | None,
) -> dict[str, Any]:
    late = status.late_clicks(experiment, snapshot, comparisons)
    standing = standing_of(experiment, snapshot, policy_names(experiment), late=late)
    sentences = [
        *_of_the_last_stage(experiment, ladder),
        *_by_answers(ladder),
        *status.notes(experiment),
        *tasks_left_out(experiment),
        *tasks_changed(experiment),
    ]
    ended = _EMPTY | {"standing": standing, "sentences": sentences, "condition": _condition(experiment)}
    if experiment.winner is None:
        return ended | {
            "finding": experiment.finding,
            "defined": meanings(experiment, ["open"] if standing.n_open else []),
        }
    return ended | {
        "n_as_good": sum(each.word == "perhaps as good" for each in ranked),
        "finding": experiment.finding,
        "preferred": win_rates(ranked, experiment.winner.index),
        "risk": _risk(experiment, ladder),
    }


def _of_the_last_stage(experiment: Experiment, ladder: Ladder | None) -> list[str]:
    """Whom the latest of several conclusions is about, since when, and the risk of all of them."""
    drawn = list(experiment.conclusions.all())[-2:]
    if len(drawn) < 2 or ladder is None:
        return []
    before, last = drawn
    names = policy_names(experiment)
    *others, one = (names[index].name for index in last.among)
    since = number(last.comparisons - before.comparisons, "comparison")
    return [
        f"About {', '.join(others)} and {one}, after {since} since {moment(before.created_at)}. "
        f"{ladder.risk_of_all}"
    ]


def _risk(experiment: Experiment, ladder: Ladder | None) -> float | None:
    """The risk of the conclusion; the joint one where its claim was picked after looking at several."""
    if not experiment.certified_claim or doubts_about_risk(experiment) or not ladder or not ladder.goal:
        return None
    # A gate has two claims, of which one alone can be wrong.
    if experiment.certified_claim == experiment.claim or gate_of(experiment):
        return ladder.goal.risk
    return ladder.joint_risk


def _condition(experiment: Experiment) -> str:
    free = Experiment.Missing.AGAINST, Experiment.Space.UNSTRUCTURED
    if (experiment.missing, experiment.space) == free:
        return "even if pairs are left unanswered or answered late"
    return "if no answer comes, is late or stays away because of what it says"


def win_rates(ranked: Sequence[Ranked], policy: int) -> tuple[int, int] | None:
    """The smallest and the largest estimated win rate of the leader against one of the others, in percent.

    Each is 100 minus the figure of the other policy's row in the ranking. ``None`` if ``policy`` does not
    lead it, so that the rows are about another one.
    """
    leader, *others = (each.standing for each in ranked if each.word != "retired")
    if leader.policy != policy:
        return None
    rates = [100 - percents(each.leader)[0] for each in others]
    return min(rates), max(rates)
