import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from engine.core import BradleyTerry
from engine.core.intervals import effect_intervals, win_rate_intervals
from engine.core.types import Tally


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2000), st.integers(0, 2000), st.sampled_from([0.05, 0.2]))
def test_ends_are_where_the_likelihood_ratio_reaches_its_limit(won: int, lost: int, delta: float) -> None:
    wins = np.array([[0.0, won], [lost, 0.0]])
    lower, upper = win_rate_intervals(wins, wins + wins.T, delta)
    mixture = special.betaln(won + 0.5, lost + 0.5) - special.betaln(0.5, 0.5)
    for end in (lower[0, 1], upper[0, 1]):
        ratio = mixture - special.xlogy(won, end) - special.xlog1py(lost, -end)
        if 0 < end < 1:
            # A twentieth is kept for policies that join.
            assert ratio == pytest.approx(np.log(1 / (0.95 * delta)), abs=1e-4)
    assert lower[0, 1] == pytest.approx(1 - upper[1, 0])
    if won + lost:
        assert lower[0, 1] <= won / (won + lost) <= upper[0, 1]
    else:
        assert (lower[0, 1], upper[0, 1]) == (0.0, 1.0)


def test_win_rate_intervals_hold_at_all_times() -> None:
    rng = np.random.default_rng(1)
    truth, K = 0.6, 21
    # Each pair is a run of its own: the intervals share δ among all pairs, so that it is given for all.
    pairs = np.triu_indices(K, 1)
    n_runs = pairs[0].size
    won = np.cumsum(rng.random((n_runs, 400)) < truth, axis=1)
    missed = np.zeros(n_runs, dtype=bool)
    for m in range(10, 401, 10):
        wins = np.zeros((K, K))
        wins[pairs] = won[:, m - 1]
        wins.T[pairs] = m - won[:, m - 1]
        lower, upper = win_rate_intervals(wins, wins + wins.T, 0.2 * n_runs)
        missed |= (lower[pairs] > truth) | (truth > upper[pairs])
    # A true rate of δ = 0.2 would show at most 25 misses among 210 with a probability of 0.1%.
    assert missed.sum() <= 25


def test_pairs_of_those_who_join_share_what_is_kept_for_them() -> None:
    wins = 20.0 * (1.0 - np.eye(6))
    excluded, K = 0.0, 6
    for n_first in (6, 4):
        lower, _ = win_rate_intervals(wins, wins + wins.T, 0.1, n_first)
        end = lower[np.triu_indices(K, 1)]
        ratio = special.betaln(20.5, 20.5) - special.betaln(0.5, 0.5) - 20.0 * np.log(end * (1.0 - end))
        excluded = np.exp(-ratio).sum()
        assert excluded == pytest.approx(0.1 * (0.95 if n_first == 6 else 0.95 + 0.05 * (1 / 2 + 1 / 6)))
        assert np.ptp(end) > 0.0 or n_first == 6
    earlier, _ = win_rate_intervals(wins[:5, :5], 2.0 * wins[:5, :5], 0.1, 4)
    assert np.array_equal(earlier, lower[:5, :5])


def test_effect_intervals_cover_and_shrink() -> None:
    space = BradleyTerry(np.random.default_rng(0).standard_normal((6, 2)))
    theta = np.array([0.8, -0.4])
    scores = space.features @ theta
    widths, missed = [], 0
    for seed in range(60):
        rng, tally = np.random.default_rng(seed), Tally.empty(6)
        for t in range(1, 301):
            i, j = rng.choice(6, 2, replace=False)
            won = rng.random() < special.expit(scores[i] - scores[j])
            tally.record(np.array([i]), np.array([j]), np.array([float(won)]))
            if t in (100, 300):
                estimate, lower, upper = effect_intervals(space, tally, 0.1)
                assert np.all((lower < estimate) & (estimate < upper))
                widths.append((upper - lower).mean())
                missed += not np.all((lower <= theta) & (theta <= upper))
    assert missed <= 6
    assert np.mean(widths[1::2]) < 0.75 * np.mean(widths[::2])


@pytest.mark.parametrize("strength", [2.0, 4.0])
def test_effect_intervals_cover_clear_differences_from_the_first_comparison_on(strength: float) -> None:
    space, theta = BradleyTerry.one_hot(3), np.array([strength, 0.0])
    scores = space.features @ theta
    rows, columns = np.triu_indices(3, 1)
    contrasts = space.features[rows] - space.features[columns]
    missed = 0
    for seed in range(60):
        rng, tally = np.random.default_rng(seed), Tally.empty(3)
        inside = True
        for t in range(61):
            if t < 6 or t % 10 == 0:
                _, lower, upper = effect_intervals(space, tally, 0.05, contrasts)
                inside &= bool(np.all((lower <= contrasts @ theta) & (contrasts @ theta <= upper)))
            i, j = rng.choice(3, 2, replace=False)
            won = rng.random() < special.expit(scores[i] - scores[j])
            tally.record(np.array([i]), np.array([j]), np.array([float(won)]))
        missed += not inside
    # A true rate of 5% would show more than 8 of 60 with a probability of .3%.
    assert missed <= 8


def test_contrasts_give_log_odds_between_policies() -> None:
    space = BradleyTerry.one_hot(3)
    tally = Tally(np.array([[[0, 30.0, 0], [10, 0, 0], [0, 0, 0]]]))
    contrast = space.features[[0]] - space.features[[1]]
    estimate, lower, upper = effect_intervals(space, tally, 0.05, contrast)
    assert lower[0] < np.log(3) < upper[0]
    assert 0 < estimate[0] <= np.log(3)
