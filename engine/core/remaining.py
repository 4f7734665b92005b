"""How many comparisons a decision still takes, by a formula.

It is quick and fresh, and rougher than the simulated continuations of `planner.forecast_rest`.
"""

from __future__ import annotations

import numpy as np

from .ledger import Ledger
from .likelihood import bernoulli_kl
from .types import BoolArray, FloatArray

# A few ties' worth of both outcomes, which keeps lucky first comparisons from promising too much.
_SHRINKAGE = 5.0


def expected_remaining(ledger: Ledger, best: int | None) -> float | None:
    """Comparisons still needed if the win rates stay as they are, in the first run of a ledger.

    Parameters
    ----------
    ledger
        The comparisons so far and the evidence in them.
    best
        The policy that the decision would name; None where there is none.

    Returns
    -------
    About how many comparisons; None while that cannot be told.
    """
    tally, rule = ledger.tally, ledger.rule
    if best is None:
        return None
    if (model := ledger.model) is not None:
        return _in_model(
            model.separation(model.covariance(tally.counts))[0],
            int(tally.n_comparisons[0]),
            evidence=rule.evidence[0],
            refuted=rule.refuted[0],
            best=best,
            threshold=float(rule.threshold[0]),
        )
    if (proof := ledger.head_to_head()) is not None:
        b = proof.candidate(0, int(ledger.guess()[0]))
        k = proof.rivals(0, b)
        return _in_proof(
            tally.wins[0, k, b],
            tally.counts[0, k, b],
            missing=proof.threshold - proof.evidence.log_e[0, k, b],
            null_mean=proof.evidence.null_mean,
        )
    open_others = ~rule.refuted[0] & (np.arange(tally.n_policies) != best)
    if not tally.judged[0, open_others].all():
        return None
    return _in_pairs(
        tally.wins[0],
        tally.counts[0],
        evidence=rule.evidence[0],
        refuted=rule.refuted[0],
        best=best,
        threshold=float(rule.threshold[0]),
        null_mean=ledger.evidence.null_mean,
    )


def _in_pairs(
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

    Parameters
    ----------
    wins, counts
        Shape (K, K): summed outcomes of each policy against each other, and comparisons of each pair.
    evidence
        Shape (K,): log evidence (nats) against each policy.
    refuted
        Shape (K,): policies ruled out.
    best
        The policy that the others are to be refuted beside.
    threshold
        Evidence (nats) at which a policy is refuted.
    null_mean
        ½ + ε.

    Returns
    -------
    The number of comparisons, or None while some policy is not yet beaten by any other on the face of it,
    or the only policy left is.
    """
    needed = ~refuted
    needed[best] = False
    if not needed.any():
        return None
    met = np.nonzero(counts[needed])
    mean = (wins[needed][met] + _SHRINKAGE) / (counts[needed][met] + 2.0 * _SHRINKAGE)
    speed = np.zeros(int(needed.sum()))
    np.maximum.at(speed, met[0], bernoulli_kl(np.minimum(mean, null_mean), null_mean))
    if np.any(speed <= 0.0):
        return None
    return float(np.sum(np.maximum(threshold - evidence[needed], 0.0) / speed))


def _in_proof(wins: FloatArray, counts: FloatArray, *, missing: FloatArray, null_mean: float) -> float | None:
    """Comparisons still needed to prove one policy head to head if the win rates stay as they are.

    Parameters
    ----------
    wins, counts
        Shape (m,): outcomes of its m open rivals against it.
    missing
        Shape (m,): evidence (nats) that is still missing against each.

    Returns
    -------
    The number of comparisons, or None while some rival is not beaten on the face of it.
    """
    mean = (wins + _SHRINKAGE) / (counts + 2.0 * _SHRINKAGE)
    speed = bernoulli_kl(np.minimum(mean, null_mean), null_mean)
    if np.any(speed <= 0.0):
        return None
    return float(np.sum(missing / speed))


def _in_model(
    separation: FloatArray,
    n_comparisons: int,
    *,
    evidence: FloatArray,
    refuted: BoolArray,
    best: int,
    threshold: float,
) -> float | None:
    """Comparisons still needed in a Bradley-Terry space, where every comparison tells about all policies.

    Parameters
    ----------
    separation
        Shape (K,): (θᵀz)² / (2 zᵀH⁻¹z) in nats of every policy, which grows in proportion to the comparisons.
    n_comparisons
        Comparisons so far.
    evidence
        Shape (K,): log evidence (nats) against each policy.
    refuted
        Shape (K,): policies ruled out.
    best
        The policy that the others are to be refuted beside.
    threshold
        Evidence (nats) at which a policy is refuted.

    Returns
    -------
    The number of comparisons, or None while some policy is not separated from the best at all.
    """
    needed = ~refuted
    needed[best] = False
    if not needed.any() or np.any(separation[needed] < 0.5):
        return None
    missing = np.maximum(threshold - evidence[needed], 0.0)
    return float(np.max(missing / separation[needed]) * n_comparisons)
