"""Capital of the proofs of three to six policies, which moves to the two of the best standing.

With a margin two policies cannot both beat each other by it. So one at most of the proofs that hold them
against each other can be of a false name. Both may hold the same capital against each other, and nobody pays
for it twice. The proof is in docs/algorithm.md, "Claims of a stop".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .reserve import holds_back
from .streams import recalled
from .types import BoolArray, Claim, FloatArray, IntArray, Tally

# With two policies nothing is divided, so that nothing can move.
_FEWEST = 3
# In comparisons a policy, each moment 1.31 times the one before.
_MOMENTS = np.geomspace(4.0, 60.0, 11)
# Each policy keeps this share of what it began with. One that was unlucky early on would otherwise have
# nothing left to be named by.
_KEPT = 0.4
# The part of the rest that is taken each time.
_TAKEN = 0.5
# Shares of all that is taken: to each of the two against every other policy, and against each other. At most
# one of the two is false against the other, which then takes .6, and .4 go to the account of the other.
# Without a margin both may be, and 1.2 of what is taken would be given.
_AGAINST_ALL, _AGAINST_EACH_OTHER = 0.4, 0.6
# A payment leaves at least so much of a share.
_LEFT = 1e-6
# The proof of the policy that is named ends with about so much for each 1 that it began with.
LEADERS_GAIN = 1.15


def capital_moves(claim: Claim, n_policies: int, *, exclusive_proofs: bool) -> bool:
    """True if capital moves in a proof of this claim head to head, where a design has streams and a reserve.

    Parameters
    ----------
    claim
        The claim: "good enough" alone has a margin, of those that are proved head to head.
    n_policies
        K.
    exclusive_proofs
        As for `claims.names_at_risk`.
    """
    # With both, more capital would be given out than there is. From seven policies on, a reserve does more.
    reserved = holds_back(claim, n_policies)
    return exclusive_proofs and claim is Claim.GOOD_ENOUGH and n_policies >= _FEWEST and not reserved


class Stakes:
    """The stakes of every proof on each of its rivals, in R runs.

    The proof of policy b has S_kb E_kb against rival k, where E_kb is an e-process against "k beats b by the
    margin". Beside it, b has an account A_b: what it may lose if its name is true. At a few moments capital
    is taken from all policies at the price of the moment, E_kb, and given to two of them.

    Parameters
    ----------
    tally
        The data.
    log_start
        Shape (K,): logarithms of what the proofs begin with, of which the sum is 1.
    memory
        The values of `memory`, one for each run, or None; None where nothing has moved.

    Attributes
    ----------
    log_share
        Shape (R, K, K): log S_kb in row k and column b. The diagonal means nothing.
    account
        Shape (R, K): A_b.
    indecisive
        Shape (R,): how many outcomes so far were neither a win nor a loss.

    Raises
    ------
    ValueError
        If `memory` does not fit.
    """

    def __init__(
        self,
        tally: Tally,
        log_start: FloatArray,
        memory: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        self._tally = tally
        self._start: FloatArray = np.exp(log_start)
        n_runs, n_policies = tally.n_runs, tally.n_policies
        moments = np.rint(_MOMENTS * n_policies).astype(np.int64)
        self._is_moment: BoolArray = np.zeros(moments[-1] + 2, dtype=np.bool_)
        self._is_moment[moments] = True
        self.log_share: FloatArray = np.tile(log_start, (n_runs, n_policies, 1))
        self.account: FloatArray = np.tile(self._start, (n_runs, 1))
        self.indecisive: FloatArray = np.zeros(n_runs)
        for run, known in enumerate(memory or ()):
            if known is not None:
                self.log_share[run] = recalled([known], "log_share", (n_policies, n_policies))[0]
                self.account[run] = recalled([known], "account", (n_policies,))[0]
                # A state that is older than this number has none.
                self.indecisive[run] = recalled([{"indecisive": 0} | dict(known)], "indecisive", ())[0]
        if np.any(self.account < 0.0) or np.any(self.account.sum(axis=1) > 1.0 + 1e-9):
            raise ValueError("the stored stakes need as 'account' shares from 0 on, of at most 1 in all")

    def due(self) -> IntArray:
        """Shape (m,): the runs in which capital is to move now."""
        now = np.minimum(self._tally.n_comparisons, self._is_moment.size - 1)
        return np.flatnonzero(self._is_moment[now])

    def move(self, runs: IntArray, to: IntArray, log_e: FloatArray, log_price: FloatArray) -> None:
        """Take capital from all policies of these runs, and give it to two of each.

        Parameters
        ----------
        runs
            Shape (m,): their indices.
        to
            Shape (m, 2): the two policies of each.
        log_e
            Shape (m, K, K): logarithms of E_kb, or of a lower bound on it; the diagonal is not looked at.
        log_price
            Shape (m, 2, K): of E_kb, or of an upper bound on it, for each of the two as b. What they are of
            their own is not looked at.
        """
        place, policies = np.arange(runs.size), np.arange(self._start.size)
        log_share, account = self.log_share[runs], self.account[runs]
        capital = log_share + log_e
        capital[:, policies, policies] = np.inf
        # An account has 1 at most, so that more capital than that is not needed.
        least = np.exp(np.minimum(capital.min(axis=1), 0.0))
        spare = np.maximum(account - _KEPT * self._start, 0.0)
        taken = np.ascontiguousarray(_TAKEN * np.minimum(spare, least))
        total = taken.sum(axis=1)
        # Nothing to take has the logarithm -inf.
        with np.errstate(divide="ignore"):
            log_share += np.log1p(-np.exp(np.log(taken)[:, None] - capital))
            log_total = np.log(total)
        account -= taken
        for own, other in ((0, 1), (1, 0)):
            b = to[:, own]
            log_given = (np.log(_AGAINST_ALL) + log_total)[:, None] - log_price[:, own]
            against_other = place, to[:, other]
            log_given[against_other] += np.log(_AGAINST_EACH_OTHER / _AGAINST_ALL)
            log_given[place, b] = -np.inf
            log_share[place, :, b] = np.logaddexp(log_share[place, :, b], log_given)
            account[place, b] += _AGAINST_ALL * total
        self.log_share[runs], self.account[runs] = log_share, account

    def note(self, runs: IntArray, outcome: FloatArray) -> None:
        """Take in the outcomes of these runs, of which the bets are over."""
        self.indecisive[runs] += (outcome > 0.0) & (outcome < 1.0)

    def mostly_decisive(self) -> BoolArray:
        """Shape (R,): whether at most half of the outcomes before the present one were neither won nor lost.

        Only a win ends a proof that bets no more than it needs. Of outcomes that are all in between, such as
        means of several people's, none ever would.
        """
        mostly: BoolArray = 2.0 * self.indecisive <= self._tally.n_comparisons - 1.0
        return mostly

    def pay(
        self,
        proofs: tuple[IntArray, IntArray, IntArray],
        amount: FloatArray,
        log_unit: float,
        log_e: FloatArray,
        log_price: FloatArray,
    ) -> None:
        """Add to what proofs have against one rival each, or take from it.

        Parameters
        ----------
        proofs
            Runs, rivals k and policies b, shape (m,) each.
        amount
            Shape (m,): how much capital; what is negative is taken. Nobody loses all.
        log_unit
            Logarithm of the capital that an amount of 1 is.
        log_e, log_price
            Shape (m,): as for `move`, of these proofs.
        """
        log_share = self.log_share[proofs]
        log_held = log_share + np.where(amount > 0.0, log_price, log_e)
        change = amount * np.exp(log_unit - log_held)
        self.log_share[proofs] = log_share + np.log(np.maximum(1.0 + change, _LEFT))

    def keep(self, runs: BoolArray) -> None:
        """Drop the other runs, after the tally has."""
        self.log_share, self.account = self.log_share[runs], self.account[runs]
        self.indecisive = self.indecisive[runs]

    def memory(self, run: int = 0) -> dict[str, Any]:
        """State of one run, as plain data that JSON can hold."""
        return {
            "log_share": self.log_share[run].tolist(),
            "account": self.account[run].tolist(),
            "indecisive": self.indecisive[run].item(),
        }
