"""A race of new policies against a champion, and at its end a claim that the champion beats the original.

Somebody writes children of the champion. Each is compared with it until beliefs promote or drop it. Beliefs
steer, and prove nothing. The last quarter of the clicks compares the champion, fixed by then, with the
original: the claim rests on these direct comparisons alone.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .intervals import win_rate_at_least
from .succession import Succession
from .types import FloatArray, check_real, check_whole

# What a child is expected to have over its parent, in log-odds: mean and standard deviation. The race is
# steered by hope: a narrower prior throws good children away. What is said of a champion rests on doubt: over
# a line of parents that only luck made champions, hope would add up.
HOPE, DOUBT = (-0.1, 0.3), (-0.15, 0.2)
# Chances of beating the champion from which a challenger takes its place, and below which it is dropped.
# Whoever promotes all that lead drifts downwards. Whoever drops late has fewer children.
PROMOTE, DROP = 0.8, 0.35
# Before so many comparisons neither: the prior alone would nearly drop a child.
FEWEST = 5
# Share of the clicks that looks for a champion.
EXPLORE = 0.75
_NEWTON_STEPS = 4

Phase = Literal["explore", "certify", "ended"]
Kind = Literal["open", "nothing_better", "leads", "certified"]


@dataclass(frozen=True, slots=True)
class Promotion:
    """A challenger that became the champion.

    ``over``: the champion before it. ``at``: after how many clicks. ``probability``: its chance to be the
    better one, by the beliefs.
    """

    child: int
    over: int
    at: int
    probability: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """A challenger that left the race.

    ``after``: how many comparisons it had. ``at``: after how many clicks. ``probability``: its chance to be
    better than the champion, by the beliefs.
    """

    child: int
    parent: int
    after: int
    at: int
    probability: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word on the champion and the original.

    Attributes
    ----------
    kind
        "certified": the champion beats the original, which is ever said wrongly with probability at most δ.
        "leads": all clicks are used and it is expected to be better, which is not established.
        "nothing_better": the original is expected to be at least as good as all that was tried. "open":
        anything else, while clicks are left.
    policy
        The policy that is recommended now.
    share
        The champion's win rate against the original in the answers that count for the claim; None without.
    n_told
        How many answers these are.
    lower
        The end that this win rate is at least, in [0, 1], and ½ or more with the claim. It is ever above the
        true one with probability at most δ; where outcomes are ties, with at most another δ beside a false
        claim.
    risk
        The risk at which the claim would just hold by the present evidence, in [0, 1].
    """

    kind: Kind
    policy: int
    share: float | None
    n_told: int
    lower: float
    risk: float


@dataclass(slots=True)
class _Showing:
    """``counted``: the outcome of the champion that the claim takes; None where it does not count."""

    i: int
    j: int
    counted: float | None
    outcome: float | None = None
    is_open: bool = True


def clicks_to_explore(clicks: int) -> int:
    """After how many of these clicks the champion is fixed at the latest."""
    return math.ceil(EXPLORE * clicks)


