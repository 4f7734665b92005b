"""Policies that join and leave: every conclusion keeps its risk, whoever joins or retires and when."""

import json
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import combinations, product

import numpy as np
import pytest

from engine.core import (
    Claim,
    Design,
    Factorial,
    Place,
    Succession,
    Unstructured,
    capital,
    evidence,
    pooled_evidence,
    succession,
)
from engine.core.capital import Stakes
from engine.core.claims import HeadToHead
from engine.core.evidence import PairwiseEvidence
from engine.core.ledger import Ledger
from engine.core.pooled_evidence import StreamedEvidence
from engine.core.spaces import Space
from engine.core.types import Tally

from .test_claims import FLAT

MARGIN = 0.1
DELTA = 0.4
# A policy beats another one by just the margin, is level with it, or loses by just the margin.
EDGE = (0.5 + MARGIN, 0.5, 0.5 - MARGIN)
Event = Callable[[Ledger], None]
# After how many comparisons an event comes.
Events = dict[int, Event]


@pytest.fixture(autouse=True)
def few_comparisons_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairwiseEvidence.__init__, "__defaults__", (0.0, FLAT))
    monkeypatch.setattr(pooled_evidence, "CONCENTRATION", FLAT)


@pytest.fixture
def capital_moves_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capital, "_MOMENTS", np.arange(1, 12) / 12)


def everywhere(ledger: Ledger, policy: int) -> tuple[np.ndarray, np.ndarray]:
    runs = np.arange(ledger.tally.n_runs)
    return runs, np.full(runs.size, policy)


def join(policy: int, *, renew: bool = False) -> Event:
    return lambda ledger: ledger.join(*everywhere(ledger, policy), renew=renew)


def leave(policy: int) -> Event:
    return lambda ledger: ledger.leave(*everywhere(ledger, policy))


def begin_stage(ledger: Ledger) -> None:
    ledger.begin_stage(np.arange(ledger.tally.n_runs))


