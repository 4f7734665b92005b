"""Capital of the proofs of three policies or more, which moves to the two of the best standing.

A proof head to head divides its risk δ among all K policies, as it is not known beforehand which of them will
be named. Later that is nearly known. So at a few moments capital moves from all policies to two of them, at
the price of the moment. The proof is in docs/proofs.md, "Capital that moves".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .pooled_evidence import recalled
from .types import Claim, FloatArray, IntArray, Tally

# With two policies nothing is divided, or nothing is gained by moving it.
_FEWEST = 3
# In comparisons a policy, each moment 1.31 times the one before.
_MOMENTS = np.geomspace(4.0, 60.0, 11)
# Each policy keeps this share of what it began with. One that was unlucky early on would otherwise have
# nothing left to be named by.
_KEPT = 0.4
# The part of the rest that is taken each time.
_TAKEN = 0.5
# Shares of all that is taken: to each of the two against every other policy, and against each other. With a
# margin one at most of the two can be beaten by the other, which then takes .6, and .4 go to the account of
# the other. Without a margin both may be.
_SHARES_WITH_MARGIN = (0.4, 0.6)
_SHARES = (0.5, 0.5)


def capital_moves(claim: Claim, n_policies: int) -> bool:
    """True if head-to-head proofs of this claim move capital, in a design that allows it."""
    return claim is not Claim.BEST_IF_ANY and n_policies >= _FEWEST


class Stakes:
    """The stakes of every proof on each of its rivals, in R runs.

    The proof of policy b has S_kb E_kb against rival k, where E_kb is an e-process against "k beats b by the
    margin". Beside it, b has an account A_b: what it may lose if its name is true. At a few moments capital
    is taken from all policies and given to two of them. The price is E_kb. Where showings are open, capital
    is taken at the least and given at the most that E_kb may be once they have ended.

    Parameters
    ----------
    tally
        The data.
    log_start
        Shape (K,): logarithms of the proofs' initial capital, which sums to 1.
    margin
        ε of the claim.
    memory
        The values of `memory`, one for each run; None where nothing has moved.

    Attributes
    ----------
    log_share
        Shape (R, K, K): log S_kb in row k and column b. The diagonal means nothing.
    account
        Shape (R, K): A_b.

    Raises
    ------
    ValueError
        If `memory` does not fit.
    """

    def __init__(
        self,
        tally: Tally,
        log_start: FloatArray,
        margin: float,
        memory: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._tally = tally
        self._start: FloatArray = np.exp(log_start)
        self._against_all, self._against_each_other = _SHARES_WITH_MARGIN if margin > 0.0 else _SHARES
        n_runs, n_policies = tally.n_runs, tally.n_policies
        moments = np.rint(_MOMENTS * n_policies).astype(np.int64)
        self._moments: IntArray = np.append(moments, np.iinfo(np.int64).max)
        self._n_moved: IntArray = np.zeros(n_runs, dtype=np.int64)
        self.log_share: FloatArray = np.tile(log_start, (n_runs, n_policies, 1))
        self.account: FloatArray = np.tile(self._start, (n_runs, 1))
        for run, known in enumerate(memory or ()):
            # A state that was stored for another claim has none for this one.
            if known:
                self._recall(run, known)

    def due(self) -> IntArray:
        """Shape (m,): the runs in which capital is to move now."""
        return np.flatnonzero(self._tally.n_comparisons >= self._moments[self._n_moved])

    def move(self, runs: IntArray, to: IntArray, log_e: FloatArray, log_price: FloatArray) -> None:
        """Take capital from all policies of these runs, and give it to two of each.

        Parameters
        ----------
        to
            Shape (m, 2): the two policies of each.
        log_e
            Shape (m, K, K): logarithms of the least that E_kb may be; the diagonal is not looked at.
        log_price
            Shape (m, 2, K): of the most, for each of the two as b. What they are of their own is not looked
            at.
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
            log_given = (np.log(self._against_all) + log_total)[:, None] - log_price[:, own]
            against_other = place, to[:, other]
            log_given[against_other] += np.log(self._against_each_other / self._against_all)
            log_given[place, b] = -np.inf
            log_share[place, :, b] = np.logaddexp(log_share[place, :, b], log_given)
            account[place, b] += self._against_all * total
        # Where so much is open that the two prices take what a move gives, it waits.
        first = to[:, 0]
        gain = log_share[place, :, first] - self.log_share[runs, :, first]
        gain[place, first] = 0.0
        pays = gain.sum(axis=1) > 0.0
        self.log_share[runs[pays]], self.account[runs[pays]] = log_share[pays], account[pays]
        self._n_moved[runs[pays]] += 1

    def n_moved(self, run: int) -> int:
        """The number of times that capital has moved in a run."""
        return int(self._n_moved[run])

    def keep(self, runs: Any) -> None:
        """Drop the other runs, after the tally has."""
        self.log_share, self.account = self.log_share[runs], self.account[runs]
        self._n_moved = self._n_moved[runs]

    def memory(self, run: int = 0) -> dict[str, Any]:
        """State of one run, as plain data that JSON can hold.

        Policies that were never compared with b have the same share against it: the share of most, and those
        that differ.
        """
        share = self.log_share[run]
        usual = [float(values[np.argmax(counts)]) for values, counts in map(_counted, share.T)]
        others = np.argwhere(share != usual)
        return {
            "moved": self.n_moved(run),
            "account": self.account[run].tolist(),
            "log_share": usual,
            "others": [[int(k), int(b), float(share[k, b])] for k, b in others],
        }

    def _recall(self, run: int, known: Mapping[str, Any]) -> None:
        n = self._start.size
        self.account[run] = recalled([known], "account", (n,))[0]
        self.log_share[run] = recalled([known], "log_share", (n,))[0]
        moved: Any = known.get("moved")
        others = known.get("others", ())
        fits = isinstance(moved, int) and 0 <= moved < self._moments.size
        self._n_moved[run] = moved if fits else 0
        try:
            for k, b, log_share in others:
                self.log_share[run, k, b] = log_share
        except (TypeError, ValueError, IndexError):
            fits = False
        accounts = self.account[run]
        if not fits or np.any(accounts < 0.0) or accounts.sum() > 1.0 + 1e-9:
            raise ValueError(
                "the stored stakes need how often capital has 'moved', as 'account' shares from 0 on, of at "
                "most 1 in all, and as 'others' entries [k, b, log share]"
            )


def _counted(values: FloatArray) -> tuple[FloatArray, IntArray]:
    found, counts = np.unique(values, return_counts=True)
    return found, counts
