"""The race of new policies against a champion, and the claim at its end."""

import copy
import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from engine.core import Improvement, Succession, improvement, succession
from engine.core.bernoulli import log_e_value_above
from engine.core.evidence import CONCENTRATION
from engine.core.intervals import win_rate_at_least

from .test_claims import FLAT

DELTA = 0.2


def raced(clicks: int, gain: float, seed: int = 1) -> Improvement:
    """A race to its end in which each child is better than its parent by so much, in log-odds."""
    rng = np.random.default_rng(seed)
    strengths = [0.0]
    race = Improvement(0, clicks=clicks, seed=seed)
    while race.phase != "ended":
        for parent, n in race.wants().items():
            for _ in range(n):
                race.add(len(strengths), parent)
                strengths.append(strengths[parent] + gain)
        pair = race.ask()
        assert pair is not None
        i, j = pair
        race.tell(i, j, float(rng.random() < 1.0 / (1.0 + np.exp(strengths[j] - strengths[i]))))
    return race


def with_a_champion(clicks: int = 40) -> Improvement:
    """A race in which policy 1 is the champion to be certified: it has beaten the original and the others."""
    race = Improvement(0, clicks=clicks)
    race.add(1, 0)
    while race.champion == 0:
        race.tell(1, 0, 1.0)
    child = 2
    while race.phase == "explore":
        if race.wants():
            race.add(child, 1)
            child += 1
        race.tell(*race.ask(), 0.6)
    assert (race.phase, race.champion) == ("certify", 1)
    return race


class TestTheRace:
    def test_better_children_are_certified(self) -> None:
        race = raced(300, 0.4)
        verdict = race.verdict
        assert (verdict.kind, verdict.policy) == ("certified", race.champion)
        assert verdict.lower >= 0.5
        assert verdict.risk <= 0.05
        assert race.used < 300

    def test_worse_children_are_not_recommended(self) -> None:
        race = raced(300, -1.0)
        assert (race.verdict.kind, race.verdict.policy) == ("nothing_better", 0)
        assert len(race.dropped) > 10
        assert all(each.after >= 5 and each.probability < 0.35 for each in race.dropped)

    def test_whoever_wins_takes_the_champions_place(self) -> None:
        race = raced(300, 0.4)
        champions = [0, *(each.child for each in race.promotions)]
        assert [each.over for each in race.promotions] == champions[:-1]
        assert all(each.probability > 0.8 for each in race.promotions if each.at < 225)

    def test_a_long_line_of_champions_is_compared_with_the_original_whatever_beliefs_say(self) -> None:
        """The more they lead, the weaker are their children, of which beliefs expect the same of all."""
        rng = np.random.default_rng(6)
        for seed in range(5):
            race, strengths = Improvement(0, clicks=2000, seed=seed), [0.0]
            while race.phase != "ended":
                for parent, n in race.wants().items():
                    for _ in range(n):
                        race.add(len(strengths), parent)
                        strengths.append(0.7 * strengths[parent] + rng.normal(0.1, 0.5))
                i, j = race.ask()
                race.tell(i, j, float(rng.random() < special.expit(strengths[i] - strengths[j])))
            assert (race.verdict.kind, race.verdict.policy) == ("certified", race.champion)

    def test_a_champion_that_loses_to_the_original_is_not_recommended(self) -> None:
        race = with_a_champion(200)
        while race.phase == "certify":
            race.tell(*race.ask(), 0.0)
        assert (race.verdict.kind, race.verdict.policy) == ("nothing_better", 0)

    def test_a_champion_that_holds_its_lead_leads(self) -> None:
        race = with_a_champion(40)
        for outcome in (1.0, 0.0, 1.0, 1.0, 0.0) * 2:
            race.tell(1, 0, outcome)
        assert (race.verdict.kind, race.verdict.policy, race.verdict.share) == ("leads", 1, 0.6)
        assert race.ask() is None
        assert race.verdict.lower < 0.5 < race.verdict.risk

    def test_a_withdrawn_champion_leaves_the_place_to_the_original(self) -> None:
        race = with_a_champion()
        race.withdraw(1)
        assert race.champion == 0
        assert (race.verdict.kind, race.verdict.policy, race.phase) == ("nothing_better", 0, "ended")
        with pytest.raises(ValueError, match="not in the race"):
            race.withdraw(1)

    def test_a_late_answer_certifies_no_champion_that_was_withdrawn(self) -> None:
        race = with_a_champion()
        shown = [race.show(1, 0) for _ in range(30)]
        race.withdraw(1)
        for showing in shown:
            race.end(showing, 1.0)
        assert (race.verdict.kind, race.verdict.policy) == ("nothing_better", 0)

    def test_it_ends_where_nobody_can_race_any_more(self) -> None:
        race = Improvement(0, clicks=40)
        race.add(1, 0)
        race.add(2, 0)
        while race.used < 27:
            race.tell(1, 0, 0.0)
        assert race.phase == "explore"
        race.withdraw(2)
        assert race.wants() == {}
        assert race.phase == "ended"

    @pytest.mark.parametrize("wrong", [(1, 0), (0, 0), (2, 7)])
    def test_policies_join_once_and_from_known_parents(self, wrong: tuple[int, int]) -> None:
        race = Improvement(0, clicks=40)
        race.add(1, 0)
        with pytest.raises(ValueError, match="joined"):
            race.add(*wrong)


