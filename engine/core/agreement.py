"""The agreement of two judges of the same comparisons."""

from dataclasses import dataclass
from math import comb, sqrt

import numpy as np
from scipy import special

from .types import FloatArray

Interval = tuple[float, float]


@dataclass(frozen=True)
class Proportion:
    """A share of n things, with Wilson's interval [Wilson 1927]: no share and (0, 1) where n is 0."""

    hits: int
    n: int
    low: float
    high: float

    @property
    def share(self) -> float | None:
        """The hits' share, in [0, 1]; None where n is 0."""
        return self.hits / self.n if self.n else None


@dataclass(frozen=True)
class Agreement:
    """Two judges compared, who may say left, right or tie.

    Attributes
    ----------
    exact
        The same answer, a tie being an answer: where one says tie and the other does not, they disagree.
    sided
        The same side, where both named one.
    kappa
        Cohen's κ over the three answers: agreement beyond what their habits alone would bring. ``None`` where
        both always give the same one answer, or nothing was judged.
    kappa_interval
        From κ's asymptotic standard error, cut off at ±1; ``None`` where that is zero, as with perfect
        agreement.
    """

    exact: Proportion
    sided: Proportion
    kappa: float | None
    kappa_interval: Interval | None


def proportion(hits: int, n: int, confidence: float = 0.95) -> Proportion:
    """A share with Wilson's interval [Wilson 1927], at a level in (0, 1).

    Raises
    ------
    ValueError
        If hits is negative or above n.
    """
    if n == 0:
        return Proportion(0, 0, 0.0, 1.0)
    if not 0 <= hits <= n:
        raise ValueError(f"There cannot be {hits} hits of {n}. Give hits from 0 to n.")
    z = float(special.ndtri(0.5 + confidence / 2))
    centre = (2 * hits + z**2) / (2 * (n + z**2))
    reach = z * sqrt(4 * hits * (n - hits) / n + z**2) / (2 * (n + z**2))
    # The ends are exact where rounding would leave them an ulp off.
    return Proportion(hits, n, centre - reach if hits else 0.0, centre + reach if hits < n else 1.0)


def agreement(table: FloatArray, confidence: float = 0.95) -> Agreement:
    """Compare two judges.

    `table` has shape (3, 3), rows and columns in the order left, right, tie: entry (a, b) counts the
    comparisons to which the one answered a and the other b. `confidence` is that of each interval by itself,
    at a number of comparisons that was not chosen by looking.
    """
    sided = table[:2, :2]
    kappa, interval = _kappa(table, confidence)
    return Agreement(
        exact=proportion(int(np.trace(table)), int(table.sum()), confidence),
        sided=proportion(int(np.trace(sided)), int(sided.sum()), confidence),
        kappa=kappa,
        kappa_interval=interval,
    )