class Improvement:
    """Find something better than a policy, and say so only where it is shown.

    The same calls in the same order give the same choices. `ask` changes nothing.

    Parameters
    ----------
    original
        The policy to improve, by its number.
    clicks
        How many comparisons to spend.
    delta
        Risk of the claim that the champion beats the original.
    places
        How many challengers race at a time.
    seed
        It draws which challenger is compared next.

    Attributes
    ----------
    champion
        The best so far; fixed in the last quarter of the clicks.
    challengers
        Children that race with it, and their parents.
    promotions, dropped
        What happened, the oldest first.
    used, n_open
        Comparisons with an outcome, and those that have begun and not ended.

    Examples
    --------
    >>> improvement = Improvement(0, clicks=100)
    >>> strengths = [0.0, 1.0]
    >>> while improvement.phase != "ended":
    ...     for parent, n in improvement.wants().items():
    ...         for _ in range(n):
    ...             improvement.add(len(strengths), parent)
    ...             strengths.append(-1.0)
    ...     i, j = improvement.ask()
    ...     improvement.tell(i, j, float(strengths[i] > strengths[j]))
    """

    def __init__(
        self, original: int, *, clicks: int, delta: float = 0.05, places: int = 2, seed: int = 0
    ) -> None:
        self.original, self.champion = original, original
        self.clicks = check_whole("clicks", clicks, least=1)
        self.delta = check_real("delta", delta)
        self.places = check_whole("places", places, least=1)
        self.challengers: dict[int, int] = {}
        self.promotions: list[Promotion] = []
        self.dropped: list[Dropped] = []
        self.used = self.n_open = 0
        self._explore = clicks_to_explore(clicks)
        # Of which the draws of each showing are made, so that a showing's do not depend on those before it.
        self._deviations: list[float] = np.random.default_rng(seed).standard_normal(clicks * places).tolist()
        self._parents: dict[int, int] = {}
        self._met: dict[int, int] = {}
        self._hope, self._doubt = Family(original, *HOPE), Family(original, *DOUBT)
        self._showings: dict[int, _Showing] = {}
        self._ended: list[int] = []
        self._looks = True
        # The claim, once a champion was fixed, and the champion that it is about.
        self._claim: Succession | None = None
        self._claimed = original
        self._certified = False

    @property
    def phase(self) -> Phase:
        """Where it stands: looking for a champion, comparing it with the original, or at the end."""
        if self._looks:
            return "explore"
        over = self._certified or self.champion == self.original or self.used >= self.clicks
        return "ended" if over else "certify"

    @property
    def counts_on(self) -> bool:
        """Whether the evidence counts on if the champion stays; then the tasks that judge have to stay."""
        claim = self._claim
        return claim is not None and self.champion == self._claimed and claim.won + claim.lost > 0.0

    def wants(self) -> dict[int, int]:
        """How many children of which policy are wanted now.

        None any more where too few clicks are left to try them.
        """
        free = self.places - len(self.challengers)
        if not self._looks or free <= 0 or self._too_late:
            return {}
        return {self.champion: free}

    @property
    def _too_late(self) -> bool:
        return self._explore - self.used < FEWEST

    def add(self, child: int, parent: int) -> None:
        """Have a child join the race, whose text may depend on everything so far.

        Raises
        ------
        ValueError
            If it is in the race already, or its parent never was.
        """
        if child in self._parents or child == self.original:
            raise ValueError(f"policy {child} has joined already")
        if parent != self.original and parent not in self._parents:
            raise ValueError(f"policy {parent}, the parent, never joined")
        self._parents[child] = self.challengers[child] = parent
        self._met[child] = 0
        self._hope.add(child, parent)
        self._doubt.add(child, parent)

    def withdraw(self, child: int) -> None:
        """Have a policy leave that somebody refuses. A champion's place is the original's then.

        Raises
        ------
        ValueError
            If it is neither a challenger nor the champion, or the original.
        """
        if child == self.champion != self.original:
            self.champion = self.original
        elif self.challengers.pop(child, None) is None:
            raise ValueError(f"policy {child} is not in the race")
        self._fix_in_time()

    def ask(self, ahead: int = 0) -> tuple[int, int] | None:
        """The pair to compare next: champion and challenger, at last champion and original.

        None where children have to come first, or no click is left that no open showing may take.

        Parameters
        ----------
        ahead
            How many pairs have been asked for and are still to be shown: the next one is another draw.
        """
        if self.phase == "ended":
            return None
        if not self._looks:
            left = self.clicks - self.used - self.n_open - ahead
            return (self.champion, self.original) if left > 0 else None
        if not self.challengers:
            return None
        place = (len(self._showings) + ahead) * self.places
        draws = {}
        for k, child in enumerate(self.challengers, place):
            mean, spread = self._hope.between(child, self.champion)
            draws[child] = mean + spread * self._deviations[k % len(self._deviations)]
        return self.champion, max(draws, key=draws.__getitem__)

    def tell(self, i: int, j: int, outcome: float | None) -> None:
        """Show policies i and j and record the outcome, before anything else is shown.

        Parameters
        ----------
        i, j
            Two policies, in either order.
        outcome
            In [0, 1]: 1 where i was preferred, 0 where j was, 0.5 for a tie. None where the pair was shown
            and has no outcome.
        """
        self.end(self.show(i, j), outcome)

    def show(self, i: int, j: int, showing: int | None = None) -> int:
        """Begin to show a pair, as for `Design.show`; its number.

        Champion and original count for the claim if their showing begins once the champion is fixed, from
        then on as lost.

        Raises
        ------
        ValueError
            If the number is in use, or a policy never joined.
        """
        if showing is None:
            showing = len(self._showings)
        if showing in self._showings:
            raise ValueError(f"showing {showing} has begun already")
        for policy in (i, j):
            if policy != self.original and policy not in self._parents:
                raise ValueError(f"policy {policy} never joined")
        counts = not self._looks and {i, j} == {self.champion, self.original} and i != j
        if counts and self._claim is not None:
            self._claim.tell(None)
        self._showings[showing] = _Showing(i, j, 0.0 if counts else None)
        self.n_open += 1
        return showing

    def end(
        self, showing: int, outcome: float | None, *, least: float | None = None, most: float | None = None
    ) -> None:
        """Record the outcome of a showing, or that it ended without one; as for `Design.end`.

        The claim takes the least of all that was said about it.

        Raises
        ------
        ValueError
            If there is no such showing.
        """
        known = self._known(showing)
        again = not known.is_open
        known.is_open = False
        self.n_open -= not again
        if known.counted is not None and outcome is not None:
            least, most = outcome if least is None else least, outcome if most is None else most
            worst = least if known.j == self.original else 1.0 - most
            self._count(known, min(known.counted, worst) if again else worst)
        self._believe(showing, known, outcome)

    def reopen(self, showing: int) -> None:
        """Take the end of a showing back: a slip, noticed before anything else was answered.

        Raises
        ------
        ValueError
            If there is no such showing.
        """
        known = self._known(showing)
        self.n_open += not known.is_open
        known.is_open = True
        if known.counted is not None:
            self._count(known, 0.0)
            self._certified = False
        self._believe(showing, known, None)

    def revise(self, showing: int, outcome: float | None) -> None:
        """Have the beliefs take another outcome, or none. The claim keeps what was told.

        Raises
        ------
        ValueError
            If there is no such showing.
        """
        self._believe(showing, self._known(showing), outcome)

    @property
    def verdict(self) -> Verdict:
        """The word on champion and original by now."""
        share, told, lower, risk = None, list[float](), 0.0, 1.0
        if (claim := self._claim) is not None and self.champion in {self.original, self._claimed}:
            told = [
                known.outcome if known.j == self.original else 1.0 - known.outcome
                for known in self._showings.values()
                if known.counted is not None and known.outcome is not None
            ]
            share = sum(told) / len(told) if told else None
            lower = win_rate_at_least(claim.won, claim.lost, self.delta)
            risk = min(1.0, math.exp(-claim.log_e))
        # A champion that was withdrawn is not the one that the evidence is about.
        if self._certified and self.champion == self._claimed:
            end = max(lower, 0.5), min(risk, self.delta)
            return Verdict("certified", self.champion, share, len(told), *end)
        # A champion that follows others may need more than its own comparisons.
        lower = min(lower, 0.5)
        better = self.champion != self.original and self.strength(self.champion)[0] > 0.0
        policy = self.champion if better else self.original
        if self.phase != "ended":
            return Verdict("open", policy, share, len(told), lower, risk)
        return Verdict("leads" if better else "nothing_better", policy, share, len(told), lower, risk)

    def strength(self, policy: int) -> tuple[float, float]:
        """Mean and standard deviation, by the doubting beliefs, of its log-odds of beating the original."""
        return self._doubt.between(policy, self.original)

    def _known(self, showing: int) -> _Showing:
        if showing not in self._showings:
            raise ValueError(f"there is no showing {showing}: call `show`")
        return self._showings[showing]

    def _count(self, known: _Showing, outcome: float) -> None:
        """Have the claim count another outcome of a showing."""
        if self._claim is None or known.counted is None:
            return
        self._claim.tell(outcome, instead_of=known.counted)
        known.counted = outcome
        self._certified |= self._claim.holds

    def _believe(self, showing: int, known: _Showing, outcome: float | None) -> None:
        """Have the beliefs take this outcome of a showing, and draw the conclusions."""
        before, known.outcome = known.outcome, outcome
        if before is not None:
            self._count_met(known, -1)
            self._ended.remove(showing)
        if outcome is not None:
            self._count_met(known, 1)
            self._ended.append(showing)
        if before is None and outcome is not None:
            self._hope.tell(known.i, known.j, outcome)
            self._doubt.tell(known.i, known.j, outcome)
        elif before != outcome:
            self._hope, self._doubt = self._believed(*HOPE), self._believed(*DOUBT)
        if self._looks:
            self._settle()
            self._fix_in_time()

    def _believed(self, mean: float, spread: float) -> "Family":
        """Beliefs that take all outcomes in anew."""
        beliefs = Family(self.original, mean, spread)
        for child, parent in self._parents.items():
            beliefs.add(child, parent)
        for each in map(self._showings.__getitem__, self._ended):
            if each.outcome is not None:
                beliefs.tell(each.i, each.j, each.outcome)
        return beliefs

    def _count_met(self, known: _Showing, change: int) -> None:
        self.used += change
        for policy in (known.i, known.j):
            if policy != self.original:
                self._met[policy] += change

    def _tried(self) -> list[int]:
        return [child for child in self.challengers if self._met[child] >= FEWEST]

    def _promote(self, child: int, probability: float) -> None:
        self.promotions.append(Promotion(child, self.champion, self.used, probability))
        self.champion = child
        del self.challengers[child]

    def _settle(self) -> None:
        """Promote and drop."""
        chances = {child: self._hope.chance(child, self.champion) for child in self._tried()}
        best = max(chances, key=chances.__getitem__, default=None)
        if best is not None and chances[best] > PROMOTE:
            self._promote(best, chances[best])
        for child in self._tried():
            chance = self._hope.chance(child, self.champion)
            if chance < DROP:
                parent = self.challengers.pop(child)
                self.dropped.append(Dropped(child, parent, self._met[child], self.used, chance))

    def certify(self) -> None:
        """Fix the champion now, as no more children will come, and compare it with the original.

        It is whoever is ahead, as no more clicks will tell. A champion is compared even where it is not
        expected to beat the original: over a long line of champions beliefs add up what they have not seen.
        """
        if not self._looks:
            return
        others = [self.champion, *self._tried()]
        best = max(others, key=lambda policy: self._hope.between(policy, self.original)[0])
        if best != self.champion:
            self._promote(best, self._hope.chance(best, self.champion))
        self._looks = False
        if self._claim is None:
            self._claim = Succession(self.delta)
        if self.champion in {self.original, self._claimed}:
            return
        if self._claimed != self.original:
            self._claim.hand_over()
            self._certified = False
            for known in self._showings.values():
                known.counted = None
        self._claimed = self.champion

    def go_on(self, clicks: int) -> None:
        """Look for something better still, from the champion on, with so many clicks more than it had.

        The claim is about the original still, and its risk is that of all champions together.
        """
        self.clicks += clicks
        self._explore = self.used + clicks_to_explore(self.clicks - self.used)
        self._looks = True

    def _fix_in_time(self) -> None:
        """Fix the champion once the clicks to find one are used, or nobody can race any more."""
        if self.used >= self._explore or (self._too_late and not self.challengers):
            self.certify()