class TestShowings:
    def test_what_began_before_the_champion_was_fixed_does_not_count_for_the_claim(self) -> None:
        race = Improvement(0, clicks=40)
        race.add(1, 0)
        early = race.show(1, 0)
        while race.phase == "explore":
            race.tell(1, 0, 1.0)
        race.end(early, 1.0)
        assert race.verdict.share is None
        assert race.verdict.risk == 1.0

    def test_an_open_one_counts_as_lost_until_it_ends(self) -> None:
        race = with_a_champion()
        race.tell(1, 0, 1.0)
        before = race.verdict
        open_one = race.show(0, 1)
        assert race.verdict.risk > before.risk
        assert race.verdict.lower < before.lower
        race.end(open_one, 0.0)
        assert race.verdict.share == 1.0
        assert race.verdict.risk < before.risk
        skipped = race.show(1, 0)
        race.end(skipped, None)
        assert race.verdict.share == 1.0
        assert race.verdict.risk > before.risk

    def test_the_claim_keeps_the_worse_of_two_answers_and_a_slip_leaves_no_trace(self) -> None:
        race = with_a_champion()
        race.end(late := race.show(1, 0), 0.0)
        lost = race.verdict.risk
        race.end(late, 1.0)
        assert race.verdict.risk == lost
        race.reopen(late)
        race.end(late, 1.0)
        assert race.verdict.risk < lost
        assert race.verdict.share == 1.0

    def test_ties_tell_nothing_about_who_is_better(self) -> None:
        race = with_a_champion(200)
        race.tell(1, 0, 1.0)
        before = race.verdict.risk
        race.tell(1, 0, 0.5)
        assert race.verdict.risk == pytest.approx(before)

    def test_no_more_pairs_are_asked_than_clicks_are_left(self) -> None:
        race = with_a_champion(40)
        left = 40 - race.used
        assert race.ask(left - 1) == (1, 0)
        assert race.ask(left) is None
        for _ in range(left):
            race.show(1, 0)
        assert race.ask() is None

    def test_beliefs_forget_what_is_taken_back(self) -> None:
        told, taken_back = Improvement(0, clicks=100), Improvement(0, clicks=100)
        for race in (told, taken_back):
            race.add(1, 0)
            race.tell(1, 0, 1.0)
        taken_back.end(late := taken_back.show(0, 1), 1.0)
        assert taken_back.strength(1) != told.strength(1)
        taken_back.revise(late, None)
        assert taken_back.strength(1) == pytest.approx(told.strength(1))
        assert taken_back.used == told.used


