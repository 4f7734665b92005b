"""The contents of a dashboard: figures that change with every click, and charts made once for all viewers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string

from engine.models import Experiment, Snapshot
from engine.selectors import buffer, counts, designs, people
from engine.selectors.findings import Ladder, ladder
from engine.selectors.health import QueueHealth, queue_health
from engine.selectors.remaining import Remaining, forecast_progress, remaining
from engine.selectors.spending import policy_spending
from labeling.caching import shared
from labeling.dashboard import charts
from labeling.dashboard.annotators import annotator_rows, judge_rows
from labeling.dashboard.status import late_clicks, leader, policy_names, status_of
from labeling.dashboard.warnings import Concerns, concerns

# Largest ages, in units of DASHBOARD_SECONDS: after a change, and without one.
_LIVE = (0.2, 0.2)
_HEALTH = (0.5, 0.5)
_CHARTS = (1.0, 12.0)
_PEOPLE = (2.0, 12.0)
_CONCERNS = (6.0, 720.0)


def live_figures(experiment: Experiment) -> dict[str, Any]:
    """The figures that change with every click."""
    name = f"live:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    return shared(name, None, lambda: _live_figures(experiment), ages=_LIVE)


def _live_figures(experiment: Experiment) -> dict[str, Any]:
    snapshot = designs.latest_snapshot(experiment)
    health = health_of(experiment)
    comparisons = counts.comparison_count(experiment.pk)
    left = remaining(experiment, snapshot)
    return {
        "experiment": experiment,
        "status": status_of(experiment, snapshot=snapshot, health=health),
        "health": health,
        "snapshot": snapshot,
        "leader": leader(experiment, snapshot),
        "comparisons": comparisons,
        "no_annotators": not comparisons and _lacks_annotators(experiment),
        "late": late_clicks(experiment, snapshot),
        "remaining": left,
        "hours": _hours(experiment, left),
        "ladder": _ladder(experiment, comparisons),
        "may_stop": experiment.state in {Experiment.State.RUNNING, Experiment.State.PAUSED},
        "forecast_progress": forecast_progress(experiment),
    }


def _ladder(experiment: Experiment, comparisons: int) -> Ladder | None:
    """The claims that hold and those that are missing, once there is a comparison."""
    if experiment.state == Experiment.State.DRAFT or not comparisons:
        return None
    version = (experiment.claim, experiment.delta, experiment.epsilon, comparisons, experiment.evidence_stale)
    return shared(f"ladder:{experiment.pk}", version, lambda: ladder(experiment), ages=_HEALTH)


def _lacks_annotators(experiment: Experiment) -> bool:
    return (
        experiment.judge == Experiment.Judge.HUMAN
        and experiment.state != Experiment.State.CONCLUDED
        and not people.annotators(experiment.pk).exists()
    )


def health_of(experiment: Experiment) -> QueueHealth:
    """The queue and the workers, a moment ago."""
    return shared(f"health:{experiment.pk}", None, lambda: queue_health(experiment), ages=_HEALTH)


def _hours(experiment: Experiment, left: Remaining | None) -> tuple[float, float, float | None] | None:
    """Hours of annotators' time that remain: expected, from, to; ``None`` without people or a simulation."""
    if left is None or left.between is None or experiment.judge != Experiment.Judge.HUMAN:
        return None
    seconds = shared(
        f"click-seconds:{experiment.pk}", None, lambda: buffer.click_seconds(experiment), ages=_CONCERNS
    )
    if seconds is None:
        return None
    each = experiment.overlap * seconds / 3600
    low, high = left.between
    return left.expected * each, low * each, None if high is None else high * each


@dataclass(frozen=True)
class Rendered:
    """A part of the page, and a name for just this content of it."""

    html: str
    version: str


def rendered_charts(experiment: Experiment) -> Rendered:
    """The charts and tables: the same for everybody, so made once and shared."""
    snapshot = designs.latest_snapshot(experiment)
    version = (
        experiment.state,
        experiment.conclusion,
        experiment.planned_count,
        None if snapshot is None else snapshot.pk,
        counts.comparison_count(experiment.pk),
    )

    def make() -> Rendered:
        html = render_to_string("dashboard/_charts.html", _chart_figures(experiment, snapshot, version))
        return Rendered(html, hashlib.sha256(html.encode()).hexdigest()[:16])

    # The state is in the name: the last look at a running experiment must not outlive its conclusion.
    name = f"charts:{experiment.pk}:{experiment.state}:{experiment.conclusion}"
    return shared(name, version, make, ages=_CHARTS)


def _chart_figures(
    experiment: Experiment, snapshot: Snapshot | None, version: tuple[object, ...]
) -> dict[str, Any]:
    names = policy_names(experiment)
    wins = counts.wins_matrix(experiment)
    ranking = designs.known_design(experiment).ranking()
    order = [standing.policy for standing in ranking]
    factorial = designs.factorial_space(experiment)
    snapshots = designs.race(experiment, most=charts.race_points(len(names)))
    spending = shared(f"spending:{experiment.pk}", version, lambda: policy_spending(experiment), ages=_PEOPLE)

    def look() -> Concerns:
        judged, ties = counts.wins_and_ties(experiment)
        return concerns(experiment, factorial, judged, ties, names=names, snapshot=snapshot)

    return {
        "experiment": experiment,
        "race": charts.race(snapshots, names, experiment.delta, order),
        "policies": charts.policy_rows(experiment, names, snapshot, ranking),
        "heat_map": charts.heat_map(wins, names, order),
        "allocation": charts.allocation(designs.space(experiment), wins, names),
        "effects": charts.effect_rows(factorial, wins, experiment.delta),
        "assumed": experiment.space == Experiment.Space.FACTORIAL,
        "concerns": shared(f"concerns:{experiment.pk}", version, look, ages=_CONCERNS),
        "spending": [(names[row.index], row) for row in spending],
        "total": {
            "responses": sum(row.responses for row in spending),
            "tokens": sum(row.prompt_tokens + row.completion_tokens for row in spending),
            "cost": sum(row.cost for row in spending),
        },
        "priced": settings.PRICE_PROMPT_TOKENS or settings.PRICE_COMPLETION_TOKENS,
    } | shared(f"people:{experiment.pk}", version, lambda: _people(experiment), ages=_PEOPLE)


def _people(experiment: Experiment) -> dict[str, Any]:
    return {"annotators": annotator_rows(experiment), "judges": judge_rows(experiment)}
