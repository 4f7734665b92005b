"""The contents of a dashboard: figures and charts, made once for all viewers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from django.template.loader import render_to_string

from engine.core.problem import Factorial
from engine.models import Experiment, Snapshot
from engine.selectors import buffer, counts, designs, people, pools
from engine.selectors.agreement import agreement_in, shared_answers
from engine.selectors.doubts import Doubts, doubts
from engine.selectors.duels import examples, weakest_tasks
from engine.selectors.findings import by_machines, ladder
from engine.selectors.health import QueueHealth, queue_health
from engine.selectors.judges import Totals, longer_preferred, tallies, totals
from engine.selectors.policies import factorial_space, policy_names, space_of
from engine.selectors.pulses import Pulse, pulses
from engine.selectors.rankings import Ranked, ranking
from engine.selectors.remaining import Remaining, forecast_progress, remaining_of
from engine.selectors.snapshots import latest_snapshot, race_of
from engine.selectors.spending import (
    PolicySpending,
    policy_spending,
    spent_by_purpose,
    spent_in,
    spent_of_limit,
)
from engine.services.experiments import may_stop
from labeling.caching import is_shared, shared
from labeling.dashboard import charts
from labeling.dashboard.annotators import annotator_rows, ended_rows, judge_rows
from labeling.dashboard.past_votes import facts
from labeling.dashboard.policies import asked
from labeling.dashboard.status import badge, late_clicks
from labeling.dashboard.tags import tag_rows
from labeling.dashboard.verdict import verdict_of
from labeling.dashboard.voids import sentence_about
from labeling.dashboard.warnings import concerns
from labeling.formatting import agreement

# Largest ages, in units of DASHBOARD_SECONDS: after a change, and without one.
_LIVE = (0.2, 0.2)
_RESULT = (0.4, 0.4)
_HEALTH = (0.5, 0.5)
_CHARTS = (1.0, 12.0)
_PEOPLE = (2.0, 12.0)
_CONCERNS = (6.0, 720.0)
_TOTALS = (6.0, 6.0)
# Comparisons from which on the charts of a tab may take longer than somebody waits for a page.
LARGE = 20_000


def result_figures(experiment: Experiment) -> dict[str, Any]:
    """The verdict and the charts below it, a moment ago: neither is ever older than the other."""
    name = f"result-figures:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    return shared(name, None, lambda: _result_figures(experiment), ages=_RESULT)


def _result_figures(experiment: Experiment) -> dict[str, Any]:
    snapshot = latest_snapshot(experiment)
    # The leader, the claims and the ranking all come from this one evidence.
    observed = designs.load(experiment)
    ranked = ranking(experiment, observed)
    comparisons = counts.comparison_count(experiment.pk)
    pulse = pulse_of(experiment)
    claims = ladder(experiment, observed) if comparisons else None
    goal = claims.goal if claims else None
    reached = goal is not None and goal.holds
    remaining = None if reached else remaining_of(experiment, snapshot)
    each = None if remaining is None else _hours_each(experiment)
    by_people = experiment.judge == Experiment.Judge.HUMAN
    n_annotators = people.annotators(experiment.pk).count() if by_people else 0
    running = experiment.state == Experiment.State.RUNNING
    spending = spending_of(experiment, (experiment.state, comparisons))
    policies = charts.policy_rows(ranked, spending, judged=comparisons > 0)
    shown = _result(experiment, ranked, policies, spending, comparisons)
    concluded = experiment.state == Experiment.State.CONCLUDED
    doubtful, doubted = [], []
    # Of more, telling the doubts would take longer than somebody waits for a page.
    if comparisons <= LARGE:
        doubted = doubts_of(experiment).found
        if by_people and comparisons:
            doubtful = _people_of(experiment, _version_of(experiment, snapshot, comparisons))["doubtful"]
    return {
        "experiment": experiment,
        "badge": badge(experiment, pulse),
        "verdict": verdict_of(
            experiment,
            snapshot,
            pulse,
            remaining,
            ranked=ranked,
            ladder=claims,
            comparisons=comparisons,
            hours=None if remaining is None or each is None else remaining.expected * each,
            n_annotators=n_annotators,
            pool=pools.supply(experiment) if running else None,
        ),
        "lacks_annotators": by_people and not n_annotators and not concluded and not reached,
        "ladder": claims,
        "comparisons": comparisons,
        "judged_by": totals_of(experiment, comparisons) if concluded else None,
        "late": late_clicks(experiment, snapshot, comparisons),
        "by_machines": by_machines_of(experiment, comparisons),
        "doubts": doubted,
        "n_doubtful": len(doubtful),
        "voids": sentence_about(experiment),
        "spent": spent_of_limit(experiment),
        "may_stop": may_stop(experiment),
        "policies": policies,
        "charts": _rendered("result", experiment, shown),
    }


def totals_of(experiment: Experiment, comparisons: int) -> Totals:
    """The totals of all judges, a moment ago, which the result of a decided experiment and its report share.

    ``comparisons``: their number now. Never show it with totals from another number.
    """
    name = f"totals:{experiment.pk}:{experiment.state}:{comparisons}"
    return shared(name, None, lambda: totals(experiment), ages=_TOTALS)


def by_machines_of(experiment: Experiment, comparisons: int) -> str:
    """The sentence on outcomes that no person gave, a moment ago. ``comparisons``: their number now."""
    name = f"by-machines:{experiment.pk}:{experiment.state}"
    return shared(name, comparisons, lambda: by_machines(experiment), ages=_TOTALS)


def doubts_of(experiment: Experiment) -> Doubts:
    """The reasons to doubt a result, a moment ago: the same on every page, in the report and in the API."""
    snapshot = latest_snapshot(experiment)
    version = _version_of(experiment, snapshot, counts.comparison_count(experiment.pk))
    name = f"doubts:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    return shared(name, version, lambda: doubts(experiment), ages=_PEOPLE)


def badge_of(experiment: Experiment) -> tuple[str, str]:
    """The look of an experiment's badge and its words."""
    return badge(experiment, pulse_of(experiment))


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
    return shared(name, None, lambda: _moving_figures(experiment), ages=_LIVE)