# The win rates of the game's policies: child 1 is level with the original, child 2 beats both.
RATES = {(1, 0): 0.5, (2, 0): 0.7, (2, 1): 0.7}


class Game:
    """The largest chance of a false certificate, exactly, for somebody who sees every outcome at once.

    They write both children. They choose which pair is shown and when, with two open at most; whether an
    answer is given, kept back or left; and when to stop.
    """

    def __init__(self, clicks: int, fix: Callable[[Improvement], None] | None = None) -> None:
        self.most = clicks
        self.fix = fix
        self.known: dict[object, float] = {}

    def value(self) -> float:
        race = Improvement(0, clicks=self.most, delta=DELTA)
        race.add(1, 0)
        race.add(2, 0)
        return self.best(race, ())

    def best(self, race: Improvement, seen: tuple[tuple[int, float], ...]) -> float:
        """``seen``: the open showings and what would be said, of the child with the larger number."""
        if race._certified and race.champion == 1:
            return 1.0
        if race.phase != "explore" and race.champion != 1:
            return 0.0
        key = self.key(race, seen)
        if key in self.known:
            return self.known[key]
        values = [0.0]
        n = len(race._showings)
        if n < (3 if race.phase == "explore" else self.most) and len(seen) < 2:
            for (i, j), rate in RATES.items():
                if race.phase == "explore" or (i, j) == (1, 0):
                    after = self.after(race, lambda r, i=i, j=j: r.show(i, j))
                    values.append(
                        rate * self.best(after, (*seen, (n, 1.0)))
                        + (1 - rate) * self.best(after, (*seen, (n, 0.0)))
                    )
        for showing, outcome in seen:
            left = tuple(each for each in seen if each[0] != showing)
            for told in (outcome, None):
                after = self.after(race, lambda r, s=showing, t=told: r.end(s, t))
                values.append(self.best(after, left))
        self.known[key] = max(values)
        return self.known[key]

    def after(self, race: Improvement, action: Callable[[Improvement], object]) -> Improvement:
        after = copy.deepcopy(race)
        action(after)
        if self.fix is not None and race.phase == "explore" and after.phase == "certify":
            self.fix(after)
        return after

    def key(self, race: Improvement, seen: tuple[tuple[int, float], ...]) -> object:
        """All that the rest depends on: once the champion is fixed, the counts of the claim alone."""
        if race._claim is not None:
            counted = tuple(sorted((race._showings[s].counted is not None, d) for s, d in seen))
            own = race._claim
            return len(race._showings), race.used, own.won, own.lost, counted
        shown = tuple((known.i, known.j, known.outcome, known.is_open) for known in race._showings.values())
        return shown, tuple(race._ended), seen


def going_on(clicks: int = 4, times: int = 2, rates: tuple[float, ...] = (0.5, 0.5, 0.5)) -> float:
    """The largest chance that a champion is ever certified while it is level with the original.

    Whoever goes on chooses the champions, and when to go on, after all that they saw. ``rates``: how often a
    champion wins at first and after each time that they go on.
    """
    known: dict[object, float] = {}

    def champion(race: Improvement) -> Improvement:
        race.add(child := len(race._parents) + 1, race.champion)
        race._promote(child, 1.0)
        race.certify()
        return race

    def best(race: Improvement, left: int) -> float:
        if race._certified:
            return float(rates[times - left] <= 0.5)
        claim = race._claim
        key = (claim.won, claim.lost, round(claim.log_account, 9), race.clicks - race.used, left)
        if key not in known:
            known[key] = max([0.0, *played(race, left)])
        return known[key]

    def played(race: Improvement, left: int) -> Iterator[float]:
        if left:
            for choose in (champion, Improvement.certify):
                after = copy.deepcopy(race)
                after.go_on(clicks)
                choose(after)
                yield best(after, left - 1)
        if race.phase == "certify":
            ways = [copy.deepcopy(race) for _ in range(2)]
            for outcome, after in enumerate(ways):
                after.tell(after.champion, 0, float(outcome))
            rate, (lost, won) = rates[times - left], (best(after, left) for after in ways)
            yield (1.0 - rate) * lost + rate * won

    return best(champion(Improvement(0, clicks=clicks, delta=DELTA)), times)


