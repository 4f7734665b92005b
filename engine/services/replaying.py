"""The evidence after a judgment was taken back: replayed by a worker, and only from where it changed.

The one who takes a judgment back marks the evidence as stale, which costs nothing. Before the next decision
the judgments that stand are replayed: the voided one may have carried a peak. The result equals, bit by bit,
a replay from nothing.
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
from engine.core.types import FloatArray
from engine.models import Experiment, ReplayPoint
from engine.selectors import counts, designs
from engine.services.snapshots import write_snapshot

# Comparisons between two points to go on from.
POINT_EVERY = 50
# Raised whenever the same outcomes under the same rules would give other evidence.
_VERSION = 1


@dataclass(frozen=True)
class _Replay:
    design: Design
    complete: bool


def mark_stale(*, experiment: Experiment) -> None:
    """Have the evidence of a locked experiment replayed before its next decision."""
    experiment.evidence_stale = True
    experiment.save(update_fields=["evidence_stale"])


def catch_up(*, experiment_id: int, seconds: float = math.inf) -> bool:
    """Replay a stale experiment outside of any transaction, so that nobody waits for it.

    Returns
    -------
    bool
        True if only the outcomes since the last point are left for the transaction that decides.
        ``False`` if the time ran out: call again.
    """
    experiment = Experiment.objects.filter(pk=experiment_id, evidence_stale=True).first()
    if experiment is None:
        return True
    outcomes = list(counts.outcomes(experiment))
    # The part after the last point is not stored, so the deciding transaction replays it.
    kept = outcomes[: len(outcomes) - len(outcomes) % POINT_EVERY]
    return _replay(experiment, kept, deadline=time.monotonic() + seconds).complete


def replayed_peaks(*, experiment: Experiment) -> FloatArray:
    """The peaks over the judgments that stand, in the caller's transaction."""
    return _replay(experiment, list(counts.outcomes(experiment))).design.peak_evidence


@transaction.atomic
def settle(*, experiment: Experiment) -> None:
    """Bring the evidence of a locked experiment up to date where it is stale."""
    if experiment.evidence_stale:
        peaks = replayed_peaks(experiment=experiment)
        write_snapshot(experiment=experiment, design=designs.design(experiment, peaks=peaks))


def _replay(
    experiment: Experiment, outcomes: list[tuple[int, int, float]], deadline: float = math.inf
) -> _Replay:
    """A design told these outcomes, from the last stored point that fits them."""
    digests = _digests(experiment, outcomes)
    fitting = [
        (n, peaks)
        for n, digest, peaks in experiment.replay_points.values_list("comparisons", "digest", "peak_evidence")
        if digests.get(n) == digest
    ]
    start, peaks = max(fitting, default=(0, None), key=lambda point: point[0])
    space = designs.space(experiment)
    design = Design.from_counts(
        space,
        summed_wins(space.n_policies, outcomes[:start]),
        peak_evidence=peaks,
        **designs.design_settings(experiment),
    )
    for n, outcome in enumerate(outcomes[start:], start + 1):
        design.tell(*outcome)
        if n in digests:
            ReplayPoint.objects.update_or_create(
                experiment=experiment,
                comparisons=n,
                defaults={"digest": digests[n], "peak_evidence": design.peak_evidence.tolist()},
            )
            if time.monotonic() >= deadline and n < len(outcomes):
                return _Replay(design, complete=False)
    return _Replay(design, complete=True)


def _digests(experiment: Experiment, outcomes: list[tuple[int, int, float]]) -> dict[int, str]:
    """A name for the rules and the first n outcomes, at each n that may have a point."""
    rules = (_VERSION, experiment.space, experiment.stopping, experiment.epsilon)
    running = hashlib.sha256(repr(rules).encode())
    digests = {}
    for n, (i, j, outcome) in enumerate(outcomes, 1):
        running.update(struct.pack("<IId", i, j, outcome))
        if n % POINT_EVERY == 0:
            digests[n] = running.hexdigest()
    return digests