def _moving_figures(experiment: Experiment) -> dict[str, Any]:
    snapshot = latest_snapshot(experiment)
    health = health_of(experiment)
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
        "forecast_progress": forecast_progress(experiment),
    }


def pulse_of(experiment: Experiment) -> Pulse:
    """The workers and what waits for them, a moment ago: all that the verdict and the badge need."""
    name = f"pulse:{experiment.pk}"
    return shared(name, None, lambda: pulses([experiment])[experiment.pk], ages=_HEALTH)


def health_of(experiment: Experiment) -> QueueHealth:
    """The queue and the workers, a moment ago."""
    return shared(f"health:{experiment.pk}", None, lambda: queue_health(experiment), ages=_HEALTH)


def _hours_each(experiment: Experiment) -> float | None:
    """Hours of annotators' time for one comparison; ``None`` without people, or before any judged."""
    if experiment.judge != Experiment.Judge.HUMAN:
        return None
    seconds = shared(
        f"click-seconds:{experiment.pk}", None, lambda: buffer.click_seconds(experiment), ages=_CONCERNS
    )
    return None if seconds is None else experiment.overlap * seconds / 3600


def _hours(experiment: Experiment, remaining: Remaining | None) -> tuple[float, float, float | None] | None:
    """Hours of annotators' time that remain: expected, from, to; ``None`` without people or a simulation."""
    if remaining is None or remaining.between is None or (each := _hours_each(experiment)) is None:
        return None
    low, high = remaining.between
    return remaining.expected * each, low * each, None if high is None else high * each


def rendered_charts(experiment: Experiment, tab: str, *, at_once: bool = False) -> dict[str, str]:
    """The charts and tables of a tab, and a name for just this content of them: the same for everybody, so
    made once and shared.

    ``tab``: a name in ``TABS``. ``at_once``: of a large experiment, only cached figures; without
    any the page asks for them.
    """
    snapshot = latest_snapshot(experiment)
    comparisons = counts.comparison_count(experiment.pk)
    version = _version_of(experiment, snapshot, comparisons)
    # The state is in the name: the last look at a running experiment must not outlive its conclusion.
    name = f"{tab}:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    if at_once and comparisons > LARGE and not is_shared(name, version, ages=_CHARTS):
        return {"html": "", "version": ""}
    return shared(
        name,
        version,
        lambda: _rendered(tab, experiment, TABS[tab](experiment, snapshot, version)),
        ages=_CHARTS,
    )


def _rendered(tab: str, experiment: Experiment, shown: dict[str, Any]) -> dict[str, str]:
    html = render_to_string(f"dashboard/_{tab}_charts.html", {"experiment": experiment} | shown)
    return {"html": html, "version": hashlib.sha256(html.encode()).hexdigest()[:16]}


_Version = tuple[object, ...]