def _kappa(table: FloatArray, confidence: float) -> tuple[float | None, Interval | None]:
    """κ [Cohen 1960] with its large-sample standard error [Fleiss, Cohen, Everitt 1969, equation 13]."""
    n = float(table.sum())
    if n == 0:
        return None, None
    p = table / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    observed, expected = float(np.trace(p)), float(rows @ columns)
    if np.isclose(expected, 1.0):
        return None, None
    kappa = (observed - expected) / (1 - expected)
    # Entry (a, b): how often the second says a, plus how often the first says b.
    margins = columns[:, None] + rows[None, :]
    weights = margins**2 * (1 - kappa) ** 2
    np.fill_diagonal(weights, (1 - np.diag(margins) * (1 - kappa)) ** 2)
    spread = float((p * weights).sum()) - (kappa - expected * (1 - kappa)) ** 2
    error = sqrt(max(spread, 0.0) / n) / (1 - expected)
    if np.isclose(error, 0.0):
        return kappa, None
    reach = float(special.ndtri(0.5 + confidence / 2)) * error
    return kappa, (max(-1.0, kappa - reach), min(1.0, kappa + reach))


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's α of any number of judges, for answers without an order.

    Attributes
    ----------
    units, answers
        The things that at least two people answered about, and all answers about them.
    value
        1 where all agree, 0 where they agree as chance would have it. ``None`` where nothing can be said:
        there are no such units, or every answer is the same.
    interval
        By resampling the units, or from their number where all agree; ``None`` below `FEWEST_UNITS`, where
        it would mean little.
    same, chance
        How often two answers about one unit are the same, and how often two of all these answers would be, in
        [0, 1]. The value is the part of the way from ``chance`` to 1 that ``same`` has gone. 1 and 1 without
        a value.
    """

    units: int
    answers: int
    value: float | None
    interval: Interval | None
    same: float = 1.0
    chance: float = 1.0


# Below it, a percentile interval of resampled units is far too short.
FEWEST_UNITS = 20
_RESAMPLES = 2000


def alpha(table: FloatArray) -> Alpha:
    """Krippendorff's α [Krippendorff 2011], with a 95% interval: percentiles of resampled units.

    Where all agree it begins where the units would disagree as often as Wilson's interval allows. The same
    table always has the same interval.

    Entry (u, c) of `table`, of shape (U, C), counts the people who gave the answer c about unit u. Units with
    fewer than two answers are left out.
    """
    table = table[table.sum(axis=1) >= 2]
    units, answers = len(table), int(table.sum())
    if not units:
        return Alpha(0, 0, None, None)
    # Units with the same answers are alike: there are few kinds of them, however many units there are.
    kinds, counts = np.unique(table, axis=0, return_counts=True)
    counted = counts[None, :].astype(np.float64)
    [value], [unlike], [by_chance] = _alphas(kinds, counted), *_disagreements(kinds, counted)
    if np.isnan(value):
        return Alpha(units, answers, None, None)
    interval = None
    if units >= FEWEST_UNITS:
        drawn = np.random.default_rng(0).multinomial(units, counts / units, size=_RESAMPLES)
        found = _alphas(kinds, drawn.astype(np.float64))
        low, high = np.nanquantile(found, [0.025, 0.975])
        if value == 1.0:
            # Units that all agree do so in every sample of them. Of others, so many may not.
            shares = table.sum(axis=0) / answers
            low = max(-1.0, 1.0 - proportion(0, units).high / (1.0 - (shares**2).sum()))
        interval = (float(low), float(high))
    return Alpha(units, answers, float(value), interval, same=1 - float(unlike), chance=1 - float(by_chance))


def _alphas(kinds: FloatArray, counts: FloatArray) -> FloatArray:
    """α for each row of ``counts``, which says how many units there are of each kind; NaN where all agree on
    one answer.
    """
    observed, expected = _disagreements(kinds, counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(expected > 0, 1 - observed / expected, np.nan))


def _disagreements(kinds: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The shares of pairs of answers that differ, within units and among all, for each row of ``counts``."""
    people = kinds.sum(axis=1)
    agreeing = (kinds * (kinds - 1)).sum(axis=1) / (people - 1)
    answers = counts @ people
    margins = counts @ kinds
    by_chance = (margins * (margins - 1)).sum(axis=1) / (answers * (answers - 1))
    return 1 - counts @ agreeing / answers, 1 - by_chance


def p_as_alike(same: int, shared: int, usual: float) -> float:
    """The probability of at least so many equal answers if each is equal with probability `usual`."""
    return 1.0 if same == 0 else float(special.bdtrc(same - 1, shared, usual))


def p_of_fall(before: tuple[int, int], after: tuple[int, int]) -> float:
    """The probability that chance alone would put so few of all right answers into the later ones [Fisher].

    `before` and `after` are right answers and all answers.
    """
    right, n = before[0] + after[0], before[1] + after[1]
    # No fewer than so many: the earlier ones have room for only so many right answers.
    fewest = max(0, right - before[1])
    ways = sum(comb(after[1], x) * comb(before[1], right - x) for x in range(fewest, after[0] + 1))
    return ways / comb(n, right)
