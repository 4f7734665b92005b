"""Outcomes without one annotator, and in the order of asking, which are replayed for comparison."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from django.db.models import F, QuerySet

from engine.core.judgment_order import judged_prefix
from engine.domain.outcome_of_answers import joint_outcome
from engine.domain.showings import Kind
from engine.models import Assignment, Comparison, Examination, Experiment, Judgment, ShowingEvent


def examination_of(experiment: Experiment) -> Examination | None:
    """The replays of an experiment and what they found; ``None`` before any were asked for."""
    return Examination.objects.filter(experiment=experiment).first()


def outcomes_without(
    experiment: Experiment, annotator_ids: list[int], last: int | None = None
) -> dict[int, list[tuple[int, int, float | None]]]:
    """``{annotator: [(i, j, D)]}`` as they would be without each annotator, in the order of their ends.

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
    without: dict[int, list[tuple[int, int, float | None]]] = {pk: [] for pk in annotator_ids}
    for comparison_id, (i, j, outcome) in _ends(experiment, last).items():
        for annotator_id in annotator_ids:
            if annotator_id not in theirs[comparison_id]:
                without[annotator_id].append((i, j, outcome))
            elif others := [each for by, each in given[comparison_id] if by != annotator_id]:
                without[annotator_id].append((i, j, joint_outcome(others, experiment.overlap_rule)))
    return without


def _ends(experiment: Experiment, last: int | None) -> dict[int, tuple[int, int, float | None]]:
    """``{comparison: (i, j, D)}`` of the showings that have ended, in the order of their ends."""
    events: QuerySet[ShowingEvent] = experiment.showing_events.filter(kind__in=[Kind.TOLD, Kind.REOPENED])
    if last is not None:
        events = events.filter(number__lte=last)
    ends: dict[int, tuple[int, int, float | None]] = {}
    for comparison_id, i, j, kind, outcome in events.order_by(
        F("number").asc(nulls_last=True), "pk"
    ).values_list(
        "comparison_id", "comparison__policy_i__index", "comparison__policy_j__index", "kind", "outcome"
    ):
        ends.pop(comparison_id, None)
        if kind == Kind.TOLD:
            ends[comparison_id] = (i, j, outcome)
    return ends


@dataclass(frozen=True)
class Asked:
    """Comparisons in the order in which they were planned.

    ``outcomes``: ``(i, j, D)`` of those before the first one that is open. ``n_judged``: those with an
    outcome.
    """

    outcomes: list[tuple[int, int, float]]
    n_judged: int


def outcomes_as_asked(experiment: Experiment, last: int) -> Asked:
    """The outcomes that the events up to the number ``last`` give, in the order of asking.

    Discarded comparisons are left out: nobody will judge them.
    """
    judged = {number: outcome for number, (_, _, outcome) in _ends(experiment, last).items()}
    asked = (
        Comparison.objects.filter(experiment=experiment)
        .exclude(state=Comparison.State.DISCARDED)
        .order_by("pk")
        .values_list("pk", "policy_i__index", "policy_j__index")
    )
    prefix = judged_prefix((i, j, judged.get(number)) for number, i, j in asked.iterator())
    return Asked(prefix, sum(outcome is not None for outcome in judged.values()))
