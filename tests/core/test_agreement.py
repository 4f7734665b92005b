"""Agreement of two judges."""

import numpy as np
import pytest

from engine.core.agreement import FEWEST_UNITS, agreement, alpha, proportion


def test_kappa_and_its_interval_are_those_of_another_implementation():
    # statsmodels 0.14, inter_rater.cohens_kappa
    found = agreement(np.array([[20.0, 5, 3], [4, 15, 6], [2, 7, 11]]))
    assert found.kappa == pytest.approx(0.44100964265455605)
    assert found.kappa_interval == pytest.approx((0.27519986850921696, 0.6068194167999151))
    found = agreement(np.array([[1.0, 9, 0], [8, 2, 3], [0, 1, 1]]))
    assert found.kappa == pytest.approx(-0.4150943396226413)
    assert found.kappa_interval == pytest.approx((-0.7233332367350566, -0.10685544251022605))


def test_a_tie_on_one_side_only_is_a_disagreement_and_no_side():
    found = agreement(np.array([[6.0, 1, 2], [1, 5, 0], [3, 0, 2]]))
    assert (found.exact.hits, found.exact.n) == (13, 20)
    assert (found.sided.hits, found.sided.n) == (11, 13)


def test_wilson_intervals_are_those_of_the_literature():
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    for hits, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        found = proportion(hits, n)
        assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
        assert found.share == hits / n


def test_nothing_judged_and_nothing_to_tell_apart():
    nothing = agreement(np.zeros((3, 3)))
    assert nothing.exact.share is None
    assert (nothing.exact.low, nothing.exact.high) == (0, 1)
    assert nothing.kappa is None
    always_left = agreement(np.diag([9.0, 0, 0]))
    assert always_left.exact.share == 1
    assert always_left.kappa is None


def test_perfect_agreement_has_no_interval_from_a_standard_error_of_zero():
    perfect = agreement(np.diag([9.0, 8, 3]))
    assert perfect.kappa == pytest.approx(1)
    assert perfect.kappa_interval is None
    assert perfect.exact.low < 0.9


def test_the_intervals_hold_what_they_promise():
    rng = np.random.default_rng(5)
    truth = np.array([[0.3, 0.08, 0.02], [0.1, 0.3, 0.03], [0.05, 0.02, 0.1]])
    kappa = agreement(truth * 1e6).kappa
    covered = np.zeros(2)
    for _ in range(1000):
        found = agreement(rng.multinomial(60, truth.ravel()).reshape(3, 3).astype(float))
        low, high = found.kappa_interval
        covered += [low <= kappa <= high, found.exact.low <= 0.7 <= found.exact.high]
    assert (covered / 1000 > 0.92).all()


def counted(rows: list[str], answers: str) -> np.ndarray:
    """The table of units by answers of judges who are a row each; a dot is no answer."""
    return np.array([[float(sum(row[u] == c for row in rows)) for c in answers] for u in range(len(rows[0]))])


def test_alpha_is_that_of_the_literature_and_of_another_implementation():
    # Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, section C
    found = alpha(counted(["123321412...", "1233224125.3", ".3332342251.", "12332441251."], "12345"))
    assert (found.units, found.answers) == (11, 40)
    assert found.value == pytest.approx(0.743, abs=5e-4)
    assert found.interval is None, "eleven units are too few"
    # krippendorff 0.9.0, nominal, of the same tables
    assert found.value == pytest.approx(0.743421052631579)
    found = alpha(counted(["aabbcabcaab", "abbbcacc.ab", "aab.cabcbba"], "abc"))
    assert found.value == pytest.approx(0.5192307692307692)


def test_alpha_needs_units_that_two_judged_and_answers_that_differ():
    assert alpha(np.zeros((0, 3))).value is None
    once = alpha(np.array([[1.0, 0, 0], [0, 1, 0]]))
    assert (once.units, once.value) == (0, None)
    same = alpha(np.array([[2.0, 0, 0]] * 30))
    assert (same.units, same.value, same.interval) == (30, None, None)
    perfect = alpha(np.array([[2.0, 0, 0]] * 15 + [[0.0, 0, 2]] * 15))
    assert perfect.value == 1.0
    low, high = perfect.interval
    assert high == 1.0
    # None of 30 is at most 11.4% [Wilson 1927], and chance disagrees half of the time.
    assert low == pytest.approx(1 - 0.1135 / 0.5, abs=1e-3)


@pytest.mark.parametrize("disagreeing", [0.02, 0.05, 0.1])
def test_the_interval_of_alpha_does_not_call_a_few_equal_answers_perfect(disagreeing):
    rng = np.random.default_rng(3)
    kinds = np.array([[2.0, 0, 0], [0, 2, 0], [1, 1, 0]])
    odds = [(1 - disagreeing) / 2, (1 - disagreeing) / 2, disagreeing]
    truth = 1 - 2 * disagreeing
    intervals = [alpha(np.repeat(kinds, rng.multinomial(20, odds), axis=0)).interval for _ in range(100)]
    assert sum(low <= truth <= high for low, high in intervals) >= 85


def test_the_interval_of_alpha_covers_it_about_as_often_as_it_says():
    """150 units of three judges, who see the answer with probability 0.7 and guess otherwise."""
    rng = np.random.default_rng(7)

    def judged(units: int) -> np.ndarray:
        said = np.where(
            rng.random((units, 3)) < 0.7, rng.integers(3, size=(units, 1)), rng.integers(3, size=(units, 3))
        )
        return np.stack([(said == c).sum(axis=1) for c in range(3)], axis=1).astype(float)

    truth = alpha(judged(200_000)).value
    assert truth == pytest.approx(0.49, abs=0.01)
    intervals = [alpha(judged(150)).interval for _ in range(200)]
    covered = sum(low <= truth <= high for low, high in intervals)
    assert 180 <= covered <= 199
    assert alpha(judged(FEWEST_UNITS)).interval is not None


def test_alpha_is_the_part_of_the_way_from_chance_to_perfect_agreement():
    # Of three judges of the first unit two agree, which is one pair of three; of the second unit all agree.
    found = alpha(np.array([[2.0, 1, 0], [0, 0, 3]]))
    assert found.same == pytest.approx((1 / 3 + 1) / 2)
    # Of the 30 ordered pairs of all six answers, 2 are of the first kind and 6 of the third.
    assert found.chance == pytest.approx(8 / 30)
    assert found.value == pytest.approx((found.same - found.chance) / (1 - found.chance))
