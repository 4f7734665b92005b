"""Pairs without an answer: who holds them, and who left them."""

from __future__ import annotations

from engine.models import Experiment, Lease, clock


def actively_held(experiment: Experiment) -> list[int]:
    """The numbers (keys) of comparisons that somebody who is here has open, ascending.

    A pair whose annotator left, or whose page was not heard of for a lease, is open too, but nobody waits for
    it.
    """
    held = Lease.objects.filter(
        comparison__experiment=experiment, state=Lease.State.OPEN, expires_at__gt=clock.now()
    )
    return sorted(set(held.values_list("comparison_id", flat=True)))
