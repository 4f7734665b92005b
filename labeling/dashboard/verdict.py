"""The card that a dashboard opens with: the policy to use, or how far the decision has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core import Claim, Remaining, StopReason
from engine.core.ranking import Place
from engine.domain.claim_settings import CERTIFIED
from engine.models import Experiment, Snapshot
from engine.selectors import consequences
from engine.selectors.findings import Ladder, doubts_about_risk
from engine.selectors.policies import policy_names
from engine.selectors.pool_claims import tasks_left_out
from engine.selectors.pools import Supply
from engine.selectors.pulses import Pulse
from engine.selectors.rankings import Ranked
from engine.selectors.spending import money_trouble
from labeling.dashboard import status
from labeling.formatting import judging_time, over_half, percents, points, rough, spread

# One of the claims has a name that would read oddly in a sentence.
_GOALS = dict(Experiment.CLAIMS) | {Claim.BEST_IF_ANY.value: "the best, if there is one"}


# What not every verdict has.
_EMPTY: dict[str, Any] = {
    "finding": "",
    "over_budget": False,
    "percent_done": None,
    "preferred": None,
    "risk": None,
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
    hours: Remaining | None,
    n_annotators: int,
    pool: Supply | None,
) -> dict[str, Any]:
    """The result of an experiment so far, in words and figures for the card.

    ``ranked``, ``ladder``: the ranking and the claims shown beside it; no claims before the first comparison.
    ``comparisons``: those that are judged. ``hours`` of work that remain for all annotators together;
    ``None`` where nobody can tell. ``pool``: what they can still judge, where texts come again.
    """
    notes = status.notes(experiment)
    if experiment.state == Experiment.State.CONCLUDED:
        return _concluded(experiment, snapshot, ranked, comparisons, _by_answers(ladder))
    running = experiment.state == Experiment.State.RUNNING
    stalled = running and not pulse.healthy
    used_up = running and pulse.healthy and experiment.used_up
    if used_up:
        remaining = None  # nobody can tell before there is more to judge
    over_budget = remaining is not None and remaining.likely is None
    waits = status.closing(experiment)
    if over_budget or waits:
        remaining = None  # the budget ends before, or the pairs that are open are all that it takes
    n_through = pool.n_through if pool and comparisons else 0
    likely = remaining.likely if remaining else None
    answers = (likely or 0.0) * experiment.overlap
    too_few = pool if n_annotators and pool and pool.n_answers < answers else None
    n_rivals, n_ruled_out = len(ranked) - 1, _ruled_out(ranked) if comparisons else 0
    return _EMPTY | {
        "headline": waits[0].removesuffix(".") if waits else _headline(ranked, ladder, comparisons),
        "leader": ranked[0].name if comparisons else None,
        "n_rivals": n_rivals,
        "n_ruled_out": n_ruled_out,
        "n_open": n_rivals - n_ruled_out,
        "to_exclude": _to_exclude(ladder, n_rivals - n_ruled_out),
        "effort": ""
        if used_up or waits
        else _effort(experiment, remaining, ladder, hours, n_annotators - n_through),
        "sentences": [
            *(waits if stalled else []),
            *_by_answers(ladder),
            *([pulse.ailment] if stalled else []),
            *filter(None, [money_trouble(experiment) if running else ""]),
            *([pulse.catching_up] if running and pulse.catching_up else []),
            *([status.over_budget(experiment)] if over_budget and not stalled else []),
            *([status.USED_UP] if used_up else []),
            *([status.through(n_through, n_annotators)] if n_through and not used_up else []),
            *([status.too_few_texts(too_few.n_answers)] if too_few else []),
            *notes,
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


def _headline(ranked: Sequence[Ranked], ladder: Ladder | None, comparisons: int) -> str:
    """The weakest claim that holds, and of which policy; where none does, that it is too early."""
    for rung in ladder.rungs if ladder else []:
        if rung.holds:
            [name] = [each.name.name for each in ranked if each.standing.policy == rung.policy]
            return f"Already {rung.name}: {name}"
    return "Too early to say" if comparisons else "No judgments yet"


def _to_exclude(ladder: Ladder | None, n_open: int) -> str:
    """The rivals that the claim has still to exclude, where the ranking shows another number as open."""
    goal = ladder.goal if ladder else None
    if goal is None or goal.holds or goal.follows_from or goal.n_open == n_open:
        return ""
    return f"“{goal.name}” has still to exclude {goal.n_open:,}"


def _trouble(pulse: Pulse) -> str:
    return "Responses come too slowly" if pulse.slow else "The work has stopped"


def _effort(
    experiment: Experiment,
    remaining: Remaining | None,
    ladder: Ladder | None,
    hours: Remaining | None,
    n_able: int,
) -> str:
    goal = f"one is {_GOALS[experiment.claim]}" if experiment.stopping == CERTIFIED else ""
    rung = ladder.goal if ladder else None
    follows = rung is not None and rung.follows_from is not None
    if remaining is None or remaining.likely is None:
        reached = rung is not None and (rung.holds or follows)
        # Beside a leader the card has no room for what that means.
        meaning = f": {_meaning(experiment)}" if ladder is None else ""
        return f"it stops when {goal}{meaning}" if goal and not reached else ""
    people = experiment.judge == Experiment.Judge.HUMAN
    clicks = remaining.times(experiment.overlap if people else 1)
    number = rough(clicks.likely or 0.0)
    said = f"about {number} more {'click' if people else 'comparison'}{'' if number == '1' else 's'}"
    said += f" ({spread(clicks)})"
    if goal:
        said += " until it stops by itself" if follows else f" until {goal}"
    if not (hours and hours.likely and n_able):
        return said
    return f"{said}, {judging_time(hours.likely, n_able)}"


def _meaning(experiment: Experiment) -> str:
    """The claim to stop on as a statement about the policy that it names."""
    by = f" with a win rate of at least {over_half(experiment.epsilon)}" if experiment.epsilon else ""
    return {
        Claim.GOOD_ENOUGH: f"no other policy is better by more than {points(experiment.epsilon)}",
        Claim.BEST: "it beats every other policy",
        Claim.BEST_IF_ANY: f"no other policy can beat every other one{by}",
    }[Claim(experiment.claim)]


def _concluded(
    experiment: Experiment,
    snapshot: Snapshot | None,
    ranked: Sequence[Ranked],
    comparisons: int,
    by_answers: Sequence[str],
) -> dict[str, Any]:
    names = policy_names(experiment)
    finding = status.concluded(experiment, snapshot, names, comparisons)
    notes = [*status.notes(experiment), *tasks_left_out(experiment)]
    if experiment.winner is None:
        none_best = experiment.conclusion == StopReason.NO_SINGLE_BEST
        return _EMPTY | {
            "headline": experiment.get_conclusion_display() if none_best else "Not decided",
            "sentences": [finding, *by_answers, *notes],
            "condition": _condition(experiment),
        }
    leader = names[experiment.winner.index]
    n_rivals, n_ruled_out = len(names) - 1, _ruled_out(ranked)
    return _EMPTY | {
        "headline": f"Use {leader.name}",
        "leader": leader,
        "n_rivals": n_rivals,
        "n_open": n_rivals - n_ruled_out,
        "finding": finding,
        "sentences": notes,
        "preferred": win_rates(ranked, experiment.winner.index),
        "risk": _risk(experiment),
        "condition": _condition(experiment),
    }


def _ruled_out(ranked: Sequence[Ranked]) -> int:
    return sum(each.standing.place is Place.RULED_OUT for each in ranked)


def _risk(experiment: Experiment) -> float | None:
    """The risk of the conclusion; the joint one where its claim was picked after looking at several."""
    if not experiment.certified_claim or doubts_about_risk(experiment):
        return None
    if experiment.certified_claim == experiment.claim:
        return experiment.delta
    return consequences.joint_risk(experiment)


def _condition(experiment: Experiment) -> str:
    free = Experiment.Missing.AGAINST, Experiment.Space.UNSTRUCTURED
    if (experiment.missing, experiment.space) == free:
        return "whoever leaves or delays what"
    return "if no answer comes, is late or stays away because of what it says"


def win_rates(ranked: Sequence[Ranked], policy: int) -> tuple[int, int] | None:
    """The smallest and the largest estimated win rate of the leader against one of the others, in percent.

    Each is 100 minus the figure of the other policy's row in the ranking. ``None`` if ``policy`` does not
    lead it, so that the rows are about another one.
    """
    leader, *others = (each.standing for each in ranked)
    if leader.policy != policy:
        return None
    rates = [100 - percents(each.leader)[0] for each in others]
    return min(rates), max(rates)
