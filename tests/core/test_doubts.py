"""Doubts: biases that were planted are found, and honest data are left alone."""

import numpy as np
import pytest
from scipy.stats import fisher_exact, hypergeom

from engine.core.doubts import LEVEL, Examined, Kind, Showings, examine, p_of_total

NO_TEXTS = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_))


def honest(
    n_runs: int, *, n: int = 120, n_policies: int = 3, n_people: int = 4, seed: int = 0
) -> tuple[list[Showings], np.ndarray]:
    """Showings of runs side by side, and their leaders.

    The leader meets whoever is near it. People come in stretches, and skip at rates of their own, beginners
    more. Some answers are ties.
    """
    rng = np.random.default_rng(seed)
    strength = rng.normal(0.0, 0.5, (n_runs, n_policies))
    run = np.arange(n_runs)
    wins, judged = np.zeros((2, n_runs, n_policies))
    skips, had = rng.uniform(0.0, 0.1, (n_runs, n_people)), np.zeros((n_runs, n_people))
    who = rng.integers(0, n_people, n_runs)
    told = []
    for _ in range(n):
        rate = (wins + 1.0) / (judged + 2.0)
        leader = np.argmax(rate + rng.normal(0.0, 0.02, rate.shape), axis=1)
        near = rate + 1.0 / np.sqrt(judged + 1.0) + rng.gumbel(0.0, 0.05, rate.shape)
        near[run, leader] = -np.inf
        rival = np.argmax(near, axis=1)
        i, j = np.minimum(leader, rival), np.maximum(leader, rival)
        who = np.where(rng.random(n_runs) < 0.2, rng.integers(0, n_people, n_runs), who)
        chance = 1.0 / (1.0 + np.exp(strength[run, j] - strength[run, i]))
        outcome = np.where(rng.random(n_runs) < 0.1, 0.5, rng.random(n_runs) < chance)
        left = rng.random(n_runs) < skips[run, who] * np.where(had[run, who] < 15, 3.0, 1.0)
        had[run, who] += 1
        for policy, share in ((i, outcome), (j, 1.0 - outcome)):
            wins[run, policy] += np.where(left, 0.0, share)
            judged[run, policy] += ~left
        told.append((who, i, j, np.where(left, np.nan, outcome)))
    columns = [np.array(column).T for column in zip(*told, strict=True)]
    leaders = np.argmax((wins + 1.0) / (judged + 2.0), axis=1)
    return [Showings(*(column[each] for column in columns)) for each in run], leaders


def kinds(examined: Examined) -> set[tuple[Kind, int | None, int | None]]:
    return {(each.kind, each.person, each.policy) for each in examined.found}


def test_one_group_is_fishers_exact_test():
    rng = np.random.default_rng(1)
    for table in rng.integers(0, 12, (50, 2, 2)):
        sizes, theirs, marked = (np.array([of]) for of in (table.sum(), table[0].sum(), table[:, 0].sum()))
        for alternative in ("two-sided", "greater"):
            p = p_of_total(int(table[0, 0]), sizes, theirs, marked, one_sided=alternative == "greater")
            assert p == pytest.approx(fisher_exact(table, alternative)[1])


def test_groups_are_summed_exactly():
    sizes, theirs, marked = np.array([7, 5]), np.array([3, 4]), np.array([2, 3])
    chances = np.convolve(
        *(hypergeom(n, r, c).pmf(np.arange(5)) for n, r, c in zip(sizes, theirs, marked, strict=True))
    )
    for total in range(2, 6):
        assert p_of_total(total, sizes, theirs, marked, one_sided=True) == pytest.approx(
            chances[total:].sum()
        )


def test_honest_data_are_left_alone():
    rng = np.random.default_rng(2)
    shown, leaders = honest(600, n_people=3)
    texts = [(rng.integers(0, 3, 240), rng.random(240) < 0.05) for _ in shown]
    examined = [
        examine(each, 3, leader, text) for each, leader, text in zip(shown, leaders, texts, strict=True)
    ]
    assert np.mean([each.n_tests for each in examined]) > 20
    # More than this many of 600 come less than once in a hundred times.
    assert sum(bool(each.found) for each in examined) <= 600 * LEVEL + 4


def planted(seed: int = 3, n: int = 400) -> Showings:
    [shown], _ = honest(1, n=n, seed=seed)
    return shown


def test_a_person_who_leaves_what_a_policy_would_lose_is_found():
    shown = planted()
    lost = np.where(shown.i == 1, shown.outcome < 0.5, (shown.j == 1) & (shown.outcome > 0.5))
    outcome = np.where((shown.person == 2) & lost, np.nan, shown.outcome)
    found = examine(Showings(shown.person, shown.i, shown.j, outcome), 3, 1, NO_TEXTS)
    [each] = [each for each in found.found if each.kind is Kind.LEFT and each.person == 2]
    assert each.policy == 1
    assert each.hits / each.n > 5 * each.other_hits / each.other_n
    assert each.n + each.other_n == np.sum(shown.person == 2)


def test_of_two_policies_the_answers_of_such_a_person_stand_out():
    rng = np.random.default_rng(4)
    person, outcome = np.tile(np.arange(5), 60), (rng.random(300) < 0.45).astype(np.float64)
    outcome[(person == 0) & (outcome == 0.0)] = np.nan
    shown = Showings(person, np.zeros(300, dtype=np.int64), np.ones(300, dtype=np.int64), outcome)
    assert kinds(examine(shown, 2, 0, NO_TEXTS)) == {(Kind.PERSON, 0, None)}


def test_answers_that_change_are_found():
    shown = planted()
    wins_early = np.where(np.arange(400) < 200, shown.i == 0, shown.j == 0).astype(np.float64)
    outcome = np.where(shown.with_policy(0), wins_early, shown.outcome)
    found = examine(Showings(shown.person, shown.i, shown.j, outcome), 3, 0, NO_TEXTS)
    assert (Kind.EARLY, None, 0) in kinds(found)


def test_a_person_who_judges_other_pairs_is_found():
    shown = planted()
    # Whenever a pair with policy 2 comes, it is person 3's.
    person = np.where((shown.i == 2) | (shown.j == 2), 3, np.where(shown.person == 3, 1, shown.person))
    found = examine(Showings(person, shown.i, shown.j, shown.outcome), 3, 0, NO_TEXTS)
    assert (Kind.SERVED, 3, 2) in kinds(found)


def test_a_policy_whose_responses_fail_is_found():
    policy = np.repeat(np.arange(3), 30)
    failed = (policy == 2) & (np.arange(90) % 10 > 0)
    nobody = np.zeros(0, dtype=np.int64)
    found = examine(Showings(nobody, nobody, nobody, np.zeros(0)), 3, None, (policy, failed))
    assert kinds(found) == {(Kind.FAILED, None, 2)}
    assert (found.found[0].hits, found.found[0].n, found.found[0].other_hits) == (27, 30, 0)


def test_nothing_shown_gives_no_test():
    nobody = np.zeros(0, dtype=np.int64)
    assert examine(Showings(nobody, nobody, nobody, np.zeros(0)), 3, None, NO_TEXTS) == Examined((), 0)
