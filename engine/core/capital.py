"""Capital of the proofs head to head, which moves to the two of the best standing and to newcomers.

A proof head to head divides its risk δ among all K policies, as it is not known beforehand which of them will
be named. Later that is nearly known. So at a few moments capital moves from all policies to two of them, at
the price of the moment. Policies that join are given capital at that price as well. The proofs are in
docs/proofs.md, "Capital that moves" and "Policies that join and leave".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .pooled_evidence import recalled
from .types import FloatArray, IntArray, Tally

# With two policies nothing is divided, or nothing is gained by moving it.
FEWEST_TO_MOVE = 3
# Of two policies alone with a margin, one at most is false, and each proof has all against the other. Where
# nothing can move later, accounts have this instead, for policies that join.
KEPT_FOR_NEWCOMERS = 0.1
# Where nothing moves, as with draws without replacement, so much is kept for policies that join.
RESERVE = 0.1
# Stands for no capital. A logarithm of -inf would make differences that are no number.
NO_CAPITAL = -690.0
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
        Shape (K,): logarithms of the stakes on each rival that proofs begin with.
    margin
        ε of the claim.
    memory
        The values of `memory`, one for each run; None where nothing has moved.
    account
        Shape (K,): what accounts begin with; by default as much as proofs do.
    moves
        Whether capital moves from one policy to another.
    reserve
        In [0, 1): capital that is kept for policies that join, where none moves; the m-th to join in a stage
        has 1/(m(m+1)) of it.

    Attributes
    ----------
    tally
        As given.
    log_share
        Shape (R, K, K): log S_kb in row k and column b. The diagonal means nothing.
    account
        Shape (R, K): A_b.
    stage
        Shape (R,): the number of the stage, from 1.
    excluded
        Shape (R, K, K): the stage in which the proof of b excluded k, 0 where it has not. None as long as
        nobody has joined or retired.

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
        *,
        account: FloatArray | None = None,
        moves: bool = True,
        reserve: float = 0.0,
    ) -> None:
        self.tally = tally
        self.moves = moves
        self._reserve = reserve
        self._margin = margin
        self._against_all, self._against_each_other = _SHARES_WITH_MARGIN if margin > 0.0 else _SHARES
        n_runs, n_policies = tally.n_runs, tally.n_policies
        self._n_moved: IntArray = np.zeros(n_runs, dtype=np.int64)
        # Shape (R, 4): the comparisons and moves before the last arrival, how many policies there were, and
        # how many had joined in the stage.
        self._since: IntArray = np.zeros((n_runs, 4), dtype=np.int64)
        self._since[:, 2] = tally.n_present
        self.log_share: FloatArray = np.tile(log_start, (n_runs, n_policies, 1))
        self.account: FloatArray = np.tile(np.exp(log_start) if account is None else account, (n_runs, 1))
        # What each policy began with.
        self._start: FloatArray = self.account.copy()
        self.stage: IntArray = np.ones(n_runs, dtype=np.int64)
        self.excluded: IntArray | None = None
        if not tally.everybody:
            self.excluded = np.zeros(self.log_share.shape, dtype=np.int64)
        for run, known in enumerate(memory or ()):
            # A state that was stored for another claim has none for this one.
            if known:
                self._recall(run, known)

    def due(self) -> IntArray:
        """Shape (m,): the runs in which capital is to move now."""
        if not self.moves:
            return np.zeros(0, dtype=np.int64)
        before, moved, n_policies, _ = self._since.T
        place = np.minimum(self._n_moved - moved, _MOMENTS.size - 1)
        due = self.tally.n_comparisons - before >= np.rint(_MOMENTS[place] * n_policies)
        due &= (self._n_moved - moved < _MOMENTS.size) & (self.tally.n_present >= FEWEST_TO_MOVE)
        return np.flatnonzero(due)

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
        place = np.arange(runs.size)
        spare = np.maximum(self.account[runs] - _KEPT * self._start[runs], 0.0)
        log_share, account, total = self._take(runs, spare, log_e)
        # Nothing to take has the logarithm -inf.
        with np.errstate(divide="ignore"):
            log_total = np.log(total)
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

    def _take(
        self, runs: IntArray, spare: FloatArray, log_e: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Stakes and accounts of these runs once a part of what is to spare is taken, and how much that is.

        `spare`, shape (m, K), is what accounts can give; a policy gives no more than its proof has against
        each rival.
        """
        policies = np.arange(self.account.shape[1])
        log_share = self.log_share[runs]
        capital = log_share + log_e
        capital[:, policies, policies] = np.inf
        if not self.tally.everybody:
            capital[~self.tally.present[runs]] = np.inf
        # An account has 1 at most, so that more capital than that is not needed.
        least = np.exp(np.minimum(capital.min(axis=1), 0.0))
        taken = np.ascontiguousarray(_TAKEN * np.minimum(spare, least))
        with np.errstate(divide="ignore"):
            log_share += np.log1p(-np.exp(np.log(taken)[:, None] - capital))
        return log_share, self.account[runs] - taken, taken.sum(axis=1)

    def open_up(self, runs: IntArray, log_e: FloatArray) -> None:
        """Have two policies alone that hold all against each other put half of it into their accounts.

        What is taken from the proof of one goes to the account of the other: one at most is false.
        """
        for place, run in enumerate(runs.tolist()):
            two = np.flatnonzero(self.log_share[run].max(axis=0) > 0.5 * NO_CAPITAL)
            if not self.moves or two.size != 2 or self.account[run].any():
                continue
            for own, other in (two, two[::-1]):
                capital = self.log_share[run, other, own] + log_e[place, other, own]
                taken = np.log(_TAKEN) + np.minimum(capital, 0.0)
                self.log_share[run, other, own] += np.log1p(-np.exp(taken - capital))
                self.account[run, other] = np.exp(taken)

    def join(self, runs: IntArray, n: IntArray, log_e: FloatArray) -> None:
        """Have a policy n that is present by now be a rival and a name in these runs, shape (m,) both.

        As a rival it begins with the account of each name, which changes nothing for any name. As a name it
        is given half of what all others can give.

        `log_e` is as for `move`.
        """
        place = np.arange(runs.size)
        self.open_up(runs, log_e)
        self._begin_anew(runs)
        with np.errstate(divide="ignore"):
            self.log_share[runs, n] = np.maximum(np.log(self.account[runs]), NO_CAPITAL)
        self.account[runs, n], self.log_share[runs, :, n] = 0.0, NO_CAPITAL
        if self.moves:
            log_share, account, total = self._take(runs, self.account[runs], log_e)
            log_share[place, :, n] = np.maximum(np.log(total), NO_CAPITAL)[:, None]
            account[place, n] = total
            self.log_share[runs], self.account[runs] = log_share, account
        elif self._reserve:
            m = self._since[runs, 3].astype(np.float64)
            kept = self._reserve / (m * (m + 1.0))
            self.log_share[runs, :, n], self.account[runs, n] = np.log(kept)[:, None], kept
        self._start[runs, n] = self.account[runs, n]

    def renew(self, runs: IntArray, champion: IntArray, n: IntArray, log_price: FloatArray) -> None:
        """Begin a new stage of these runs: a capital of 1 for the champion and the policy that joins.

        What is left of the old capital is given up. Shape (m,) each; `log_price`, shape (m, K), has the
        logarithms of the most that E_kb may be for the champion as b.
        """
        self._begin_anew(runs)
        self._since[runs, 2:] = 2, 0
        self.stage[runs] += 1
        self.log_share[runs], self.account[runs], self._start[runs] = NO_CAPITAL, 0.0, 0.0
        against_all, against_each_other = self._against_all, self._against_each_other
        alone = (self.tally.n_present[runs] == 2) & (self._margin > 0.0)
        kept = 0.0 if self.moves else KEPT_FOR_NEWCOMERS
        own = np.where(alone, kept, against_all)
        mutual = np.where(alone, 1.0 - kept, against_each_other)
        place = np.arange(runs.size)
        for b, other, price in ((champion, n, log_price), (n, champion, np.zeros_like(log_price))):
            with np.errstate(divide="ignore"):
                log_share = np.log((1.0 - self._reserve) * own)[:, None] - price
            log_share[place, other] = np.log((1.0 - self._reserve) * mutual) - price[place, other]
            self.log_share[runs, :, b] = np.maximum(log_share, NO_CAPITAL)
            self.account[runs, b] = self._start[runs, b] = (1.0 - self._reserve) * own

    def begin_stage(
        self, runs: IntArray, log_start: FloatArray, account: FloatArray, log_price: FloatArray
    ) -> None:
        """Begin a new stage of these runs, shape (m,), with all who are present.

        What is left of the old capital is given up. `log_start` and `account`, shape (K,), are what names
        begin with, and `log_price`, shape (m, K, K), has the logarithms of the most that E_kb may be.
        """
        self._begin_anew(runs)
        self._since[runs, 2], self._since[runs, 3] = self.tally.n_present[runs], 0
        self.stage[runs] += 1
        self.log_share[runs] = np.maximum(log_start - log_price, NO_CAPITAL)
        self.account[runs] = self._start[runs] = account

    def cap(self, runs: IntArray, b: IntArray, log_cap: FloatArray, log_price: FloatArray) -> None:
        """Leave the proof of b at most this capital in each of these runs.

        Shape (m,) each, but `log_price`, shape (m, K): logarithms of the most that E_kb may be.
        """
        self.log_share[runs, :, b] = np.minimum(
            self.log_share[runs, :, b], np.maximum(log_cap[:, None] - log_price, NO_CAPITAL)
        )
        self.account[runs, b] = np.minimum(self.account[runs, b], np.exp(np.minimum(log_cap, 0.0)))

    def leave(self, runs: IntArray, r: IntArray) -> None:
        """Have a policy give up the capital of its own name in each of these runs, shape (m,)."""
        self._n_moved[runs] += 1
        self._since[runs, 1] += 1
        self.account[runs, r], self.log_share[runs, :, r] = 0.0, NO_CAPITAL

    def _begin_anew(self, runs: IntArray) -> None:
        """Have the moments of these runs begin anew."""
        self._n_moved[runs] += 1
        self._since[runs] = np.column_stack(
            [
                self.tally.n_comparisons[runs],
                self._n_moved[runs],
                self.tally.n_present[runs],
                self._since[runs, 3] + 1,
            ]
        )

    def n_moved(self, run: int) -> int:
        """The number of times that capital has moved in a run."""
        return int(self._n_moved[run])

    def keep(self, runs: Any) -> None:
        """Drop the other runs, after the tally has."""
        self.log_share, self.account = self.log_share[runs], self.account[runs]
        self._n_moved, self._since, self._start = self._n_moved[runs], self._since[runs], self._start[runs]
        self.stage = self.stage[runs]
        if self.excluded is not None:
            self.excluded = self.excluded[runs]

    def memory(self, run: int = 0) -> dict[str, Any]:
        """State of one run, as plain data that JSON can hold.

        Policies that were never compared with b have the same share against it: the share of most, and those
        that differ.
        """
        share = self.log_share[run]
        usual = [float(values[np.argmax(counts)]) for values, counts in map(_counted, share.T)]
        others = np.argwhere(share != usual)
        memory = {
            "moved": self.n_moved(run),
            "account": self.account[run].tolist(),
            "log_share": usual,
            "others": [[int(k), int(b), float(share[k, b])] for k, b in others],
        }
        if self.excluded is not None:
            excluded = self.excluded[run]
            memory |= {
                "since": self._since[run].tolist(),
                "start": self._start[run].tolist(),
                "stage": int(self.stage[run]),
                "excluded": [[int(k), int(b), int(excluded[k, b])] for k, b in np.argwhere(excluded)],
            }
        return memory

    def _recall(self, run: int, known: Mapping[str, Any]) -> None:
        n = self.account.shape[1]
        self.account[run] = recalled([known], "account", (n,))[0]
        self.log_share[run] = recalled([known], "log_share", (n,))[0]
        moved: Any = known.get("moved")
        fits = isinstance(moved, int) and moved >= 0
        self._n_moved[run] = moved if fits else 0
        try:
            for k, b, log_share in known.get("others", ()):
                self.log_share[run, k, b] = log_share
            if "excluded" in known:
                if self.excluded is None:
                    self.excluded = np.zeros(self.log_share.shape, dtype=np.int64)
                for k, b, stage in known["excluded"]:
                    self.excluded[run, k, b] = stage
                self._since[run], self._start[run] = known["since"], known["start"]
                self.stage[run] = known["stage"]
        except (KeyError, TypeError, ValueError, IndexError):
            fits = False
        before, since = self._since[run, 1], int(self._n_moved[run] - self._since[run, 1])
        fits = fits and before >= 0 and 0 <= since <= _MOMENTS.size
        accounts = self.account[run]
        if not fits or np.any(accounts < 0.0) or accounts.sum() > 1.0 + 1e-9:
            raise ValueError(
                "the stored stakes need how often capital has 'moved', as 'account' shares from 0 on, of at "
                "most 1 in all, and as 'others' entries [k, b, log share]"
            )


def _counted(values: FloatArray) -> tuple[FloatArray, IntArray]:
    found, counts = np.unique(values, return_counts=True)
    return found, counts
