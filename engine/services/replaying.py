"""The evidence after a judgment was taken back: replayed by a worker, and only from where it changed.

Taking a judgment back replays nothing: it marks evidence that has seen it as stale. Before the next decision,
the judgments that stand are replayed, because a peak of the evidence may have rested on the voided one. The
result equals, bit by bit, a replay from the first judgment.

A replay starts from a stored point and reads only what was judged since, however long the history is. A point
fits as long as the judgments up to its own are the same. Taking one of them back deletes the point
(`mark_stale`). Points are stored under the experiment's lock, so none is stored of a judgment that is void.
What else may come is a judgment with a smaller number that was committed late: it adds to the count, so that
the counts tell.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Sequence

from django.db import transaction
from django.db.models import Subquery

from engine.core import Design
from engine.models import Experiment, ReplayPoint, Snapshot
from engine.selectors import counts, designs
from engine.selectors.compiled import EXPERIMENT, Compiled
from engine.selectors.counts import Completion
from engine.selectors.designs import Observed
from engine.services.locks import locked_experiment
from engine.services.snapshots import write_snapshot

# Comparisons between two points to go on from.
POINT_EVERY = 50
# Raised whenever the same outcomes under the same rules would give other evidence.
_VERSION = 8


def mark_stale(*, experiment: Experiment, changed_from: int | None = None) -> None:
    """Have the evidence of a locked experiment replayed before its next decision.

    ``changed_from``: the number of the first judgment that was taken back, where one was. Evidence that has
    not seen it yet stays as it is.
    """
    changed = Experiment.objects.filter(pk=experiment.pk)
    if changed_from is not None:
        experiment.replay_points.filter(last_judgment__gte=changed_from).delete()
        newest = experiment.snapshots.order_by("-pk").values("last_judgment")[:1]
        changed = changed.alias(seen=Subquery(newest)).filter(seen__gte=changed_from)
    if changed.update(evidence_stale=True):
        experiment.evidence_stale = True


_STALE = Compiled(lambda: Experiment.objects.filter(pk=EXPERIMENT, evidence_stale=True))


def catch_up(*, experiment_id: int, seconds: float = math.inf) -> bool:
    """Replay a stale experiment outside of any transaction, so that nobody waits for it.

    Returns
    -------
    bool
        True if only the outcomes since the last point are left for the transaction that decides.
        ``False`` if the time ran out: call again.
    """
    stale = _STALE(experiment=experiment_id)
    if not stale:
        return True
    [experiment] = stale
    point, start, newer = _newest_fitting(experiment)
    n = start.design.n_comparisons
    # The part after the last point is not stored, so the deciding transaction replays it.
    told = newer[: max((n + len(newer)) // POINT_EVERY * POINT_EVERY - n, 0)]
    if not told:
        return True
    deadline = time.monotonic() + seconds
    late = False
    points: list[ReplayPoint] = []

    def keep(observed: Observed) -> bool:
        nonlocal late
        reached = observed.design.n_comparisons
        if reached % POINT_EVERY == 0:
            points.append(_point(experiment, observed))
            late = time.monotonic() >= deadline and reached < n + len(told)
        return not late

    designs.observe(start, told, each=keep)
    with transaction.atomic():
        _store(_still_true(points, locked_experiment(experiment_id), point, n, told))
    return not late


def replayed(*, experiment: Experiment) -> Observed:
    """The evidence of the judgments that stand, in the caller's transaction."""
    _, start, newer = _newest_fitting(experiment)
    return designs.observe(start, newer)


@transaction.atomic
def settle(*, experiment: Experiment) -> None:
    """Bring the evidence of a locked experiment up to date with its judgments."""
    latest = designs.latest_snapshot(experiment)
    observed = up_to_date(experiment=experiment, latest=latest)
    n = 0 if latest is None else latest.comparisons
    if experiment.evidence_stale or observed.design.n_comparisons != n:
        write_snapshot(experiment=experiment, observed=observed)


def up_to_date(*, experiment: Experiment, latest: Snapshot | None) -> Observed:
    """The evidence of a locked experiment now, going on from its latest snapshot where that can be."""
    return designs.continued(experiment, latest) or replayed(experiment=experiment)


def keep_point(*, experiment: Experiment, observed: Observed, before: int) -> None:
    """Store a point of a locked experiment's evidence where one is due; ``before``: the number of comparisons
    when this was asked last.
    """
    if observed.design.n_comparisons // POINT_EVERY > before // POINT_EVERY:
        _store([_point(experiment, observed)])


def _newest_fitting(
    experiment: Experiment,
) -> tuple[ReplayPoint | None, Observed, list[Completion]]:
    """The newest point that fits, its evidence, and what was judged since; without one, all from the first
    judgment.
    """
    points = experiment.replay_points.filter(digest=_rules(experiment)).order_by("-comparisons")
    for point in points.iterator(chunk_size=1):
        if (found := designs.since(experiment, point)) is not None:
            return point, *found
    space, labels = designs.labelled_space(experiment)
    design = Design(space, labels=labels, **designs.design_settings(experiment))
    return None, Observed(design), list(counts.completed(experiment))


def _still_true(
    points: list[ReplayPoint],
    experiment: Experiment,
    start: ReplayPoint | None,
    n: int,
    told: Sequence[Completion],
) -> list[ReplayPoint]:
    """The points whose judgments, ``n`` and those that were told, are the same under the lock."""
    if start is None:
        now = list(counts.completed(experiment))
    else:
        # Where it was deleted meanwhile, a click that was committed late may have made up for the count.
        stands = experiment.replay_points.filter(pk=start.pk, last_judgment=start.last_judgment).exists()
        found = designs.since(experiment, start) if stands else None
        now = [] if found is None else found[1]
    same = itertools.takewhile(lambda both: both[0] == both[1], zip(told, now, strict=False))
    n_same = len(list(same))
    return [point for point in points if point.comparisons <= n + n_same]


def _point(experiment: Experiment, observed: Observed) -> ReplayPoint:
    return ReplayPoint(
        experiment=experiment,
        comparisons=observed.design.n_comparisons,
        last_judgment=observed.last_judgment,
        digest=_rules(experiment),
        progress=observed.design.progress,
    )


def _store(points: list[ReplayPoint]) -> None:
    ReplayPoint.objects.bulk_create(
        points,
        update_conflicts=True,
        unique_fields=["experiment", "comparisons"],
        update_fields=["last_judgment", "digest", "progress"],
    )


def _rules(experiment: Experiment) -> str:
    """A name for all but the judgments that the evidence depends on."""
    # The sampler is left out, as the evidence does not depend on it. The risk is here for the policies that
    # have been named, which depend on it.
    rules = (
        _VERSION,
        experiment.space,
        experiment.stopping,
        experiment.claim,
        experiment.epsilon,
        experiment.delta,
        experiment.streams,
        experiment.reserve,
        experiment.exact_ties,
        experiment.exclusive_proofs,
    )
    return hashlib.sha256(repr(rules).encode()).hexdigest()