class Family:
    """Gaussian beliefs about the strengths of a policy and its descendants, in log-odds.

    A child has N(``mean``, ``spread``²) over its parent. Each comparison is taken in once, by the Gaussian
    with the mode and the curvature of the posterior of the gap between its two policies.
    """

    def __init__(self, original: int, mean: float, spread: float) -> None:
        self._over_parent, self._variance = mean, spread**2
        self._place = {original: 0}
        self._mean: FloatArray = np.zeros(1)
        self._covariance: FloatArray = np.zeros((1, 1))

    def add(self, child: int, parent: int) -> None:
        """Have a child join."""
        place, n = self._place[parent], self._mean.size
        self._place[child] = n
        self._mean = np.append(self._mean, self._mean[place] + self._over_parent)
        row = self._covariance[place]
        self._covariance = np.pad(self._covariance, (0, 1))
        self._covariance[n, :n] = self._covariance[:n, n] = row
        self._covariance[n, n] = row[place] + self._variance

    def between(self, i: int, j: int) -> tuple[float, float]:
        """Mean and standard deviation of the log-odds of i against j."""
        i, j = self._place[i], self._place[j]
        covariance = self._covariance
        variance = covariance.item(i, i) + covariance.item(j, j) - 2.0 * covariance.item(i, j)
        return self._mean.item(i) - self._mean.item(j), math.sqrt(max(variance, 0.0))

    def chance(self, i: int, j: int) -> float:
        """The chance that i is better than j."""
        mean, spread = self.between(i, j)
        return 0.5 * math.erfc(-mean / (spread * math.sqrt(2.0)))

    def tell(self, i: int, j: int, outcome: float) -> None:
        """Take an outcome of i against j in."""
        before, spread = self.between(i, j)
        variance = spread**2
        gap, chance, weight = before, 0.5, 0.25
        for _ in range(_NEWTON_STEPS):
            chance = 1.0 / (1.0 + math.exp(-gap))
            weight = chance * (1.0 - chance)
            gap += (outcome - chance - (gap - before) / variance) / (weight + 1.0 / variance)
        chance = 1.0 / (1.0 + math.exp(-gap))
        weight = chance * (1.0 - chance)
        column = self._covariance[self._place[i]] - self._covariance[self._place[j]]
        self._mean += (gap - before) / variance * column
        self._covariance -= column[:, None] * (weight / (1.0 + variance * weight) * column)
