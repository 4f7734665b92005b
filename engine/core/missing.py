"""The word of the answers alone where showings have no outcome, and how far it may be trusted."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from .evidence import PairwiseEvidence
from .ledger import Ledger
from .types import Answers, Claim, FloatArray, IntArray

# Halvings of the share at which a missing outcome counts.
_HALVINGS = 30


def by_answers(ledger: Ledger) -> Answers | None:
    """The policy that the claim which stops the run would name by the answers alone, in the first run.

    The policy, and the largest Γ of `Answers`; None where the answers would not name anybody. It rests on the
    counts: neither streams nor capital that has moved have a part in it. In a Bradley-Terry space it is what
    holds without the model.
    """
    if ledger.claim is None or not ledger.tally.n_comparisons[0]:
        return None
    policy = int(ledger.leader()[0])
    others = np.flatnonzero(ledger.tally.present[0] & (np.arange(ledger.tally.n_policies) != policy))
    if ledger.claim is Claim.BEST_IF_ANY:
        if not ledger.evidence.leads()[0, policy]:
            return None
        tables, null = _against_each(ledger, others), ledger.evidence.null_mean
    else:
        # The proof of the policy has to exclude each rival by itself.
        pairs, null = ledger.pairs_of(ledger.claim), 0.5 + ledger.margin_of(ledger.claim)
        log_start = float(ledger.log_start(ledger.margin_of(ledger.claim))[policy])
        tables = [_Table(pairs, np.array([k]), np.array([policy]), log_start) for k in others]

    def holds(share: float) -> bool:
        return all(table.log_e(share) >= ledger.log_inverse_delta for table in tables)

    # At the null's mean an outcome says nothing: it is as if there were none.
    if not holds(null):
        return None
    if holds(1.0):
        return Answers(policy, math.inf)
    low, high = null, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Answers(policy, low * (1.0 - null) / (null * (1.0 - low)))


def _against_each(ledger: Ledger, policies: IntArray) -> list[_Table]:
    """For each of these policies, the mean evidence against it of its opponents."""
    n = ledger.tally.n_policies
    share = -math.log(n - 1)
    return [_Table(ledger.evidence, np.full(n - 1, k), np.delete(np.arange(n), k), share) for k in policies]


class _Table:
    """A sum of e-values of pairs, with each number of the missing outcomes won by k, in the first run.

    `k` and `b` have shape (m,); `log_share` is the logarithm of the share of each.
    """

    def __init__(self, evidence: PairwiseEvidence, k: IntArray, b: IntArray, log_share: float) -> None:
        log_e, self._won, missing = evidence.with_missing(k, b)
        self._lost = missing - self._won
        ways = (special.gammaln(each + 1.0) for each in (missing, self._won, self._lost))
        of, won, lost = ways
        self._weighted: FloatArray = log_e + (of - won - lost) + log_share

    def log_e(self, share: float) -> float:
        """Its logarithm (nats) where a missing outcome counts as this share of a win of k.

        The factor of an outcome is linear in it. So the e-value is the mean over all ways to make each a win
        or a loss, with the share as the chance of a win.
        """
        chances = special.xlogy(self._won, share) + special.xlog1py(self._lost, -share)
        return float(np.logaddexp.reduce(self._weighted + chances))