def preferences(n: int, levels: tuple[float, ...] = EDGE) -> Iterator[np.ndarray]:
    """All matrices of win rates whose entries are among these."""
    for rates in product(levels, repeat=n * (n - 1) // 2):
        mu = np.full((n, n), 0.5)
        for (i, j), rate in zip(combinations(range(n), 2), rates, strict=True):
            mu[i, j], mu[j, i] = rate, 1.0 - rate
        yield mu


class Tree:
    """All histories of a few comparisons, side by side, with events at certain places.

    Parameters
    ----------
    n
        How many policies there are in all; the first `n_first` are there from the beginning.
    horizon
        How many comparisons.
    events
        The events after each number of comparisons.
    """

    def __init__(
        self,
        claim: Claim,
        n: int,
        n_first: int,
        horizon: int,
        events: Events,
        *,
        delta: float = DELTA,
        margin: float = MARGIN,
        capital_moves: bool = True,
    ) -> None:
        self.n, self.claim, self.delta, self.margin = n, claim, delta, margin
        here = set(range(n_first))
        self.pairs: list[list[tuple[int, int]]] = []
        for t in range(horizon):
            here |= _of("join", events, t)
            here -= _of("leave", events, t)
            self.pairs.append(list(combinations(sorted(here), 2)))
        choices = list(product(*(product(pairs, (1.0, 0.0)) for pairs in self.pairs)))
        tally = Tally.empty(n, len(choices))
        present = np.zeros((len(choices), n), dtype=bool)
        present[:, :n_first] = True
        tally.set_present(present)
        ledger = Ledger(
            Unstructured(n),
            tally,
            delta=delta,
            epsilon=margin,
            stopping="certified",
            claim=claim,
            watch_all=False,
            capital_moves=capital_moves,
        )
        # What there was after each comparison, and after the event that followed it.
        self.shots: list[tuple[dict, dict | None]] = []
        for t in range(horizon + 1):
            before, after = self.shot(ledger), None
            if t in events:
                events[t](ledger)
                after = self.shot(ledger)
            self.shots.append((before, after))
            if t < horizon:
                pair = np.array([choice[t][0] for choice in choices])
                outcome = np.array([choice[t][1] for choice in choices])
                ledger.record(pair[:, 0], pair[:, 1], outcome)

    def shot(self, ledger: Ledger) -> dict:
        shot = {"present": ledger.tally.present[0].copy(), "joined": ledger.tally.joined[0].copy()}
        if (proof := ledger.head_to_head()) is not None:
            stakes = proof.stakes
            excluded = np.zeros_like(stakes.log_share) if stakes.excluded is None else stakes.excluded
            shot |= {
                "capital": np.exp(stakes.log_share + proof.evidence.log_e),
                "account": stakes.account.copy(),
                "old": (excluded > 0) & (excluded < stakes.stage[:, None, None]),
                "proved": proof.proved(),
            }
        else:
            shot["capital"] = np.exp(ledger.rule.evidence)
            shot["named"] = ledger.named_if_any.copy()
        return shot

    def false_capital(self, shot: dict, mu: np.ndarray) -> np.ndarray:
        """Shape (R,): what false names have against the oldest that beats them, and other accounts."""
        total = np.zeros(len(shot["capital"]))
        here = np.flatnonzero(shot["present"])
        for b in here:
            worth = shot["account"][:, b]
            # The youngest first, so that the oldest that counts is taken.
            for k in here[::-1]:
                if k != b and mu[k, b] >= 0.5 + self.margin:
                    worth = np.where(shot["old"][:, k, b], worth, shot["capital"][:, k, b])
            total += worth
        beaten = mu[np.ix_(here, here)] >= 0.5 + self.margin
        if here.size == 2 and not shot["account"].any() and not beaten.any():
            # The two hold all against each other, and nothing of it is a false name's.
            total += 1.0
        return total

    def falsely_named(self, shot: dict, mu: np.ndarray) -> np.ndarray:
        """Shape (R,): 1 where a false name is proved."""
        here = shot["present"]
        false = (here[:, None] & (mu >= 0.5 + self.margin)).any(axis=0) & here
        return (shot["proved"] & false).any(axis=1).astype(float)

    def value(self, mu: np.ndarray, worth: Callable[[dict, np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """For each number of comparisons, after the event there, the largest mean when somebody stops.

        An error that has been made is counted and ends the game. Each has the histories so far.
        """
        values: list[np.ndarray] = []
        later: np.ndarray | None = None
        for t in range(len(self.shots) - 1, -1, -1):
            before, after = self.shots[t]
            stop = self._short(worth(after or before, mu), t)
            value = stop
            if later is not None:
                chance = np.array([[mu[i, j], mu[j, i]] for i, j in self.pairs[t]])
                means = (later.reshape(-1, len(self.pairs[t]), 2) * chance).sum(axis=2)
                value = np.maximum(stop, means.max(axis=1))
                value = np.where(stop >= 1.0 / self.delta - 1e-9, stop, value)
            values.append(value)
            later = value
            if after is not None:
                stop = self._short(worth(before, mu), t)
                later = np.where(stop >= 1.0 / self.delta - 1e-9, stop, np.maximum(stop, value))
        self.start = later
        return values[::-1]

    def _short(self, of_all: np.ndarray, t: int) -> np.ndarray:
        """Shape (m,): of each history so far, from one value of each run."""
        rest = int(np.prod([2 * len(pairs) for pairs in self.pairs[t:]], dtype=int))
        return of_all.reshape(-1, rest)[:, 0]


def _of(kind: str, events: Events, t: int) -> set[int]:
    """The policies that an event after t comparisons is about."""
    found: set[int] = set()
    if t in events:
        witness = _Witness()
        events[t](witness)
        found = witness.joined if kind == "join" else witness.left
    return found


class _Witness:
    """Notes who joins and who leaves."""

    def __init__(self) -> None:
        self.tally = Tally.empty(2)
        self.joined: set[int] = set()
        self.left: set[int] = set()

    def join(self, runs: np.ndarray, policy: np.ndarray, *, renew: bool) -> None:
        self.joined.add(int(policy[0]))

    def leave(self, runs: np.ndarray, policy: np.ndarray) -> None:
        self.left.add(int(policy[0]))

    def begin_stage(self, runs: np.ndarray) -> None:
        pass


def largest(tree: Tree, worth: Callable[[Tree, dict, np.ndarray], np.ndarray] = Tree.false_capital) -> float:
    """The largest mean over all laws on the edge."""
    most = 0.0
    for mu in preferences(tree.n):
        tree.value(mu, partial(worth, tree))
        most = max(most, float(tree.start.max()))
    return most


good_enough = partial(Tree, Claim.GOOD_ENOUGH)
LIVES = {
    "2 -> 3 at once": (3, 2, 4, {0: join(2)}),
    "2 -> 3": (3, 2, 4, {2: join(2)}),
    "3 -> 2": (3, 3, 4, {2: leave(1)}),
    "2 -> 3 -> 2": (3, 2, 5, {0: join(2), 4: leave(0)}),
    "2 -> 3 -> 2, the newcomer": (3, 2, 5, {1: join(2), 4: leave(2)}),
    "2 -> 4": (4, 2, 3, {1: join(2), 2: join(3)}),
}


class TestCapitalOfFalseNames:
    """Exactly, over all samplers, stopping times and laws on the edge."""

    @pytest.mark.parametrize("life", LIVES)
    def test_it_never_pays(self, life: str) -> None:
        tree = good_enough(*LIVES[life])
        assert largest(tree) == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("life", LIVES)
    @pytest.mark.usefixtures("capital_moves_each_time")
    def test_nor_where_capital_moves(self, life: str) -> None:
        assert largest(good_enough(*LIVES[life])) == pytest.approx(1.0, abs=1e-9)

    def test_without_a_margin(self) -> None:
        n, n_first, horizon, events = LIVES["2 -> 3"]
        tree = Tree(Claim.BEST, n, n_first, horizon, events, margin=0.0)
        tree.value(np.full((3, 3), 0.5), tree.false_capital)
        assert tree.start.max() == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("n_left", [2, 3])
    def test_a_new_stage_errs_as_rarely_given_all_before(self, n_left: int) -> None:
        """Begun at any history, with whichever champion."""
        events: Events = {2: join(3 if n_left == 3 else 2, renew=True)}
        tree = good_enough(*((4, 3, 4, events) if n_left == 3 else (3, 2, 4, events)))
        for mu in preferences(tree.n):
            after = tree.value(mu, tree.false_capital)[2]
            # Where the champion's exclusions stay, its conclusion errs if it is false.
            assert after.max() <= 1.0 + 1e-9

    @pytest.mark.parametrize("n", [2, 3])
    def test_nor_from_a_stage_on_whatever_the_tasks_were_before(self, n: int) -> None:
        """Only the law from there on decides what is false: the histories before are all looked at."""
        tree = good_enough(n, n, 6 if n == 2 else 4, {2: begin_stage})
        after = [tree.value(mu, tree.false_capital)[2].max() for mu in preferences(n)]
        assert max(after) == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("life", LIVES)
    def test_false_names_are_as_rare_as_promised(self, life: str) -> None:
        n, n_first, horizon, events = LIVES[life]
        tree = good_enough(n, n_first, horizon, events, delta=0.9)
        assert largest(tree, Tree.falsely_named) <= 0.9


class TestTheSearchFindsWhatIsWrong:
    def test_a_newcomer_with_capital_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        join_as_is = Stakes.join

        def rich(own: Stakes, runs: np.ndarray, n: np.ndarray, log_e: np.ndarray) -> None:
            join_as_is(own, runs, n, log_e)
            own.log_share[runs, n] = 0.0

        monkeypatch.setattr(Stakes, "join", rich)
        assert largest(good_enough(*LIVES["2 -> 3"])) > 1.5

    def test_a_gift_that_nobody_paid_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        take = Stakes._take

        def taken_for_nothing(own: Stakes, runs: np.ndarray, *given: np.ndarray) -> tuple:
            return own.log_share[runs], own.account[runs], take(own, runs, *given)[2]

        monkeypatch.setattr(Stakes, "_take", taken_for_nothing)
        assert largest(good_enough(*LIVES["2 -> 3"])) > 1.02

    @pytest.mark.parametrize("life", ["3 -> 2", "2 -> 3 -> 2"])
    def test_a_retirement_without_a_cap(self, life: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Stakes, "cap", lambda *given: None)
        assert largest(good_enough(*LIVES[life])) > 1.01

    def test_a_stage_that_counts_what_was_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        prices = HeadToHead._prices
        monkeypatch.setattr(HeadToHead, "_prices", lambda *given: 0.5 * prices(*given))
        tree = good_enough(3, 3, 4, {2: begin_stage})
        assert max(tree.value(mu, tree.false_capital)[2].max() for mu in preferences(3)) > 1.02

    def test_a_stage_that_gives_too_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capital, "KEPT_FOR_NEWCOMERS", 0.2)
        monkeypatch.setattr(capital, "_SHARES_WITH_MARGIN", (0.5, 0.6))
        tree = good_enough(4, 3, 4, {2: join(3, renew=True)})
        assert max(tree.value(mu, tree.false_capital)[2].max() for mu in preferences(4)) > 1.02


class OneBest(Tree):
    """The same under "best_if_any"."""

    def worth_of(self, mu: np.ndarray) -> float:
        """The largest mean of the evidence against the policy that beats all others, frozen where it ends."""
        frozen: np.ndarray | float = 1.0
        worths: dict[int, np.ndarray] = {}
        for before, after in self.shots:
            worths[id(before)] = self._of_best(before, mu, frozen)
            if after is not None:
                frozen = worths[id(before)]
                worths[id(after)] = self._of_best(after, mu, frozen)
        self.value(mu, lambda shot, _: worths[id(shot)])
        return float(self.start.max())

    def _of_best(self, shot: dict, mu: np.ndarray, frozen: np.ndarray | float) -> np.ndarray:
        joined = np.flatnonzero(shot["joined"])
        for k in joined:
            if all(mu[k, j] >= 0.5 + self.margin for j in joined if j != k):
                return shot["capital"][:, k]
        return np.zeros(len(shot["capital"])) + frozen


def largest_of_best(n: int, n_first: int, horizon: int, events: Events) -> float:
    tree = OneBest(Claim.BEST_IF_ANY, n, n_first, horizon, events)
    levels = EDGE if n == 3 else (EDGE[0], EDGE[-1])
    return max(tree.worth_of(mu) for mu in preferences(n, levels))


class TestTheBestIfAny:
    @pytest.mark.parametrize(
        "life",
        [
            (3, 2, 4, {2: join(2)}),
            (3, 2, 5, {3: join(2)}),
            (4, 2, 3, {1: join(2), 2: join(3)}),
            (4, 2, 4, {2: join(2), 3: join(3)}),
            (3, 3, 4, {2: leave(0)}),
        ],
    )
    def test_its_evidence_never_pays(self, life: tuple) -> None:
        assert largest_of_best(*life) == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("events", [{}, {2: join(2)}])
    def test_false_names_are_as_rare_as_promised(
        self, events: Events, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A name stays, so this is the chance that one is ever given."""
        monkeypatch.setattr(evidence, "MIN_HEAD_TO_HEAD", 1)
        tree = OneBest(Claim.BEST_IF_ANY, 3, 2 if events else 3, 4, events, delta=0.8)

        def falsely_named(shot: dict, mu: np.ndarray) -> np.ndarray:
            joined = np.flatnonzero(shot["joined"])
            best = [k for k in joined if all(mu[k, j] >= 0.5 + MARGIN for j in joined if j != k)]
            false = sorted(set(joined) - set(best)) if best else []
            return np.isin(shot["named"], false).astype(float)

        most = 0.0
        for mu in preferences(3):
            tree.value(mu, falsely_named)
            most = max(most, float(tree.start.max()))
        assert 0.05 < most <= 0.8

    def test_late_losses_undo_no_name(self) -> None:
        """As of pairs that were open at the conclusion, also with a policy that has left since."""
        life = Life(claim=Claim.BEST_IF_ANY)
        life.go_on(4000)
        design = life.design
        late = [design.show(0, rival) for rival in (1, 2, 3) for _ in range(200)]
        said = design.decision.conclusions
        design.retire(3)
        for showing in late:
            design.end(showing, 0.0)
        assert design.win_rate[0, 1] < 0.5
        assert (design.stopped, design.decision.best) == (True, 0)
        assert design.decision.claims[0].holds
        assert design.decision.conclusions == said
        assert same(Design.from_state(design.space, json.loads(json.dumps(design.state()))), design)
        design.add()
        assert not design.stopped

    def test_a_newcomer_that_begins_with_1_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_is = StreamedEvidence.join

        def whole(own: StreamedEvidence, runs: np.ndarray, n: np.ndarray, out: np.ndarray) -> None:
            as_is(own, runs, n, np.ones_like(out))
            own.log_least[:] = 0.0

        monkeypatch.setattr(StreamedEvidence, "join", whole)
        assert largest_of_best(3, 2, 4, {3: join(2)}) > 1.1

    def test_and_one_that_forgets_earlier_arrivals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_is = StreamedEvidence.join

        def only_now(own: StreamedEvidence, runs: np.ndarray, n: np.ndarray, out: np.ndarray) -> None:
            own.log_least[:] = 0.0
            as_is(own, runs, n, out)

        monkeypatch.setattr(StreamedEvidence, "join", only_now)
        assert largest_of_best(4, 2, 3, {1: join(2), 3: join(3)}) > 1.005


STRENGTHS = np.array([0.6, 0.2, -0.2, -0.6, 1.5, 0.3])
RULES = {"claim": "good_enough", "epsilon": 0.05}


class Life:
    """A design whose people answer by strengths, and the log of all that happened to it."""

    def __init__(self, n: int = 4, **rules: object) -> None:
        self.design = Design(Unstructured(n), seed=1, **(RULES | rules))
        self.rng = np.random.default_rng(5)
        self.judgments: list[tuple[int, int, float]] = []

    def outcome(self, i: int, j: int) -> float:
        return float(self.rng.random() < 1.0 / (1.0 + np.exp(STRENGTHS[j] - STRENGTHS[i])))

    def go_on(self, most: int) -> None:
        while most and not self.design.stopped:
            i, j = self.design.ask()
            self.judgments.append((i, j, self.outcome(i, j)))
            self.design.tell(*self.judgments[-1])
            most -= 1

    def losers_leave(self) -> None:
        for policy in np.flatnonzero(self.design.present).tolist():
            if policy != self.design.decision.best:
                self.design.retire(policy)


def same(one: Design, other: Design) -> bool:
    """Whether two designs are equal to the last bit, but for what their sampler draws."""
    states = [design.state() | {"rng": None, "in_flight": None, "memory": None} for design in (one, other)]
    return json.dumps(states[0]) == json.dumps(states[1]) and one.decision == other.decision


@pytest.mark.parametrize("claim", list(Claim))
@pytest.mark.parametrize("missing", ["against", "answers"])
def test_replay_and_stored_states_agree_to_the_last_bit(claim: Claim, missing: str) -> None:
    """With showings that overlap, answers taken back, arrivals and retirements between them."""
    rules = {"claim": claim, "epsilon": 0.05, "missing": missing}
    life, rng = Life(**rules), np.random.default_rng(2)
    live, steps, pairs = life.design, [], {}
    open_ones: list[int] = []

    def do(what: str, *given: object, **more: object) -> None:
        steps.append((what, given, more))
        getattr(live, what)(*given, **more)

    for step in range(160):
        if step in (40, 90):
            do("add", parent=0)
        if step in (60, 120):
            do("retire", 1 if step == 60 else 4)
        if step in (75, 105):
            do("withhold_claims" if step == 75 else "allow_claims")
        if len(open_ones) < 3:
            pairs[step] = live.ask()
            do("show", *pairs[step], step)
            open_ones.append(step)
            continue
        number = open_ones.pop(int(rng.integers(3)))
        do("end", number, None if rng.random() < 0.05 else life.outcome(*pairs[number]))
        if rng.random() < 0.1:
            do("reopen", number)
            do("end", number, life.outcome(*pairs[number]))
        if step % 17 == 0:
            stored = json.loads(json.dumps(live.state()))
            assert same(Design.from_state(live.space, stored), live)
    again = Design(Unstructured(4), seed=1, **(RULES | rules))
    for what, given, more in steps:
        getattr(again, what)(*given, **more)
    assert same(again, live)
    kinds = [event["kind"] for event in live.events]
    assert kinds == ["added", "retired", "withheld", "added", "allowed", "retired"]


class TestALife:
    def test_challenges_after_conclusions(self) -> None:
        life = Life()
        design = life.design
        life.go_on(3000)
        assert design.decision.best == 0
        life.losers_leave()
        assert design.stopped
        assert design.decision.conclusions[0].among == (0, 1, 2, 3)
        with pytest.raises(ValueError, match="add another one"):
            design.ask()
        assert design.add("Challenger", parent=0) == 4
        assert not design.stopped
        life.go_on(3000)
        first, second = design.decision.conclusions
        assert (first.policy, first.stage, first.joint_risk) == (0, 1, design.delta)
        assert (second.policy, second.stage, second.among) == (4, 2, (0, 4))
        assert (second.risk, second.joint_risk) == (design.delta, 2 * design.delta)
        assert len(life.judgments) == design.n_comparisons
        again = Design.replay(Unstructured(4), life.judgments, events=design.events, seed=1, **RULES)
        assert same(again, design)
        places = {row.policy: row.place for row in design.ranking()}
        assert places[4] is Place.LEADS
        assert places[1] is Place.RETIRED

    @pytest.mark.parametrize("withheld", [True, False])
    def test_who_comes_and_goes_adds_no_conclusion_while_claims_are_withheld(self, withheld: bool) -> None:
        life = Life()
        design = life.design
        life.go_on(3000)
        if withheld:
            design.withhold_claims()
            assert not design.stopped
            assert not any(claim.holds for claim in design.decision.claims)
        for _ in range(3):
            challenger = design.add(parent=0)
            for _ in range(6):
                life.judgments.append((challenger, 0, 0.0))
                design.tell(*life.judgments[-1])
            design.retire(challenger)
        if withheld:
            assert len(design.decision.conclusions) == 1
            design.allow_claims()
            assert design.stopped
        risks = [each.joint_risk for each in design.decision.conclusions]
        assert risks == pytest.approx([n * design.delta for n in ((1, 2) if withheld else (1, 2, 3, 4))])
        again = Design.replay(Unstructured(4), life.judgments, events=design.events, seed=1, **RULES)
        assert same(again, design)

    @pytest.mark.parametrize("claim", list(Claim))
    def test_what_would_hold_is_open_in_every_word_while_claims_are_withheld(self, claim: Claim) -> None:
        life = Life(claim=claim)
        life.go_on(4000)
        life.design.withhold_claims()
        decision = life.design.decision
        assert decision.open == (1, 2, 3)
        assert {each.open for each in decision.claims} == {(1, 2, 3)}
        assert life.design.remaining is None

    @pytest.mark.parametrize("space", [Unstructured(4), Factorial({"a": "uv", "b": "xy"})])
    @pytest.mark.parametrize("claim", list(Claim))
    def test_what_is_stored_while_claims_are_withheld_is_the_same(self, claim: Claim, space: Space) -> None:
        """Also where nobody has joined or left."""
        life = Life(claim=claim)
        life.design = Design(space, **RULES | {"claim": claim})
        life.go_on(30)
        life.design.withhold_claims()
        for act in (lambda: life.go_on(5), life.design.allow_claims, lambda: life.go_on(5)):
            stored = json.loads(json.dumps(life.design.state()))
            assert same(Design.from_state(life.design.space, stored), life.design)
            act()

    def test_nor_is_it_said_then_that_none_is_best(self) -> None:
        design = Design(Unstructured(3), claim=Claim.BEST_IF_ANY)
        while not design.stopped:
            for i in range(3):
                design.tell(i, (i + 1) % 3, 1.0)
        assert design.decision.claims[0].policy is None
        design.withhold_claims()
        assert design.decision.claims[0].policy is not None
        design.allow_claims()
        assert design.decision.claims[0].policy is None
        assert len(design.decision.conclusions) == 1

    @pytest.mark.parametrize("withheld", [True, False])
    def test_another_one_that_is_named_as_the_first_leaves_is_a_conclusion(self, withheld: bool) -> None:
        design = Design(Unstructured(3), claim=Claim.GOOD_ENOUGH, epsilon=0.2)
        while not all(design.proves(Claim.GOOD_ENOUGH, policy) for policy in (0, 1)):
            for i, j, outcome in ((0, 2, 1.0), (1, 2, 1.0), (0, 1, 0.5)):
                design.tell(i, j, outcome)
        first = design.decision.best
        if withheld:
            design.withhold_claims()
        design.retire(first)
        if withheld:
            design.allow_claims()
        assert design.stopped
        assert [each.policy for each in design.decision.conclusions] == [first, 1 - first]
        design.retire(2)
        assert len(design.decision.conclusions) == 2

    def test_a_challenge_takes_what_two_policies_alone_would(self) -> None:
        life = Life()
        life.go_on(3000)
        life.losers_leave()
        life.design.add(parent=0)
        before = len(life.judgments)
        life.go_on(3000)
        alone = Design(Unstructured(2), **RULES)
        for i, _, outcome in life.judgments[before:]:
            assert not alone.stopped
            alone.tell(int(i == 4), int(i != 4), outcome)
        assert alone.stopped
        assert alone.decision.best == int(life.design.decision.best == 4)

    def test_expected_strengths_of_the_first_are_enough_to_go_on(self) -> None:
        prior = [0.5, 0.0, -0.2, -0.3]
        life = Life(prior_strengths=prior)
        life.go_on(30)
        life.design.add(parent=0)
        life.design.add()
        life.go_on(30)
        progress = json.loads(json.dumps(life.design.progress))
        stored = Design.from_counts(
            life.design.space,
            life.design.wins,
            progress=progress,
            labels=life.design.labels,
            prior_strengths=prior,
            **RULES,
        )
        assert same(stored, life.design)

    def test_losers_who_stay_lend_their_exclusions(self) -> None:
        life = Life()
        life.go_on(3000)
        life.design.add(parent=0)
        life.go_on(3000)
        conclusion = life.design.decision.conclusions[-1]
        assert conclusion.among == (0, 1, 2, 3, 4)
        # A newcomer that is named has excluded all by itself, the champion all but the newcomer before.
        assert conclusion.risk == (1 if conclusion.policy == 4 else 2) * life.design.delta

        [goal] = [each for each in life.design.decision.claims if each.claim is Claim.GOOD_ENOUGH]
        assert goal.n_stages * life.design.delta == conclusion.risk
        assert goal.risk == pytest.approx(1.0 - life.design.decision.confidence)
        assert goal.risk <= conclusion.risk

    def test_a_name_that_uses_an_earlier_stage_has_its_risk_as_well(self) -> None:
        design = Design(Unstructured(3), **RULES)
        while not design.stopped:
            design.tell(0, 1, 1.0)
            design.tell(0, 2, 1.0)
        design.add()
        while not design.stopped:
            design.tell(0, 3, 1.0)
        decision = design.decision
        assert decision.conclusions[-1].risk == 2 * design.delta
        assert decision.claims[0].n_stages == 2
        assert design.delta < 1.0 - decision.confidence <= 2 * design.delta
        assert decision.joint_risk >= (len(decision.claims) + 1) * design.delta

    def test_what_a_slip_excluded_is_open_again(self) -> None:
        design = Design(Unstructured(3), **RULES)
        design.add()
        showing = 0
        while 1 in design.decision.open or not showing:
            showing = design.show(0, 1)
            design.end(showing, 1.0)
        assert design.decision.best == 0
        design.reopen(showing)
        design.end(showing, 0.0)
        assert 1 in design.decision.open
        design.reopen(showing)
        design.end(showing, 1.0)
        assert 1 not in design.decision.open

    @pytest.mark.parametrize(("claim", "strict"), [("good_enough", True), ("best_if_any", False)])
    def test_one_risk_for_ever(self, claim: str, strict: bool) -> None:
        life = Life(claim=claim, strict=strict)
        life.go_on(4000)
        life.losers_leave()
        life.design.add()
        life.go_on(4000)
        conclusions = life.design.decision.conclusions
        assert [each.policy for each in conclusions] == [0, 4]
        assert {(each.risk, each.joint_risk) for each in conclusions} == {(0.05, 0.05)}
        assert conclusions[1].among == ((0, 4) if strict else (0, 1, 2, 3, 4))

    @pytest.mark.parametrize("claim", list(Claim))
    def test_an_arrival_changes_nothing_for_the_others(self, claim: Claim) -> None:
        life = Life(claim=claim)
        life.go_on(50)
        life.design.show(0, 1)
        before = life.design.evidence
        newcomer = life.design.add()
        after = life.design.evidence
        assert after[:4] == pytest.approx(before, abs=1e-12)
        assert after[newcomer] == pytest.approx(min(0.0, before.min()), abs=1e-12)

    def test_a_stage_that_is_given_up_adds_its_risk(self) -> None:
        life = Life()
        life.go_on(30)
        life.design.begin_stage()
        assert life.design.decision.claims[0].risk == 1.0
        life.go_on(4000)
        life.design.begin_stage()
        life.go_on(4000)
        first, second = life.design.decision.conclusions
        delta = life.design.delta
        assert (first.stage, first.risk, first.joint_risk) == (2, 2 * delta, 2 * delta)
        assert (second.stage, second.risk, second.joint_risk) == (3, delta, 3 * delta)
        again = Design.replay(Unstructured(4), life.judgments, events=life.design.events, **RULES)
        assert again.decision == life.design.decision
        assert same(
            Design.from_state(life.design.space, json.loads(json.dumps(life.design.state()))), life.design
        )

    @pytest.mark.parametrize(
        "settings", [{"strict": True}, {"claim": "best_if_any"}, {"capital_moves": False}]
    )
    def test_without_stages_none_begins(self, settings: dict) -> None:
        with pytest.raises(ValueError, match="no stages"):
            Design(Unstructured(3), **RULES | settings).begin_stage()

    def test_nobody_asks_for_who_has_left(self) -> None:
        for claim, sampler in product(Claim, ("balanced", "random", "rucb", "tracking")):
            design = Design(Unstructured(4), claim=claim, epsilon=0.05, sampler=sampler, seed=1)
            life = Life()
            for _ in range(30):
                i, j = design.ask()
                design.tell(i, j, life.outcome(i, j))
            design.retire(2)
            newcomer = design.add()
            asked = set()
            for _ in range(60):
                i, j = design.ask()
                asked |= {i, j}
                design.tell(i, j, life.outcome(i, j))
            assert asked <= {0, 1, 3, newcomer}
            assert newcomer in asked

    def test_the_prefix_that_is_judged_has_the_events_that_came_before(self) -> None:
        life = Life()
        life.go_on(20)
        life.design.add()
        life.go_on(20)
        events = life.design.events
        before, at = (
            Design.replay(Unstructured(4), life.judgments[:n], events=events, **RULES) for n in (19, 20)
        )
        assert (before.n_policies, at.n_policies) == (4, 5)

    @pytest.mark.parametrize(
        ("act", "message"),
        [
            (lambda design: design.retire(7), "numbered 0 to 1"),
            (lambda design: [design.retire(0), design.retire(1)], "the only one"),
            (lambda design: [design.add(), design.retire(0), design.retire(0)], "not present"),
            (lambda design: design.add("policy 1"), "no two the same"),
            (lambda design: design.add(parent=2), "numbered 0 to 1"),
            (lambda design: design.happen({"kind": "moved"}), "an event is"),
            (lambda design: [design.withhold_claims(), design.withhold_claims()], "withheld already"),
            (lambda design: design.allow_claims(), "not withheld"),
        ],
    )
    def test_what_cannot_be_is_refused(self, act: Callable[[Design], object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            act(Design(Unstructured(2), **RULES))

    def test_without_a_claim_the_policies_are_fixed(self) -> None:
        with pytest.raises(ValueError, match="are fixed"):
            Design(Unstructured(3), stopping="heuristic").add()


def test_the_only_answer_of_a_bradley_terry_space_is_taken_back() -> None:
    design = Design(Factorial({"prompt": ["a", "b"], "model": ["x", "y"]}))
    showing = design.show(0, 1)
    design.end(showing, 0.0)
    design.reopen(showing)
    assert same(Design.from_state(design.space, json.loads(json.dumps(design.state()))), design)
    assert design.evidence.tolist() == [0.0] * 4


def test_a_life_in_a_bradley_terry_space_keeps_its_prior_and_one_risk() -> None:
    space = Factorial({"tone": ["warm", "dry"], "length": ["short", "long"]})
    worth = {"warm": 0.5, "dry": 0.0, "short": 0.3, "long": 0.0, "odd": 1.4}
    design, rng, judgments = Design(space, seed=1, **RULES), np.random.default_rng(3), []

    def go_on() -> None:
        while not design.stopped:
            i, j = design.ask()
            a, b = (sum(worth[level] for level in design.space.policies[k]) for k in (i, j))
            judgments.append((i, j, float(rng.random() < 1.0 / (1.0 + np.exp(b - a)))))
            design.tell(*judgments[-1])

    go_on()
    for loser in range(1, 4):
        design.retire(loser)
    assert design.add(parent=0, row=("odd", "short")) == 4
    assert design.labels[4] == "odd, short"
    old = [design.space.columns.index(name) for name in space.columns]
    assert np.array_equal(design.space.precision[np.ix_(old, old)], space.precision)
    go_on()
    assert [each.policy for each in design.decision.conclusions] == [0, 4]
    assert {each.joint_risk for each in design.decision.conclusions} == {0.05}
    assert same(Design.replay(space, judgments, events=design.events, seed=1, **RULES), design)
    assert same(Design.from_state(design.space, json.loads(json.dumps(design.state()))), design)
    with pytest.raises(ValueError, match="needs its levels"):
        design.add()
    with pytest.raises(ValueError, match="have the same features"):
        design.add("again", row=("odd", "short"))


class TestWithoutReplacement:
    """Where no capital moves, a part is kept for who joins."""

    def test_it_never_pays(self) -> None:
        def fixed(n: int, n_first: int, horizon: int, events: Events) -> float:
            tree = good_enough(n, n_first, horizon, events, capital_moves=False)
            return largest(tree)

        for life in ("2 -> 3", "3 -> 2", "2 -> 3 -> 2", "2 -> 4"):
            assert 0.8 < fixed(*LIVES[life]) <= 1.0 + 1e-9

    def test_a_newcomer_may_be_named(self) -> None:
        life = Life(capital_moves=False)
        life.go_on(30)
        life.design.add()
        life.go_on(4000)
        assert life.design.decision.best == 4
        assert life.design.stopped


class TestSuccession:
    """The champion beats the original: exactly, over all champions, moments and laws on the edge."""

    @staticmethod
    def largest_mean(horizon: int = 6, n_champions: int = 3) -> float:
        @lru_cache(None)
        def value(rate: float, account: float, won: int, lost: int, champions: int, left: int) -> float:
            own = Succession()
            own.log_account, own.won, own.lost = account, float(won), float(lost)
            best = float(np.exp(own.log_e if rate <= 0.5 else account))
            if left:
                better, worse = (
                    value(rate, account, won + more, lost + 1 - more, champions, left - 1) for more in (1, 0)
                )
                best = max(best, rate * better + (1 - rate) * worse)
            if champions < n_champions:
                own.hand_over()
                least = round(own.log_account, 12)
                best = max(best, *(value(new, least, 0, 0, champions + 1, left) for new in (0.5, 0.7)))
            return best

        return max(value(rate, 0.0, 0, 0, 1, horizon) for rate in (0.5, 0.7))

    @pytest.fixture(autouse=True)
    def few_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(succession, "CONCENTRATION", FLAT)

    def test_a_false_word_never_pays(self) -> None:
        assert self.largest_mean() == pytest.approx(1.0, abs=1e-9)

    def test_the_search_finds_capital_that_is_carried_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def carried(own: Succession) -> None:
            own.log_account, own.won, own.lost = own.log_e, 0.0, 0.0

        monkeypatch.setattr(Succession, "hand_over", carried)
        assert self.largest_mean() > 1.5

    def test_a_champion_that_wins_is_certified_and_bounded(self) -> None:
        chain = Succession()
        for k in range(60):
            chain.tell(float(k % 4 > 0))
        assert chain.holds
        assert 0.5 < chain.win_rate_at_least < 0.75
        before = chain.log_e
        chain.tell(None)
        assert chain.log_e < before
        chain.hand_over()
        assert (chain.log_account, chain.log_e, chain.win_rate_at_least) == (0.0, 0.0, 0.0)
        with pytest.raises(ValueError, match="must lie in"):
            chain.tell(2.0)


@pytest.mark.parametrize("claim", list(Claim))
def test_what_is_still_needed_is_about_those_who_are_present(claim: Claim) -> None:
    life = Life(claim=claim)
    life.go_on(40)
    all_four = life.design.remaining
    life.design.retire(1)
    life.design.retire(2)
    two = life.design.remaining
    assert two.high < all_four.high
    life.design.add(parent=0)
    assert life.design.remaining.high > two.high
