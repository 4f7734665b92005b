"""The contents of a dashboard: figures and charts, made once for all viewers."""

import hashlib
from collections.abc import Sequence
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from engine.core import Remaining
from engine.core.spaces import Factorial
from engine.models import DashboardPage, Experiment
from engine.selectors import counts, pairs_ahead, people, pools
from engine.selectors.agreement import agreement_in, shared_answers
from engine.selectors.annotators import longer_preferred, tallies, totals
from engine.selectors.doubts import Doubts, doubts
from engine.selectors.findings import by_machines, ladder
from engine.selectors.further import further_results
from engine.selectors.policies import factorial_space, policy_names, space_of
from engine.selectors.pulses import Pulse, pulses
from engine.selectors.queue_health import queue_health
from engine.selectors.rankings import Ranked, ranking
from engine.selectors.remaining import remaining_of
from engine.selectors.rivals import examples, weakest_tasks
from engine.selectors.snapshots import at_one_moment, latest_snapshot, race_of
from engine.selectors.spending import (
    PolicySpending,
    policy_spending,
    spent_by_purpose,
    spent_in,
    spent_of_limit,
)
from engine.services import dashboard_pages
from engine.services.experiments import may_stop
from labeling.caching import shared
from labeling.dashboard import charts
from labeling.dashboard.annotators import annotator_rows, ended_rows, judge_rows
from labeling.dashboard.past_votes import facts
from labeling.dashboard.policies import asked
from labeling.dashboard.status import badge, late_clicks, troubles
from labeling.dashboard.tags import tag_rows
from labeling.dashboard.verdict import verdict_of
from labeling.dashboard.voids import sentence_about
from labeling.dashboard.warnings import concerns
from labeling.formatting import agreement

# Largest ages, in units of DASHBOARD_SECONDS.
_LIVE, _HEALTH = 0.2, 0.5
# Comparisons from which on the charts of a tab may take longer than somebody waits for a page.
LARGE = 20_000


def result_of(experiment: Experiment) -> dict[str, Any]:
    """The verdict and the charts below it, as they were last computed: neither is older than the other."""
    result = dashboard_pages.show(experiment=experiment, page="result", make=result_figures)
    own = {"experiment": experiment, "may_stop": may_stop(experiment), "charts": result}
    return {**result.content, **own}


def result_figures(experiment: Experiment) -> dict[str, Any]:
    """The verdict and the charts below it, now."""
    # The leader, the claims, the forecast and the ranking all come from this one evidence.
    observed, snapshot = at_one_moment(experiment)
    ranked = ranking(experiment, observed)
    concluded = experiment.state == Experiment.State.CONCLUDED
    comparisons = counts.comparison_count(experiment.pk)
    if snapshot is not None and not concluded and not experiment.evidence_stale:
        comparisons = snapshot.comparisons
    pulse = pulses([experiment])[experiment.pk]
    claims = ladder(experiment, observed) if comparisons else None
    goal = claims.goal if claims else None
    reached = goal is not None and goal.holds
    remaining = None if reached else remaining_of(experiment, snapshot)
    by_people = experiment.judge == Experiment.Judge.HUMAN
    n_annotators = people.annotators(experiment.pk).count() if by_people else 0
    running = experiment.state == Experiment.State.RUNNING
    spending = policy_spending(experiment)
    structured = experiment.space != Experiment.Space.UNSTRUCTURED
    policies = charts.policy_rows(ranked, spending, judged=comparisons > 0, structured=structured)
    below = _below(experiment, ranked, policies, spending, comparisons)
    judged_rows, doubted = [], []
    # Of more, telling the doubts would take longer than somebody waits for a page.
    if comparisons <= LARGE:
        doubted = doubts(experiment).found
        if by_people and comparisons:
            judged_rows = annotator_rows(experiment, tallies(experiment), shared_answers(experiment))
    return {
        "badge": badge(experiment, pulse),
        "verdict": verdict_of(
            experiment,
            snapshot,
            pulse,
            remaining,
            ranked=ranked,
            ladder=claims,
            comparisons=comparisons,
            hours_each=None if remaining is None else hours_each(experiment),
            n_annotators=n_annotators,
            pool=pools.supply(experiment) if running else None,
        ),
        "lacks_annotators": by_people and not n_annotators and not concluded and not reached,
        "ladder": claims and vars(claims) | {"shown": claims.shown},
        "comparisons": comparisons,
        "judged_by": judged_by(experiment) if concluded else None,
        "by_machines": by_machines(experiment),
        "doubts": doubted,
        "n_people": len(judged_rows),
        "n_doubtful": sum(bool(row.doubts) for row in judged_rows),
        "voids": sentence_about(experiment),
        "spent": spent_of_limit(experiment),
        "policies": policies,
        **_rendered("result", experiment, below),
    }


