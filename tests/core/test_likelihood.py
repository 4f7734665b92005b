import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from engine.core.bernoulli import bernoulli_kl, log_e_value, log_e_value_of_pair, log_lower_beta

counts = st.integers(0, 4000).map(lambda half: half / 2)


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_divergence_is_the_expected_log_likelihood_ratio(p: float, q: float) -> None:
    expected = sum(w * np.log(w / v) for w, v in ((p, q), (1 - p, 1 - q)) if w > 0)
    assert bernoulli_kl(p, q) == pytest.approx(expected, abs=1e-12)
    assert bernoulli_kl(p, q) >= -1e-15


def test_divergence_from_an_impossible_mean_is_infinite() -> None:
    assert bernoulli_kl(0.5, 0.0) == np.inf


def log_integral(a: float, b: float, x: float) -> float:
    """∫_0^x q^(a-1) (1-q)^(b-1) dq by quadrature, scaled by the integrand's largest value."""

    def log_density(q: float) -> float:
        return float(special.xlogy(a - 1, q) + special.xlog1py(b - 1, -q))

    mode = min(max((a - 1) / (a + b - 2), 1e-12), x)
    top = log_density(mode)
    width = 30 * np.sqrt(mode * (1 - mode) / (a + b)) + 30 / (a + b)
    slope = (a - 1) / mode - (b - 1) / (1 - mode)
    if slope * width > 60:
        width = 60 / slope
    area, _ = integrate.quad(
        lambda q: np.exp(log_density(q) - top), max(0.0, mode - width), min(x, mode + width), limit=400
    )
    return top + np.log(area)