class TestTheClaim:
    @pytest.fixture(autouse=True)
    def few_clicks_decide(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(succession, "CONCENTRATION", FLAT)
        for name, value in (("FEWEST", 1), ("PROMOTE", 0.5), ("HOPE", (0.0, 0.3)), ("EXPLORE", 0.25)):
            monkeypatch.setattr(improvement, name, value)

    def test_it_is_never_false_more_often_than_it_says(self) -> None:
        assert 0.1 < Game(8).value() <= DELTA

    def test_the_search_finds_open_ones_that_do_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def of_answers(own: Succession, outcome: float | None, *, instead_of: float | None = None) -> None:
            if outcome is not None:
                own.won += outcome
                own.lost += 1.0 - outcome

        monkeypatch.setattr(Succession, "tell", of_answers)
        assert Game(8).value() > DELTA

    def test_going_on_keeps_one_risk_for_all_champions(self) -> None:
        assert 0.1 < going_on() <= DELTA

    def test_who_goes_on_keeps_its_evidence_and_a_follower_begins_with_what_was_lost(self) -> None:
        race = Improvement(0, clicks=8)
        race.add(1, 0)
        race.tell(1, 0, 1.0)
        race.certify()
        for outcome in (0.0, 1.0):
            race.tell(1, 0, outcome)
        late = race.show(1, 0)
        race.go_on(8)
        assert (race.phase, race.champion, race.wants()) == ("explore", 1, {1: 2})
        again, follower = copy.deepcopy(race), race
        again.certify()
        assert (again._claim.won, again._claim.lost) == (1.0, 2.0)
        least = follower._claim.log_e
        follower.add(2, 1)
        for _ in range(3):
            follower.tell(2, 1, 1.0)
        assert follower.champion == 2
        follower.certify()
        follower.end(late, 1.0)
        assert follower._claim.log_e == pytest.approx(least)
        assert follower.verdict.share is None

    def test_the_search_finds_a_fresh_risk_for_each(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fresh(own: Succession) -> None:
            own.log_account = own.won = own.lost = 0.0

        monkeypatch.setattr(Succession, "hand_over", fresh)
        assert going_on() > DELTA

    def test_the_search_finds_tasks_that_change_below_a_champion_that_stays(self) -> None:
        """It wins more than half on the first ones alone: so those that judge have to stay the same."""
        assert going_on(3, 1, rates=(0.8, 0.5)) > DELTA

    def test_it_counts_on_as_long_as_its_champion_stays(self) -> None:
        race = Improvement(0, clicks=8)
        race.add(1, 0)
        race.tell(1, 0, 1.0)
        race.certify()
        assert not race.counts_on
        race.tell(1, 0, 1.0)
        race.go_on(8)
        assert race.counts_on
        race.add(2, 1)
        race.tell(2, 1, 1.0)
        assert race.champion == 2
        assert not race.counts_on

    def test_the_search_finds_comparisons_that_chose_the_champion(self) -> None:
        def count_them_too(race: Improvement) -> None:
            for known in race._showings.values():
                if {known.i, known.j} == {0, race.champion} and known.outcome is not None:
                    race._claim.tell(known.outcome)

        assert Game(8, count_them_too).value() > DELTA


class TestTheLowerEnd:
    @pytest.mark.parametrize("rate", [0.2, 0.4, 0.5, 0.7])
    def test_it_is_ever_above_the_win_rate_as_rarely_as_promised(self, rate: float) -> None:
        @lru_cache(None)
        def missed(won: int, lost: int) -> float:
            if win_rate_at_least(won, lost, DELTA) > rate:
                return 1.0
            if won + lost == 40:
                return 0.0
            return rate * missed(won + 1, lost) + (1 - rate) * missed(won, lost + 1)

        assert 0.0 < missed(0, 0) <= DELTA

    @given(st.integers(0, 300), st.integers(0, 300), st.floats(0.01, 0.98), st.floats(0.0, 1.0))
    def test_what_is_not_excluded_is_an_interval(self, won: int, lost: int, p: float, further: float) -> None:
        q = p + further * (0.99 - p)
        low, high = (log_e_value_above(won, lost, each, CONCENTRATION) for each in (p, q))
        if q * (won + lost) > won:
            assert high <= 1e-9
        else:
            assert high <= low + 1e-9 * max(1.0, abs(low))

    @given(st.integers(0, 200), st.integers(0, 200))
    def test_it_reaches_a_half_with_the_claim(self, won: int, lost: int) -> None:
        claim = Succession(0.05)
        claim.won, claim.lost = float(won), float(lost)
        assert claim.log_e == pytest.approx(log_e_value_above(won, lost, 0.5, CONCENTRATION))
        if abs(claim.log_e + math.log(0.05)) > 1e-3:
            assert claim.holds == (win_rate_at_least(won, lost, 0.05) > 0.5 - 1e-5)


# Each step of a race: what happens, and numbers that say to whom.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "ask", "ask", "ask", "end", "end", "skip", "reopen", "revise", "withdraw"]),
        st.integers(0, 2**16),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    max_size=150,
)


def lived(steps: list[tuple[str, int, float]], check: bool = True) -> Improvement:
    race = Improvement(0, clicks=40, seed=5)
    n = 1
    gone: set[int] = set()
    for kind, number, outcome in steps:
        opened = [s for s, known in race._showings.items() if known.is_open]
        ended = [s for s, known in race._showings.items() if not known.is_open]
        if kind == "add" and (wanted := race.wants()):
            [parent] = wanted
            race.add(n, parent)
            n += 1
        elif kind == "ask" and (pair := race.ask(number % 3)) is not None:
            assert not gone & set(pair)
            assert pair[0] == race.champion
            race.show(*pair)
        elif kind in {"end", "skip"} and opened:
            race.end(opened[number % len(opened)], None if kind == "skip" else outcome)
        elif kind in {"reopen", "revise"} and ended:
            showing = ended[number % len(ended)]
            race.reopen(showing) if kind == "reopen" else race.revise(showing, outcome)
        elif kind == "withdraw" and number % 4 == 0 and race.challengers:
            child = sorted(race.challengers)[number % len(race.challengers)]
            race.withdraw(child)
            gone.add(child)
        gone |= {each.child for each in race.dropped}
        if check:
            assert race.champion not in gone
            assert not gone & set(race.challengers)
            assert sum(race.wants().values()) + len(race.challengers) <= race.places
            assert race.n_open == sum(known.is_open for known in race._showings.values())
            assert race.used == sum(known.outcome is not None for known in race._showings.values())
            assert 0.0 <= race.verdict.lower <= 1.0
    return race


@given(STEPS)
def test_nobody_who_left_is_asked_about_again_and_places_are_kept(
    steps: list[tuple[str, int, float]],
) -> None:
    lived(steps)


@given(STEPS)
def test_a_replay_is_equal(steps: list[tuple[str, int, float]]) -> None:
    first, again = lived(steps), lived(steps, check=False)
    for name in ("champion", "challengers", "promotions", "dropped", "used", "phase", "verdict"):
        assert getattr(first, name) == getattr(again, name)
    assert [first.ask(ahead) for ahead in range(4)] == [again.ask(ahead) for ahead in range(4)]
