"""Outcomes without one annotator, and in the order of asking, which are replayed for comparison."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.order import judged_prefix
from engine.domain.outcomes import joint_outcome
from engine.models import Comparison, Examination, Experiment
from engine.selectors.counts import completed, standing_judgments


def examination_of(experiment: Experiment) -> Examination | None:
    """The replays of an experiment and what they found; ``None`` before any were asked for."""
    return Examination.objects.filter(experiment=experiment).first()


def outcomes_without(
    experiment: Experiment, annotator_ids: list[int], last_judgment: int
) -> dict[int, list[tuple[int, int, float]]]:
    """``{annotator: [(i, j, D)]}`` as they would be without each annotator's judgments, in their order.

    A comparison that others judged too gets its outcome from them; one that nobody else judged drops out.
    Only judgments up to ``last_judgment``, and comparisons that are complete.
    """
    heard: dict[int, tuple[int, int, list[tuple[int | None, float]]]] = {}
    rows = (
        standing_judgments(experiment.pk)
        .filter(pk__lte=last_judgment, comparison__outcome__isnull=False)
        .order_by("pk")
        .values_list(
            "comparison_id",
            "comparison__policy_i__index",
            "comparison__policy_j__index",
            "annotator_id",
            "outcome",
        )
    )
    for comparison_id, i, j, annotator_id, outcome in rows.iterator():
        # Moved to the end: a comparison counts from its last judgment on.
        earlier = heard.pop(comparison_id, None)
        heard[comparison_id] = (i, j, [*(earlier[2] if earlier else []), (annotator_id, outcome)])
    without: dict[int, list[tuple[int, int, float]]] = {annotator_id: [] for annotator_id in annotator_ids}
    for i, j, given in heard.values():
        for annotator_id in annotator_ids:
            left = [outcome for by, outcome in given if by != annotator_id]
            if left:
                without[annotator_id].append((i, j, joint_outcome(left, experiment.overlap_rule)))
    return without


@dataclass(frozen=True)
class Asked:
    """Comparisons in the order in which they were planned.

    ``outcomes``: ``(i, j, D)`` of those before the first one that is open. ``n_judged``: those with an
    outcome.
    """

    outcomes: list[tuple[int, int, float]]
    n_judged: int


def outcomes_as_asked(experiment: Experiment, last_judgment: int) -> Asked:
    """The outcomes that the judgments up to ``last_judgment`` give, in the order of asking.

    Discarded comparisons are left out: nobody will judge them.
    """
    judged = {
        each.comparison: each.outcome for each in completed(experiment) if each.judgment <= last_judgment
    }
    asked = (
        Comparison.objects.filter(experiment=experiment)
        .exclude(state=Comparison.State.DISCARDED)
        .order_by("pk")
        .values_list("pk", "policy_i__index", "policy_j__index")
    )
    prefix = judged_prefix((i, j, judged.get(number)) for number, i, j in asked.iterator())
    return Asked(prefix, len(judged))