def judged_by(experiment: Experiment) -> dict[str, Any]:
    """The totals of all judges, with the first and the last day."""
    found = totals(experiment)
    days = {
        name: at and timezone.localdate(at).isoformat()
        for name, at in (("since", found.since), ("until", found.until))
    }
    return vars(found) | days


def doubts_of(experiment: Experiment) -> Doubts:
    """The reasons to doubt a result, a moment ago: the same on every page, in the report and in the API."""
    name = f"doubts:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    return shared(name, lambda: doubts(experiment), age=_HEALTH)


def badge_of(experiment: Experiment) -> tuple[str, str]:
    """The look of an experiment's badge and its words."""
    return badge(experiment, _pulse_of(experiment))


def troubles_of(experiment: Experiment) -> list[str]:
    """Sentences about what it waits for, apart from judgments, in agreement with its badge."""
    return troubles(experiment, _pulse_of(experiment))


def _pulse_of(experiment: Experiment) -> Pulse:
    return shared(f"pulse:{experiment.pk}", lambda: pulses([experiment])[experiment.pk], age=_HEALTH)


def reading_matter(experiment: Experiment) -> dict[str, Any]:
    """The winner's prompt and examples, which a decision maker reads once. Polls leave them out."""
    if experiment.winner is None:
        return {}
    policy = experiment.policies.composable().at(experiment.winner.index)
    if policy is None:
        return {}
    names = policy_names(experiment)
    return {
        "number": policy.index + 1,
        "asked": asked(policy),
        "won": [(names[each.rival], each) for each in examples(policy, won=True)],
        "lost": [(names[each.rival], each) for each in examples(policy, won=False)],
    }


def moving_figures(experiment: Experiment) -> dict[str, Any]:
    """The figures of the method that move while the experiment runs: the forecast, and the queue."""
    name = f"moving:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    return shared(name, lambda: _moving_figures(experiment), age=_LIVE)


def _moving_figures(experiment: Experiment) -> dict[str, Any]:
    snapshot = latest_snapshot(experiment)
    health = queue_health(experiment)
    remaining = remaining_of(experiment, snapshot)
    comparisons = counts.comparison_count(experiment.pk)
    return {
        "experiment": experiment,
        "badge": badge(experiment, health),
        "health": health,
        "snapshot": snapshot,
        "comparisons": comparisons,
        "late": late_clicks(experiment, snapshot, comparisons),
        "remaining": remaining,
        "hours": _hours(experiment, remaining),
    }


def hours_each(experiment: Experiment) -> float | None:
    """Hours of annotators' time for one comparison; ``None`` without people, or before any judged."""
    if experiment.judge != Experiment.Judge.HUMAN:
        return None
    seconds = pairs_ahead.click_seconds(experiment, reading=True)
    return None if seconds is None else experiment.overlap * seconds / 3600


def _hours(experiment: Experiment, remaining: Remaining | None) -> Remaining | None:
    """Hours of annotators' time that remain; ``None`` without people or where too little is known."""
    each = hours_each(experiment)
    return None if remaining is None or each is None else remaining.times(each)


def charts_of(experiment: Experiment, tab: str, *, at_once: bool = False) -> DashboardPage | None:
    """The charts and tables of a tab as they were last computed.

    ``tab``: a name in ``TABS``. ``at_once``: of a large experiment, only what is there already; without any
    the page asks for them.
    """
    if at_once and counts.comparison_count(experiment.pk) > LARGE:
        row = dashboard_pages.find(experiment, tab)
        if row is None or dashboard_pages.is_old(row):
            return None
    return dashboard_pages.show(experiment=experiment, page=tab, make=TABS[tab])


