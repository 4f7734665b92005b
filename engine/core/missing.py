"""What the answers alone say where showings have no outcome, and how far that may be trusted."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from .claims import HeadToHead
from .evidence import PairwiseEvidence
from .ledger import Ledger
from .types import Answers, Claim, FloatArray

# Halvings of the share at which a missing outcome counts: the factor is right to a thousandth up to 1,000.
_HALVINGS = 30


def by_answers(ledger: Ledger) -> Answers | None:
    """The policy that the claim which stops the run would name by the answers alone, in the first run.

    Parameters
    ----------
    ledger
        The comparisons so far.

    Returns
    -------
    The policy, and the largest Γ of `Answers`; None where the answers would not name anybody. It rests on the
    counts: neither streams nor capital that has moved have a part in it. In a Bradley-Terry space it is what
    holds without the model.
    """
    if ledger.claim is None or not ledger.tally.n_comparisons[0]:
        return None
    policy = int(ledger.leader()[0])
    others = np.flatnonzero(np.arange(ledger.tally.n_policies) != policy)
    if ledger.claim is Claim.BEST_IF_ANY:
        if not ledger.evidence.leads()[0, policy]:
            return None
        tables = [
            _Table(ledger.evidence, k, np.delete(np.arange(ledger.tally.n_policies), k)) for k in others
        ]
        needed = [math.log(others.size)] * others.size

        def passes(share: float) -> bool:
            return all(
                float(np.logaddexp.reduce(table.log_e(share))) >= ledger.log_inverse_delta + more
                for table, more in zip(tables, needed, strict=True)
            )
    else:
        proof = ledger.proofs[ledger.claim]
        pairs = ledger.pairs_of(ledger.claim)
        start = (
            proof.log_start[policy] if isinstance(proof, HeadToHead) else -math.log(ledger.tally.n_policies)
        )
        table = _Table(pairs, others, np.full(others.size, policy))

        def passes(share: float) -> bool:
            return bool(np.all(table.log_e(share) + start >= ledger.log_inverse_delta))

    null = ledger.evidence.null_mean if ledger.claim is Claim.BEST_IF_ANY else pairs.null_mean
    # A share of the null's mean is worth nothing for or against: it is what leaving them out would be.
    if not passes(null):
        return None
    if passes(1.0):
        return Answers(policy, math.inf)
    low, high = null, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if passes(middle) else (low, middle)
    return Answers(policy, low * (1.0 - null) / (null * (1.0 - low)))


class _Table:
    """E-values of pairs with each number of the missing outcomes a win of the rival, in the first run.

    Parameters
    ----------
    evidence
        E-processes of the pairs.
    k, b
        Shape (m,), or numbers: rivals and policies.
    """

    def __init__(self, evidence: PairwiseEvidence, k: object, b: object) -> None:
        k, b = (np.asarray(each, dtype=np.int64) for each in np.broadcast_arrays(k, b))
        self._log_e, self._won, self._missing, self._first = evidence.with_missing(k, b)

    def log_e(self, share: float) -> FloatArray:
        """Shape (m,): log e-values where a missing outcome counts as this share of a win of the rival.

        The factor of an outcome is linear in it. So the e-value is the mean over all ways to make each a win
        or a loss, with the share as the chance of a win.
        """
        lost = self._missing - self._won
        ways = (
            special.gammaln(self._missing + 1.0)
            - special.gammaln(self._won + 1.0)
            - special.gammaln(lost + 1.0)
        )
        weighted = self._log_e + ways + special.xlogy(self._won, share) + special.xlog1py(lost, -share)
        return np.asarray(np.logaddexp.reduceat(weighted, self._first), dtype=np.float64)
