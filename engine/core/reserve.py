"""Capital that a proof holds back at first, and puts on the leaders of later moments.

A proof head to head divides its risk δ among all K policies, as it is not known beforehand which of them will
be named. Later that is nearly known. So most of a proof's capital is kept as cash, and at a few moments a
share of it goes to the leader then. It is bet against each rival's beating this policy, by an e-process that
begins anew with the outcomes told from there on. The proof is in docs/algorithm.md, "Claims of a stop".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .types import Claim, FloatArray, IntArray, Tally

# The reserve is 1 in all. The first share is divided among the proofs of all policies at the start. Each
# later share goes to the leader of its moment, in comparisons per policy. Two or three moments, later or
# earlier ones, and halves of these shares were within a tenth of each other. So it was on the paper's
# instance and on random and arbitrary ones.
START_SHARE = 0.3
_MOMENTS = (10, 20, 40)
_SHARES = (0.3, 0.2, 0.2)
# The share that is given out while most of the work is still to be done, and its moment.
PLACED_IN_TIME, FIRST_MOMENT = _SHARES[0], _MOMENTS[0]
# Fewest policies with which the reserve saves comparisons. Proofs with a margin are short, so that a share
# that begins late finds little left to do.
_FROM_POLICIES = {Claim.BEST: 3, Claim.GOOD_ENOUGH: 7}
NOT_YET = -1


def holds_back(claim: Claim, n_policies: int) -> bool:
    """True if a proof of this claim head to head has a reserve, where a design allows one."""
    return claim in _FROM_POLICIES and n_policies >= _FROM_POLICIES[claim]


class Reserve:
    """Whom the shares of the reserve have gone to, and from which counts on, in R runs.

    Parameters
    ----------
    tally
        The data.
    memory
        The values of `memory`, one for each run; None where no share has gone to anybody.

    Attributes
    ----------
    shares
        Shape (M,): the shares.
    policy
        Shape (M, R): who has got each share; `NOT_YET` where nobody has.
    wins
        Shape (M, R, K): the summed outcomes of every policy against that one when the share was placed.
    losses
        The same of that one against every policy.
    ties
        How many ties that are told apart it had with every policy then.

    Raises
    ------
    ValueError
        If `memory` does not fit the tally.
    """

    def __init__(self, tally: Tally, memory: Sequence[Sequence[Mapping[str, Any]]] | None = None) -> None:
        self._tally = tally
        n_runs, n_policies = tally.n_runs, tally.n_policies
        self.shares = np.array(_SHARES)
        self._due = np.append(np.multiply(_MOMENTS, n_policies), np.iinfo(np.int64).max)
        self._n_placed: IntArray = np.zeros(n_runs, dtype=np.int64)
        self.policy: IntArray = np.full((self.shares.size, n_runs), NOT_YET)
        self.wins: FloatArray = np.zeros((self.shares.size, n_runs, n_policies))
        self.losses: FloatArray = np.zeros_like(self.wins)
        self.ties: FloatArray = np.zeros_like(self.wins)
        for run, placed in enumerate(memory or ()):
            for one in placed:
                self._recall(run, one)

    def due(self) -> IntArray:
        """Shape (m,): the runs in which a share is to be placed now."""
        return (self._tally.n_comparisons >= self._due[self._n_placed]).nonzero()[0]

    def place(self, runs: IntArray, policy: IntArray) -> None:
        """Place the next share of these runs, shape (m,), on these policies, shape (m,)."""
        place = self._n_placed[runs]
        self.policy[place, runs] = policy
        self.wins[place, runs] = self._tally.wins[runs, :, policy]
        self.losses[place, runs] = self._tally.wins[runs, policy]
        if self._tally.ties is not None:
            self.ties[place, runs] = self._tally.ties[runs, policy]
        self._n_placed[runs] += 1

    def keep(self, runs: Any) -> None:
        """Drop the other runs, after the tally has."""
        self._n_placed = self._n_placed[runs]
        self.policy = self.policy[:, runs]
        self.wins, self.losses = self.wins[:, runs], self.losses[:, runs]
        self.ties = self.ties[:, runs]

    def memory(self, run: int = 0) -> list[dict[str, Any]]:
        """The comparisons that one run has placed, as plain data that JSON can hold."""
        parts = {"wins": self.wins, "losses": self.losses}
        if self._tally.ties is not None:
            parts["ties"] = self.ties
        return [
            {"policy": int(self.policy[place, run])}
            | {name: counts[place, run].tolist() for name, counts in parts.items()}
            for place in range(self._n_placed[run])
        ]

    def _recall(self, run: int, placed: Mapping[str, Any]) -> None:
        place, now, ties = self._n_placed[run], self._tally.wins[run], self._tally.ties
        policy: Any = placed.get("policy")
        no_ties = np.zeros(self._tally.n_policies)
        known = isinstance(policy, int) and 0 <= policy < self._tally.n_policies
        if not (
            known
            and place < self.shares.size
            and _is_part(placed.get("wins"), now[:, policy])
            and _is_part(placed.get("losses"), now[policy])
            and (ties is None or _is_part(placed.get("ties", no_ties), ties[run, policy]))
        ):
            raise ValueError(
                f"the stored streams need, as 'reserve', at most {self.shares.size} entries, each with a "
                "'policy' and its 'wins', 'losses' and 'ties' against all policies, none above those now"
            )
        self.policy[place, run] = policy
        self.wins[place, run], self.losses[place, run] = placed["wins"], placed["losses"]
        if ties is not None:
            self.ties[place, run] = placed.get("ties", no_ties)
        self._n_placed[run] += 1


def _is_part(counts: Any, of: FloatArray) -> bool:
    """True if the counts fit and none is above the others."""
    own = np.asarray(() if counts is None else counts, dtype=np.float64)
    return own.shape == of.shape and bool(np.all((own >= 0.0) & (own <= of)))