def _rendered(tab: str, experiment: Experiment, shown: dict[str, Any]) -> dict[str, str]:
    html = render_to_string(f"dashboard/_{tab}_charts.html", {"experiment": experiment} | shown)
    return {"html": html, "version": hashlib.sha256(html.encode()).hexdigest()[:16]}


def _below(
    experiment: Experiment,
    ranked: Sequence[Ranked],
    policies: Sequence[dict[str, Any]],
    spending: Sequence[PolicySpending],
    comparisons: int,
) -> dict[str, Any]:
    wins = counts.wins_matrix(experiment)
    leader = ranked[0].standing.policy
    best = experiment.winner or (experiment.policies.at(leader) if comparisons else None)
    return {
        "best": None if best is None else policy_names(experiment)[best.index],
        "tasks": None if best is None else weakest_tasks(best),
        "tags": tag_rows(experiment, best),
        "judged": comparisons > 0,
        "policies": policies,
        "crosses": charts.crossing(policies),
        "counts_tokens": _counts_tokens(experiment, spending),
        "effects": charts.effect_rows(_effects(experiment), wins, experiment.delta, policy_names(experiment)),
        "priced": any(row.cost for row in spending),
        "tradeoffs": charts.tradeoffs(ranked, spending) if comparisons else [],
    }


def _quality(experiment: Experiment) -> dict[str, str]:
    names = policy_names(experiment)
    spending = policy_spending(experiment)
    by_people = experiment.judge == Experiment.Judge.HUMAN
    judged, shared_ones = tallies(experiment), shared_answers(experiment)
    annotators = annotator_rows(experiment, judged, shared_ones)
    return _rendered(
        "quality",
        experiment,
        {
            "annotators": annotators,
            "doubtful": [row for row in annotators if row.doubts],
            "ended": ended_rows(experiment),
            "judges": judge_rows(judged),
            "longer": longer_preferred(experiment),
            "facts": facts(experiment),
            "agreement": agreement(agreement_in(shared_ones)) if by_people else "",
            "doubts": doubts(experiment),
            "concerns": _concerns(experiment),
            "further": [
                (each, [(names[policy], value, n) for policy, value, n in each.by_policy])
                for each in further_results(experiment)
            ],
            "cut": [(names[row.index], row) for row in spending if row.cut],
            "unanswered": [(names[row.index], row) for row in spending if row.unanswered],
        },
    )


def _method(experiment: Experiment) -> dict[str, str]:
    names = policy_names(experiment)
    wins = counts.wins_matrix(experiment)
    order = [each.standing.policy for each in ranking(experiment)]
    snapshots = race_of(experiment, most=charts.race_points(len(names)))
    spending = policy_spending(experiment)
    return _rendered(
        "method",
        experiment,
        {
            "race": charts.race(snapshots, names, experiment.delta, order),
            "heat_map": charts.heat_map(wins, names, order),
            "allocation": charts.allocation(space_of(experiment), wins, names),
            "concerns": _concerns(experiment),
            "spending": sorted(
                ((names[row.index], row) for row in spending), key=lambda row: not row[0].present
            ),
            "total": {
                "responses": sum(row.responses for row in spending),
                "tokens": sum(row.prompt_tokens + row.completion_tokens for row in spending),
            },
            "spent": spent_in(experiment),
            "purposes": spent_by_purpose(experiment),
            "counts_tokens": _counts_tokens(experiment, spending),
        },
    )


TABS = {"quality": _quality, "method": _method}


def _counts_tokens(experiment: Experiment, spending: Sequence[PolicySpending]) -> bool:
    """False of responses that came with a file, unless it said their tokens."""
    imported = experiment.responses == Experiment.Responses.IMPORTED
    return not imported or any(each.completion_tokens for each in spending)


def _effects(experiment: Experiment) -> Factorial | None:
    """The space of the levels, where several factors vary; of a single one the ranking says all."""
    factorial = factorial_space(experiment)
    if factorial is None or sum(len(levels) > 1 for levels in factorial.levels.values()) < 2:
        return None
    return factorial


def _concerns(experiment: Experiment) -> dict[str, Any]:
    judged, ties = counts.wins_and_ties(experiment)
    return concerns(
        experiment,
        _effects(experiment),
        judged,
        ties,
        names=policy_names(experiment),
        snapshot=latest_snapshot(experiment),
    )