def _version_of(experiment: Experiment, snapshot: Snapshot | None, comparisons: int) -> _Version:
    return (
        experiment.state,
        experiment.conclusion,
        experiment.planned_count,
        None if snapshot is None else snapshot.pk,
        comparisons,
    )


def _result(
    experiment: Experiment,
    ranked: Sequence[Ranked],
    policies: Sequence[dict[str, Any]],
    spending: Sequence[PolicySpending],
    comparisons: int,
) -> dict[str, Any]:
    wins = counts.wins_matrix(experiment)
    leader = ranked[0].standing.policy
    best = experiment.winner or (experiment.policies.at(leader) if comparisons else None)
    tasks = None
    version = (experiment.state, comparisons)
    if best is not None:
        name = f"tasks:{experiment.pk}:{best.pk}"
        tasks = shared(name, version, lambda: weakest_tasks(best), ages=_CONCERNS)
    return {
        "best": None if best is None else policy_names(experiment)[best.index],
        "tasks": tasks,
        "tags": shared(f"tags:{experiment.pk}", version, lambda: tag_rows(experiment, best), ages=_CONCERNS),
        "judged": comparisons > 0,
        "policies": policies,
        "counts_tokens": _counts_tokens(experiment, spending),
        "effects": charts.effect_rows(_effects(experiment), wins, experiment.delta),
        "priced": any(row.cost for row in spending),
        "tradeoffs": charts.tradeoffs(ranked, spending) if comparisons else [],
    }


def _quality(experiment: Experiment, snapshot: Snapshot | None, version: _Version) -> dict[str, Any]:
    names = policy_names(experiment)
    spending = spending_of(experiment, version)
    return _people_of(experiment, version) | {
        "doubts": doubts_of(experiment),
        "concerns": _concerns(experiment, snapshot, version),
        "cut": [(names[row.index], row) for row in spending if row.cut],
        "unanswered": [(names[row.index], row) for row in spending if row.unanswered],
    }


def _people_of(experiment: Experiment, version: _Version) -> dict[str, Any]:
    return shared(f"people:{experiment.pk}", version, lambda: _people(experiment), ages=_PEOPLE)


def _people(experiment: Experiment) -> dict[str, Any]:
    shared_ones = shared_answers(experiment)
    judged = tallies(experiment)
    annotators = annotator_rows(experiment, judged, shared_ones)
    return {
        "annotators": annotators,
        "doubtful": [row for row in annotators if row.doubts],
        "ended": ended_rows(experiment),
        "judges": judge_rows(judged),
        "longer": longer_preferred(experiment),
        "facts": facts(experiment),
        "agreement": agreement(agreement_in(shared_ones))
        if experiment.judge == Experiment.Judge.HUMAN
        else "",
    }


def _method(experiment: Experiment, snapshot: Snapshot | None, version: _Version) -> dict[str, Any]:
    names = policy_names(experiment)
    wins = counts.wins_matrix(experiment)
    order = [each.standing.policy for each in ranking(experiment)]
    snapshots = race_of(experiment, most=charts.race_points(len(names)))
    spending = spending_of(experiment, version)
    return {
        "race": charts.race(snapshots, names, experiment.delta, order),
        "heat_map": charts.heat_map(wins, names, order),
        "allocation": charts.allocation(space_of(experiment), wins, names),
        "concerns": _concerns(experiment, snapshot, version),
        "spending": [(names[row.index], row) for row in spending],
        "total": {
            "responses": sum(row.responses for row in spending),
            "tokens": sum(row.prompt_tokens + row.completion_tokens for row in spending),
        },
        "spent": spent_in(experiment),
        "purposes": spent_by_purpose(experiment),
        "counts_tokens": _counts_tokens(experiment, spending),
    }


TABS: dict[str, Callable[[Experiment, Snapshot | None, _Version], dict[str, Any]]] = {
    "quality": _quality,
    "method": _method,
}


def spending_of(experiment: Experiment, version: Hashable) -> list[PolicySpending]:
    """Tokens, time and cost of each policy's responses, by policy index, a moment ago."""
    return shared(f"spending:{experiment.pk}", version, lambda: policy_spending(experiment), ages=_PEOPLE)


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


def _concerns(experiment: Experiment, snapshot: Snapshot | None, version: _Version) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        judged, ties = counts.wins_and_ties(experiment)
        names = policy_names(experiment)
        return concerns(experiment, _effects(experiment), judged, ties, names=names, snapshot=snapshot)

    return shared(f"concerns:{experiment.pk}", version, look, ages=_CONCERNS)
