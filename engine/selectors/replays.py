"""Outcomes without one annotator, and in the order of asking, which are replayed for comparison."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db.models import F, QuerySet

from engine.core.judgment_order import judged_prefix
from engine.domain.outcome_of_answers import joint_outcome
from engine.domain.showings import Kind
from engine.models import Assignment, Comparison, Examination, Experiment, Judgment, ShowingEvent


def examination_of(experiment: Experiment) -> Examination | None:
    """The replays of an experiment and what they found; ``None`` before any were asked for."""
    return Examination.objects.filter(experiment=experiment).first()


@dataclass(frozen=True)
class Told:
    """Outcomes ``(i, j, D)`` in their order, and the place in the log of the end of each, or of its plan."""

    outcomes: list[tuple[int, int, float | None]] = field(default_factory=list)
    places: list[float] = field(default_factory=list)

    def add(self, i: int, j: int, outcome: float | None, place: float) -> None:
        """Tell one more."""
        self.outcomes.append((i, j, outcome))
        self.places.append(place)

    def first(self, n: int) -> Told:
        """The first n of them."""
        return Told(self.outcomes[:n], self.places[:n])


def outcomes_without(
    experiment: Experiment, annotator_ids: list[int], last: int | None = None
) -> dict[int, Told]:
    """The outcomes as they would be without each of these annotators, in the order of their ends.

    A comparison that others judged too gets its outcome from them; one that nobody else was given drops out.
    D is ``None`` where it ended without an outcome. ``last``: the number of the last event to look at.
    """
    theirs: defaultdict[int, set[int]] = defaultdict(set)
    given: defaultdict[int, list[tuple[int | None, float]]] = defaultdict(list)
    of = {"comparison__experiment": experiment, "annotator__in": annotator_ids}
    let_go = Assignment.objects.filter(**of, state=Assignment.State.SKIPPED)
    for comparison_id, annotator_id in let_go.values_list("comparison_id", "annotator_id"):
        theirs[comparison_id].add(annotator_id)
    rows = Judgment.objects.filter(comparison__experiment=experiment).order_by("pk")
    for comparison_id, by, said, stands in rows.values_list(
        "comparison_id", "annotator_id", "outcome", "standing"
    ):
        if stands:
            given[comparison_id].append((by, said))
        if by is not None:
            theirs[comparison_id].add(by)
    without = {pk: Told() for pk in annotator_ids}
    for comparison_id, (i, j, outcome, place) in _ends(experiment, last).items():
        for annotator_id in annotator_ids:
            if annotator_id not in theirs[comparison_id]:
                without[annotator_id].add(i, j, outcome, place)
            elif others := [each for by, each in given[comparison_id] if by != annotator_id]:
                without[annotator_id].add(i, j, joint_outcome(others, experiment.overlap_rule), place)
    return without


def arrivals(experiment: Experiment, last: int) -> list[Arrival]:
    """The events of this evidence by which policies joined or retired, or a stage began, in their order."""
    events = experiment.showing_events.filter(comparison=None, number__lte=last).order_by("number")
    found = []
    for number, at in events.values_list("number", "created_at"):
        planned = experiment.comparisons.filter(created_at__lt=at).order_by("-pk")
        found.append(Arrival(number or 0, planned.values_list("pk", flat=True).first() or 0))
    return found


class Arrival(NamedTuple):
    """The number of an event in the log, and the key of the last comparison that was planned before."""

    number: int
    planned: int


def _ends(experiment: Experiment, last: int | None) -> dict[int, tuple[int, int, float | None, float]]:
    """``{comparison: (i, j, D, number)}`` of the showings that have ended, in the order of their ends; the
    number is that of the event.
    """
    events: QuerySet[ShowingEvent] = experiment.showing_events.filter(kind__in=[Kind.TOLD, Kind.REOPENED])
    if last is not None:
        events = events.filter(number__lte=last)
    ends: dict[int, tuple[int, int, float | None, float]] = {}
    for comparison_id, i, j, kind, outcome, number in events.order_by(
        F("number").asc(nulls_last=True), "pk"
    ).values_list(
        "comparison_id", "comparison__policy_i__index", "comparison__policy_j__index", "kind", "outcome",
        "number",
    ):  # fmt: skip
        ends.pop(comparison_id, None)
        if kind == Kind.TOLD:
            ends[comparison_id] = (i, j, outcome, math.inf if number is None else number)
    return ends


@dataclass(frozen=True)
class Asked:
    """Comparisons in the order in which they were planned.

    ``told``: those before the first one that is open, each with its key. ``n_judged``: those with an outcome.
    """

    told: Told
    n_judged: int


def outcomes_as_asked(experiment: Experiment, last: int) -> Asked:
    """The outcomes that the events up to the number ``last`` give, in the order of asking.

    Discarded comparisons are left out: nobody will judge them.
    """
    judged = {number: outcome for number, (_, _, outcome, _) in _ends(experiment, last).items()}
    asked = (
        Comparison.objects.filter(experiment=experiment)
        .exclude(state=Comparison.State.DISCARDED)
        .order_by("pk")
        .values_list("pk", "policy_i__index", "policy_j__index")
    )
    rows = list(asked)
    prefix = judged_prefix((i, j, judged.get(number)) for number, i, j in rows)
    told = Told([*prefix], [number for number, _, _ in rows[: len(prefix)]])
    return Asked(told, sum(outcome is not None for outcome in judged.values()))
