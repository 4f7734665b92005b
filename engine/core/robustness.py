"""The dependence of a finding on single judgments and on single judges.

None of this is part of the guarantee. It says what the same rules would make of slightly other data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .bernoulli import log_e_value
from .evidence import CONCENTRATION
from .ledger import Ledger
from .spaces import Space
from .types import Claim, FloatArray, IntArray, Missing, Tally

# Evidence this close (nats) is the same but for rounding.
_EVEN = 1e-9


@dataclass(frozen=True, slots=True)
class Flips:
    """The fewest judgments that would have to come out the other way round for another policy to lead."""

    n_flips: int
    leader: int
    rival: int


def fewest_flips(wins: FloatArray, *, epsilon: float = 0.0, most: int = 512) -> Flips | None:
    """Fewest flipped judgments after which another policy has the least evidence against it.

    Evidence is the e-process that assumes nothing about μ, from the counts as they stand: peaks that it had
    earlier are not looked at. Exact where every outcome is 0 or 1. With ties, which count half a win each, no
    more than the whole wins of a pair are turned, so that fewer could do.

    Against the leader the gain from m flips is a sum of convex functions, one per opponent. Dynamic
    programming over the opponents finds its largest value. For the rival the loss is convex as well, and
    there taking the best next flip each time is optimal.

    None where `most` flips are not enough or nobody leads yet.
    """
    if not wins.any():
        return None
    table = _FlipTable(wins, 0.5 + epsilon)
    limit = 4
    while True:
        limit = min(limit, most)
        found = table.search(limit)
        if found is not None or limit == most:
            return found
        limit *= 2


class _FlipTable:
    """Log e-values of every row after some of its outcomes are turned."""

    def __init__(self, wins: FloatArray, null_mean: float) -> None:
        self._wins = wins
        self._null_mean = null_mean
        K = wins.shape[0]
        own = np.eye(K, dtype=np.bool_)
        log_e = np.where(own, -np.inf, self._log_e(wins, wins.T).reshape(K, K))
        self.leader = int(np.argmin(_log_sum(log_e)))

    def _log_e(self, wins: FloatArray, losses: FloatArray) -> FloatArray:
        return log_e_value(wins.ravel(), losses.ravel(), self._null_mean, CONCENTRATION, narrow=True)

    def _turned(self, row: int, opponents: Sequence[int], limit: int, direction: int) -> FloatArray:
        """Log e-values against `row` after 0, 1, … turned outcomes, a row for each opponent; NaN beyond what
        there is.

        Direction -1 turns wins of `row` into losses, +1 losses into wins.
        """
        turns = direction * np.arange(limit + 1)
        won = self._wins[row, opponents][:, None] + turns
        lost = self._wins[opponents, row][:, None] - turns
        there = (won >= 0.0) & (lost >= 0.0)
        turned = np.full(there.shape, np.nan)
        turned[there] = self._log_e(won[there], lost[there])
        return turned

    def search(self, limit: int) -> Flips | None:
        b = self.leader
        others = [j for j in range(self._wins.shape[0]) if j != b]
        against = dict(
            zip(others, np.nan_to_num(self._turned(b, others, limit, -1), nan=-np.inf), strict=True)
        )
        before = [np.full(limit + 1, -np.inf)]
        for j in others:
            before.append(_best_split(before[-1], against[j]))
        after = [before[0]]
        for j in reversed(others):
            after.append(_best_split(after[-1], against[j]))
        best: Flips | None = None
        for place, r in enumerate(others):
            rest_of_leader = _best_split(before[place], after[len(others) - place - 1])
            rest_of_rival = self._least(r, [j for j in others if j != r], limit)
            [to_rival] = self._turned(r, [b], limit, +1)
            room = limit if best is None else best.n_flips - 1
            for direct in range(room + 1):
                if np.isnan(to_rival[direct]):
                    break
                leader = np.logaddexp(rest_of_leader, against[r][direct])
                rival = np.logaddexp(rest_of_rival, to_rival[direct])
                n = direct + _fewest_until(leader, rival)
                if n <= room:
                    best, room = Flips(n, b, r), n - 1
        return best

    def _least(self, row: int, opponents: Sequence[int], limit: int) -> FloatArray:
        """Smallest log of the summed e-values against `row` after 0, 1, … of its losses became wins."""
        least = np.full(limit + 1, -np.inf)
        if not opponents:
            return least
        turned = self._turned(row, opponents, limit + 1, +1)
        top = np.nanmax(turned[:, 0])
        values = np.exp(turned - top)
        at = np.zeros(len(opponents), dtype=np.int64)
        rows = np.arange(len(opponents))
        for n in range(limit + 1):
            now = values[rows, at]
            least[n] = top + np.log(now.sum())
            following = values[rows, np.minimum(at + 1, limit + 1)]
            gains = np.where(np.isnan(following), -np.inf, now - following)
            pick = int(np.argmax(gains))
            if np.isfinite(gains[pick]):
                at[pick] += 1
        return least


def _log_sum(log_values: FloatArray) -> FloatArray:
    total: FloatArray = special.logsumexp(log_values, axis=-1)
    return total


def _best_split(one: FloatArray, other: FloatArray) -> FloatArray:
    """For each m, the largest log-sum of `one` at m - x and `other` at x."""
    best = np.full(one.size, -np.inf)
    for x, value in enumerate(other):
        if np.isneginf(value) and x > 0:
            continue
        candidate = np.logaddexp(one[: one.size - x], value)
        np.maximum(best[x:], candidate, out=best[x:])
    return np.maximum.accumulate(best)


def _fewest_until(leader: FloatArray, rival: FloatArray) -> int:
    """Fewest flips, shared between the two, after which the evidence against the leader is no smaller."""
    needed = np.searchsorted(leader, rival - _EVEN)
    return int(np.min(np.arange(rival.size) + np.where(needed < leader.size, needed, 10**9)))


@dataclass(frozen=True, slots=True)
class Replays:
    """The state of several replays side by side, enough to go on later.

    Attributes
    ----------
    step
        Outcomes told to each replay that is not settled, where it has that many.
    told
        Shape (R,): outcomes told to each replay.
    peak_evidence
        Shape (R, K): the largest evidence so far.
    named
        Shape (R,): the policy that the claim to stop on has named so far, `claims.NOBODY` where none. None
        where that claim is "best if any", which goes by the evidence alone.
    streams
        The state of the streams of each replay, as in `Design.progress`; None without any.
    """

    step: int
    told: IntArray
    peak_evidence: FloatArray
    named: IntArray | None = None
    streams: Sequence[dict[str, Any]] | None = None


def replay(
    space: Space,
    sequences: Sequence[Sequence[tuple[int, int, float | None]]],
    *,
    delta: float,
    epsilon: float = 0.0,
    stopping: str = "certified",
    claim: Claim | str = Claim.BEST_IF_ANY,
    capital_moves: bool = True,
    missing: Missing | str = Missing.AGAINST,
    start: Replays | None = None,
    go_on: Callable[[int], bool] = lambda step: True,
) -> Replays:
    """Tell R designs each its own outcomes, side by side, until each has come to its decision.

    A live run stops there too, or at its budget: give no sequence more outcomes than that. In a Bradley-Terry
    space the iterations of all end together. There evidence differs from that of a run alone by a few 10⁻⁶
    nats: a replay settles otherwise only where it comes that close to the threshold, and no claim rests on a
    replay.

    Parameters
    ----------
    sequences
        R lists of (i, j, outcome) in their order; None where a showing has no outcome.
    delta, epsilon, stopping, claim, capital_moves, missing
        As for `Design`.
    start
        Where an earlier call with the same lists ended.
    go_on
        Asked after every step; False ends the call early.

    Returns
    -------
    The replays at the end of the longest list, or where `go_on` said no.
    """
    if not sequences:
        return Replays(0, np.zeros(0, dtype=np.int64), np.zeros((0, space.n_policies)))
    lengths = np.array([len(sequence) for sequence in sequences])
    step = 0 if start is None else start.step
    told = np.zeros(lengths.size, dtype=np.int64) if start is None else start.told.copy()
    wins = np.array(
        [summed_wins(space.n_policies, each[:n]) for each, n in zip(sequences, told, strict=True)]
    )
    ledger = Ledger(
        space,
        Tally(wins),
        delta=delta,
        epsilon=epsilon,
        stopping=stopping,
        claim=Claim(claim),
        watch_all=False,
        peak_evidence=None if start is None else start.peak_evidence,
        named=None if start is None or start.named is None else {Claim(claim): start.named},
        capital_moves=capital_moves,
        missing=Missing(missing),
        memory=None if start is None else start.streams,
    )
    peak = ledger.rule.peak_evidence.copy()
    proof = ledger.proofs.get(Claim(claim))
    named = None if proof is None else proof.named.copy()
    memory = [ledger.memory(run) for run in range(len(sequences))]
    alive = np.arange(len(sequences))

    def remember(runs: IntArray) -> None:
        for place in runs:
            memory[int(alive[place])] = ledger.memory(int(place))

    while step < lengths.max(initial=0):
        established, none_best = ledger.settled()
        ended = established | none_best | (told[alive] < step) | (lengths[alive] <= step)
        if ended.any():
            remember(np.flatnonzero(ended))
            alive = alive[~ended]
            if not alive.size:
                step = int(lengths.max())
                break
            ledger.keep(~ended)
        outcomes = [sequences[int(run)][step] for run in alive]
        ledger.record(
            np.array([i for i, _, _ in outcomes]),
            np.array([j for _, j, _ in outcomes]),
            np.array([np.nan if outcome is None else outcome for _, _, outcome in outcomes]),
        )
        peak[alive] = ledger.rule.peak_evidence
        if proof is not None and named is not None:
            named[alive] = proof.named
        told[alive] += 1
        step += 1
        if not go_on(step):
            break
    remember(np.arange(alive.size))
    return Replays(step, told, peak, named, [each for each in memory if each is not None] or None)


def summed_wins(n_policies: int, outcomes: Sequence[tuple[int, int, float | None]]) -> FloatArray:
    """Shape (K, K): the sums of outcomes of i against j, of judgments (i, j, D); None adds nothing."""
    wins = np.zeros((n_policies, n_policies))
    if told := [each for each in outcomes if each[2] is not None]:
        i, j, outcome = (np.array(column) for column in zip(*told, strict=True))
        np.add.at(wins, (i, j), outcome)
        np.add.at(wins, (j, i), 1.0 - outcome)
    return wins
