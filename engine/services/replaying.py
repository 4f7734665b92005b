"""The evidence after a judgment was taken back: replayed by a worker, and only from where it changed.

Taking a judgment back only marks the evidence as stale, which costs nothing. Before the next decision, the
judgments that stand are replayed, because a peak of the evidence may have rested on the voided one. The
result equals, bit by bit, a replay from the first judgment.
"""

from __future__ import annotations

import hashlib
import math
import struct
import time
from dataclasses import dataclass

from django.db import transaction

from engine.core import Design
from engine.core.robustness import summed_wins
from engine.models import Experiment, ReplayPoint, Snapshot
from engine.selectors import counts, designs
from engine.selectors.compiled import EXPERIMENT, Compiled
from engine.selectors.counts import Completion
from engine.selectors.designs import Observed
from engine.services.snapshots import write_snapshot

# Comparisons between two points to go on from.
POINT_EVERY = 50
# Raised whenever the same outcomes under the same rules would give other evidence.
_VERSION = 4


@dataclass(frozen=True)
class _Replay:
    observed: Observed
    complete: bool


def mark_stale(*, experiment: Experiment) -> None:
    """Have the evidence of a locked experiment replayed before its next decision."""
    experiment.evidence_stale = True
    experiment.save(update_fields=["evidence_stale"])


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
    completions = list(counts.completed(experiment))
    # The part after the last point is not stored, so the deciding transaction replays it.
    kept = completions[: len(completions) - len(completions) % POINT_EVERY]
    return _replay(experiment, kept, deadline=time.monotonic() + seconds).complete


def replayed(*, experiment: Experiment) -> Observed:
    """The evidence of the judgments that stand, in the caller's transaction."""
    return _replay(experiment, list(counts.completed(experiment))).observed


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


def _replay(experiment: Experiment, completions: list[Completion], deadline: float = math.inf) -> _Replay:
    """A design told these comparisons, from the last stored point that fits them."""
    digests = _digests(experiment, completions)
    fitting = [
        (n, progress)
        for n, digest, progress in experiment.replay_points.values_list("comparisons", "digest", "progress")
        if digests.get(n) == digest
    ]
    start, progress = max(fitting, default=(0, None), key=lambda point: point[0])
    space, labels = designs.labelled_space(experiment)
    design = Design.from_counts(
        space,
        summed_wins(space.n_policies, [(each.i, each.j, each.outcome) for each in completions[:start]]),
        progress=progress,
        labels=labels,
        **designs.design_settings(experiment),
    )
    n = start
    late = False

    def keep(observed: Observed) -> bool:
        nonlocal n, late
        n += 1
        if n in digests:
            ReplayPoint.objects.update_or_create(
                experiment=experiment,
                comparisons=n,
                defaults={"digest": digests[n], "progress": observed.design.progress},
            )
            late = time.monotonic() >= deadline and n < len(completions)
        return not late

    last = completions[start - 1].judgment if start else 0
    observed = designs.observe(designs.Observed(design, last), completions[start:], each=keep)
    return _Replay(observed, complete=not late)


def _digests(experiment: Experiment, completions: list[Completion]) -> dict[int, str]:
    """A name for the rules and the first n outcomes, at each n that may have a point."""
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
    )
    running = hashlib.sha256(repr(rules).encode())
    digests = {}
    for n, each in enumerate(completions, 1):
        running.update(struct.pack("<IId", each.i, each.j, each.outcome))
        if n % POINT_EVERY == 0:
            digests[n] = running.hexdigest()
    return digests