@given(counts, counts, st.sampled_from([0.5, 0.55, 0.7]))
def test_lower_beta_agrees_with_quadrature(w: float, v: float, x: float) -> None:
    got = log_lower_beta(w + 10, v + 10, x)[0]
    assert got == pytest.approx(log_integral(w + 10, v + 10, x), rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(
    ("a", "b"), [(2000.0, 10.0), (5.2e5, 4.8e5), (1e6, 10.0), (9e5, 1e6), (1e6 + 0.5, 1e6)]
)
def test_lower_beta_agrees_with_quadrature_at_a_million(a: float, b: float) -> None:
    assert log_lower_beta(a, b, 0.5)[0] == pytest.approx(log_integral(a, b, 0.5), rel=1e-10, abs=1e-6)


def test_both_ways_of_computing_the_lower_beta_meet() -> None:
    a = np.linspace(5_000, 12_000, 400)
    steps = np.diff(log_lower_beta(a, np.full_like(a, 5_000.0), 0.5))
    assert special.betainc(a[0], 5_000.0, 0.5) > 1e-3
    assert special.betainc(a[-1], 5_000.0, 0.5) == 0.0
    assert np.all(np.diff(steps) > 0), "the log integral is convex in a"
    assert np.all(np.diff(steps, 2) < 1e-6), "and bends less and less"


def test_an_element_does_not_depend_on_its_neighbours() -> None:
    w = np.array([0.0, 3.5, 4_000.0, 1e6, 20.0])
    v = np.array([10.0, 3.5, 1.0, 9e5, 4_000.0])
    alone = [log_e_value(w[k], v[k], 0.5, 10.0)[0] for k in range(w.size)]
    assert log_e_value(w, v, 0.5, 10.0).tolist() == alone


@given(counts, counts, st.integers(0, 20), st.sampled_from([0.5, 0.51, 0.7]), st.booleans())
def test_a_pair_by_itself_has_the_same_value_to_the_last_bit(
    w: float, v: float, t: int, p0: float, narrow: bool
) -> None:
    w, v = w + 0.5 * t, v + 0.5 * t
    several = log_e_value([w, 30.0, v], [v, 1.0, w], p0, 20.0, narrow=narrow, ties=[t, 2, t])
    for own, other, expected in ((w, v, several[0]), (v, w, several[2])):
        assert log_e_value_of_pair(own, other, float(t), p0, 20.0, narrow=narrow) == expected


@given(counts, counts, st.sampled_from([0.0, 0.05, 0.2]), st.sampled_from([1.0, 10.0]))
def test_e_value_grows_with_losses_and_falls_with_wins(w: float, v: float, eps: float, a: float) -> None:
    here = log_e_value(w, v, 0.5 + eps, a)[0]
    assert log_e_value(w, v + 1, 0.5 + eps, a)[0] > here
    assert log_e_value(w + 1, v, 0.5 + eps, a)[0] < here


@pytest.mark.parametrize(("w", "v"), [(0.0, 0.0), (8.0, 12.0), (30.0, 24.5)])
@pytest.mark.parametrize(
    ("p0", "narrow", "parts"),
    [
        (0.5, False, [(0.6, 20.0, 0.5), (0.4, 2.0, 0.5)]),
        (0.5, True, [(1.0, 20.0, 0.5)]),
        (0.55, False, [(0.25, 20.0, 0.55), (0.5, 20.0, 0.5), (0.25, 5.0, 0.5)]),
        (0.55, True, [(1 / 3, 20.0, 0.55), (2 / 3, 20.0, 0.5)]),
    ],
)
def test_the_mixture_is_the_mean_of_its_parts(
    p0: float, narrow: bool, parts: list[tuple[float, float, float]], w: float, v: float
) -> None:
    def mean_likelihood(a: float, cut: float) -> float:
        def density(q: float) -> float:
            return float((q * (1 - q)) ** (a - 1.0))

        both = integrate.quad(lambda q: q**w * (1 - q) ** v * density(q), 0, cut)[0]
        return float(both / integrate.quad(density, 0, cut)[0])

    expected = sum(share * mean_likelihood(a, cut) for share, a, cut in parts)
    expected /= p0**w * (1 - p0) ** v
    assert np.exp(log_e_value(w, v, p0, 20.0, narrow=narrow)[0]) == pytest.approx(expected, rel=1e-6)


@given(counts, counts, st.sampled_from([0.5, 0.6]), st.floats(0, 1))
def test_e_value_is_a_martingale_at_the_null(w: float, v: float, p0: float, outcome: float) -> None:
    here = log_e_value(w, v, p0, 10.0)[0]
    win, loss = (np.exp(log_e_value(*after, p0, 10.0)[0] - here) for after in ((w + 1, v), (w, v + 1)))
    assert p0 * win + (1 - p0) * loss == pytest.approx(1.0, abs=1e-7)
    # A split outcome never brings more than the coin it stands for.
    split = np.exp(log_e_value(w + outcome, v + 1 - outcome, p0, 10.0)[0] - here)
    assert split <= outcome * win + (1 - outcome) * loss + 1e-9


many = st.integers(0, 200)


@given(many, many, many, st.sampled_from([0.5, 0.55, 0.6]), st.sampled_from([1.0, 20.0]))
def test_with_ties_it_is_just_below_the_mean_over_coins(w: int, v: int, t: int, p0: float, a: float) -> None:
    """A tie is worth the average of a win and a loss, so all ties are worth that over all their coins."""
    found = log_e_value(w + 0.5 * t, v + 0.5 * t, p0, a, ties=t)[0]
    heads = np.arange(t + 1.0)
    exact = special.logsumexp(
        log_e_value(w + heads, v + t - heads, p0, a) + stats.binom.logpmf(heads, t, 0.5)
    )
    assert exact - 0.15 <= found <= exact + 1e-9
    if p0 == 0.5:
        # Against a fair coin, ties are worth nothing.
        assert found == pytest.approx(log_e_value(w, v, p0, a)[0], abs=1e-9)


@pytest.mark.parametrize("p0", [0.5, 0.55])
def test_with_ties_an_element_does_not_depend_on_its_neighbours(p0: float) -> None:
    t = np.array([[0.0, 7.0, 7.0], [7.0, 7.0, 180.0]])
    w, v = np.array([[0.0, 3.5, 300.0], [10.0, 4.0, 250.0]]) + 0.5 * t, 20.0 + 0.5 * t
    together = log_e_value(w, v, p0, 20.0, ties=t)
    alone = [log_e_value(*one, p0, 20.0, ties=n)[0] for *one, n in zip(w.flat, v.flat, t.flat, strict=True)]
    assert together.ravel().tolist() == alone
    assert log_e_value(w, v, p0, 20.0, ties=np.zeros_like(w)).tolist() == log_e_value(w, v, p0, 20.0).tolist()
