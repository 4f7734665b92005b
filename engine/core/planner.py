"""How many comparisons a decision will take."""

from __future__ import annotations

import numpy as np

from engine.core.likelihood import bernoulli_kl
from engine.core.types import BoolArray, FloatArray


def extrapolate(
    wins: FloatArray,
    counts: FloatArray,
    *,
    evidence: FloatArray,
    refuted: BoolArray,
    best: int,
    threshold: float,
    null_mean: float,
) -> float | None:
    """Comparisons still needed if the win rates stay as they are and evidence is balanced.

    Each policy not yet refuted needs (threshold - evidence) / d comparisons with its most informative
    opponent, d being the evidence (nats) that one comparison brings [LLM-PO, corollary "optimal ratio"].

    Returns
    -------
    The number of comparisons, or None while some policy is not yet beaten by any other on the face of it,
    or the only policy left is.
    """
    # One tie's worth of both outcomes keeps a lucky first comparison from promising too much.
    mean = (wins + 1.0) / (counts + 2.0)
    gain = bernoulli_kl(np.minimum(mean, null_mean), null_mean)
    gain[counts == 0] = 0.0
    speed = gain.max(axis=1)
    needed = ~refuted
    needed[best] = False
    if not needed.any() or np.any(speed[needed] <= 0.0):
        return None
    return float(np.sum((threshold - evidence[needed]) / speed[needed]))
