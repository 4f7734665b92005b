"""Showings that begin, end, change and are taken back, in any order."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import BradleyTerry, Claim, Design, Unstructured
from engine.core.bernoulli import log_e_value

Event = tuple[Any, ...]
# Also of three people together, whose sums no binary number holds.
outcomes = st.sampled_from([0.0, 0.5, 1.0, 1 / 3, 0.1])
ends = st.none() | outcomes
# What happens next, and to which pair or showing: the number is taken modulo how many there are.
steps = st.lists(
    st.tuples(
        st.sampled_from(["show", "show", "end", "end", "end", "again", "reopen", "revise", "tell", "store"]),
        st.integers(0, 10**6),
        ends,
    ),
    max_size=40,
)
rules = st.fixed_dictionaries(
    {
        "claim": st.sampled_from(list(Claim)),
        "missing": st.sampled_from(["against", "answers"]),
        "epsilon": st.just(0.05),
        "delta": st.sampled_from([0.05, 0.4]),
    }
)
spaces = st.integers(2, 6).map(Unstructured) | st.just(BradleyTerry.one_hot(4))


def event(design: Design, step: tuple[str, int, float | None]) -> Event | None:
    """The call that a step stands for; None where there is nothing that it could be about."""
    name, number, outcome = step
    pairs = list(combinations(range(design.n_policies), 2))
    if name == "show":
        return "show", *pairs[number % len(pairs)]
    if name == "tell":
        return "tell", *pairs[number % len(pairs)], outcome
    if name == "store":
        return ("store",)
    of = [n for n in design._showings if (n in design.open_showings) == (name == "end")]
    if name == "revise":
        of = [n for n in of if design.showing(n)["outcome"] is not None]
    if not of:
        return None
    showing = of[number % len(of)]
    return ("reopen", showing) if name == "reopen" else ("end" if name == "again" else name, showing, outcome)


def happened(design: Design, steps: Sequence[tuple[str, int, float | None]]) -> list[Event]:
    """The events of these steps, which the design is told of."""
    events = []
    for step in steps:
        if (each := event(design, step)) is not None:
            events.append(each)
            if each[0] != "store":
                getattr(design, each[0])(*each[1:])
    return events


def stored(design: Design, rules: dict[str, Any], *, whole: bool) -> Design:
    """The design again from what a program would keep: its state, or its progress and what has ended."""
    if whole:
        return Design.from_state(design.space, json.loads(json.dumps(design.state())))
    progress = json.loads(json.dumps(design.progress))
    again = Design.from_counts(design.space, design.wins, progress=progress, **rules)
    for showing in design._showings:
        if showing not in design.open_showings:
            again.remember(showing, json.loads(json.dumps(design.showing(showing))))
    return again


def seen(design: Design) -> str:
    """Everything about it, to the bit."""
    shown = {n: design.showing(n) for n in sorted(design._showings)}
    progress = design.progress | {"showings": None}
    decision, ranking = asdict(design.decision), repr(design.ranking())
    return json.dumps([design.wins.tolist(), progress, shown, decision, ranking])


@settings(max_examples=60)
@given(spaces, rules, steps, st.booleans())
def test_a_replay_and_a_design_that_was_stored_are_the_same_bit_by_bit(
    space: Any, rules: dict[str, Any], steps: Any, whole: bool
) -> None:
    first = Design(space, **rules)
    events = happened(first, steps)
    again = Design(space, **rules)
    for name, *about in events:
        if name == "store":
            again = stored(again, rules, whole=whole)
        else:
            getattr(again, name)(*about)
    assert seen(again) == seen(first)


@settings(max_examples=60)
@given(spaces, rules, steps)
def test_a_proof_counts_each_showing_once_and_never_for_the_claim(
    space: Any, rules: dict[str, Any], steps: Any
) -> None:
    design = Design(space, **rules)
    happened(design, steps)
    tally = design._tally
    counted = tally.proof_wins + tally.proof_losses
    shown = tally.counts + (rules["missing"] == "against") * (tally.open + tally.missing)
    assert counted == pytest.approx(shown, abs=1e-9)
    assert np.all(tally.proof_wins >= tally.wins - 1e-9)
    assert np.all(tally.proof_losses <= np.swapaxes(tally.wins, 1, 2) + 1e-9)
    assert tally.open.sum() == 2 * len(design.open_showings)
    n_missing = sum(each["outcome"] is None for each in map(design.showing, design._showings))
    untold = sum(name == "tell" and outcome is None for name, _, outcome in steps)
    assert design.n_missing == n_missing - len(design.open_showings) + untold
    assert design.n_comparisons == pytest.approx(tally.wins.sum())


@settings(max_examples=40)
@given(spaces, rules, steps, ends)
def test_what_is_left_out_by_hand_changes_estimates_and_no_evidence(
    space: Any, rules: dict[str, Any], steps: Any, outcome: float | None
) -> None:
    design = Design(space, **rules)
    happened(design, [step for step in steps if step[0] != "revise"])
    told = [n for n in design._showings if design.showing(n)["outcome"] is not None]
    before, wins = design.progress, np.zeros((space.n_policies,) * 2)
    for showing in told:
        design.revise(showing, outcome)
        i, j = design.showing(showing)["pair"]
        if outcome is not None:
            wins[i, j] += outcome
            wins[j, i] += 1.0 - outcome
    after = design.progress
    assert before | {"left_out": None} == after | {"left_out": None}
    told_at_once = sum((design.showing(n)["outcome"] is not None) for n in told)
    if told_at_once == design.n_comparisons:
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(design.win_rate, wins / (wins + wins.T), atol=1e-5)
    for showing in told:
        design.revise(showing, design.showing(showing)["outcome"])
    assert design.progress == before


@settings(max_examples=40)
@given(st.integers(2, 6), rules, st.lists(st.tuples(st.integers(0, 10**6), ends), max_size=40))
def test_where_answers_alone_count_the_rest_was_never_shown(
    n_policies: int, rules: dict[str, Any], told: list[tuple[int, float | None]]
) -> None:
    pairs = list(combinations(range(n_policies), 2))
    judgments = [(*pairs[number % len(pairs)], outcome) for number, outcome in told]
    rules = rules | {"missing": "answers"}
    design = Design.replay(Unstructured(n_policies), judgments, **rules)
    answered = [judgment for judgment in judgments if judgment[2] is not None]
    alone = Design.replay(Unstructured(n_policies), answered, **rules)
    assert design.n_missing == len(judgments) - len(answered)
    assert design.decision == alone.decision
    for each in (design, alone):
        each.show(0, 1)
    assert design.evidence.tolist() == alone.evidence.tolist()
    against = Design.replay(Unstructured(n_policies), answered, **rules | {"missing": "against"})
    assert against.evidence.tolist() == alone.evidence.tolist()


@settings(max_examples=40)
@given(st.integers(2, 6), rules, steps)
def test_it_is_settled_without_open_ones_as_if_they_had_never_begun(
    n_policies: int, rules: dict[str, Any], steps: Any
) -> None:
    rules = rules | {"delta": 0.4}
    live = Design(Unstructured(n_policies), **rules)
    events = happened(live, [*steps, *(("tell", 0, 1.0),) * 4])
    is_open = live.open_showings
    never = Design(Unstructured(n_policies), **rules)
    number: dict[int, int] = {}
    begun = 0
    for name, *about in events:
        if name == "show":
            if begun not in is_open:
                number[begun] = never.show(*about)
            begun += 1
        elif name == "tell":
            never.tell(*about)
        elif name != "store" and about[0] in number:
            getattr(never, name)(number[about[0]], *about[1:])
    # By what is known now: a moment ago it may have been settled.
    progress = {
        "streams": never.progress["streams"],
        "peak_evidence": live.peak_evidence,
        "named": live.named,
    }
    now = Design.from_counts(Unstructured(n_policies), never.wins, progress=progress, **rules)
    before = live.state()
    assert live.settled_without(is_open) == now.stopped
    assert live.state() == before


class TestByAnswers:
    """The reach of the answers alone, against all ways to fill in what is missing."""

    @staticmethod
    def log_e(won: float, lost: float, missing: int, gamma: float, null: float, *, narrow: bool) -> float:
        share = gamma * null / (1.0 - null + gamma * null)
        total = 0.0
        for wins in range(missing + 1):
            chance = math.comb(missing, wins) * share**wins * (1.0 - share) ** (missing - wins)
            [log_e] = log_e_value(won + wins, lost + missing - wins, null, 20.0, narrow=narrow)
            total += chance * math.exp(log_e)
        return math.log(total)

    def holds(self, design: Design, b: int, gamma: float) -> bool:
        K, tally = design.n_policies, design._tally
        everybody, wins, missing = set(range(K)), tally.wins[0], tally.missing[0].astype(int)

        def against(k: int, b: int, null: float, *, narrow: bool) -> float:
            return self.log_e(wins[k, b], wins[b, k], missing[k, b], gamma, null, narrow=narrow)

        needed = -math.log(design.delta)
        if design.claim is Claim.BEST_IF_ANY:
            return all(
                np.logaddexp.reduce([against(k, other, 0.55, narrow=True) for other in everybody - {k}])
                >= needed + math.log(K - 1)
                for k in everybody - {b}
            )
        null = 0.55 if design.claim is Claim.GOOD_ENOUGH else 0.5
        names = 1 if K == 2 and null > 0.5 else K
        return all(against(k, b, null, narrow=False) >= needed + math.log(names) for k in everybody - {b})

    @pytest.mark.parametrize("claim", list(Claim))
    @pytest.mark.parametrize("missing", ["against", "answers"])
    def test_the_factor_is_the_largest_at_which_the_claim_holds(self, claim: Claim, missing: str) -> None:
        rng, found = np.random.default_rng(3), []
        for _ in range(30):
            K = int(rng.integers(2, 5))
            counts = np.triu(rng.integers(5, 60, (K, K)), 1).astype(float)
            won = rng.binomial(counts.astype(int), 0.8)
            rules = {"claim": claim, "epsilon": 0.05, "delta": 0.2, "missing": missing}
            design = Design.from_counts(Unstructured(K), won + (counts - won).T, **rules)
            for i, j in combinations(range(K), 2):
                design.tell_many([(i, j, None)] * int(rng.integers(0, 8)))
            answers = design.by_answers()
            found.append(None if answers is None else answers.gamma)
            if answers is None:
                leader = design._ledger.leader()[0]
                assert not self.holds(design, leader, 1.0) or claim is Claim.BEST_IF_ANY
                continue
            assert self.holds(design, answers.policy, 1.0)
            if math.isinf(answers.gamma):
                assert self.holds(design, answers.policy, 1e12)
            else:
                assert self.holds(design, answers.policy, answers.gamma * (1 - 1e-4))
                assert not self.holds(design, answers.policy, answers.gamma * (1 + 1e-4))
        assert len({None if each is None else math.isinf(each) for each in found}) == 3

    def test_what_is_open_counts_against_it(self) -> None:
        design = Design(Unstructured(2), claim="good_enough", epsilon=0.05, missing="answers")
        design.tell_many([(0, 1, 1.0)] * 30)
        before = design.by_answers()
        assert before is not None
        assert (before.policy, before.gamma) == (0, math.inf)
        for _ in range(30):
            design.show(0, 1)
        assert design.by_answers() is None

    def test_before_the_first_answer_it_names_nobody(self) -> None:
        assert Design(Unstructured(3)).by_answers() is None


class TestEnds:
    def told(self, *ends: float | None, **bounds: float) -> Design:
        design = Design(Unstructured(2), claim="good_enough", epsilon=0.05)
        showing = design.show(0, 1)
        for outcome in ends:
            design.end(showing, outcome, **bounds)
        return design

    def log_e(self, design: Design) -> list[float]:
        """Of both proofs."""
        log_e = design._ledger.pairs_of(Claim.GOOD_ENOUGH).log_e[0]
        return [log_e[0, 1], log_e[1, 0]]

    def test_an_answer_that_changes_counts_as_the_worse_of_both(self) -> None:
        won, lost, both = self.log_e(self.told(1.0)), self.log_e(self.told(0.0)), self.told(1.0, 0.0)
        assert self.log_e(both) == [won[0], lost[1]] == self.log_e(self.told(None))
        assert both.wins.tolist() == [[0.0, 0.0], [1.0, 0.0]]
        assert both.n_missing == 0

    def test_one_that_is_taken_back_is_missing(self) -> None:
        gone = self.told(1.0, None)
        assert self.log_e(gone) == self.log_e(self.told(None))
        assert (gone.n_comparisons, gone.n_missing) == (0, 1)
        assert np.isnan(gone.win_rate[0, 1])

    def test_a_slip_leaves_no_trace_in_the_proofs(self) -> None:
        design = self.told(1.0)
        design.reopen(0)
        assert design.open_showings == [0]
        assert self.log_e(design) == self.log_e(self.told())
        design.end(0, 0.0)
        assert self.log_e(design) == self.log_e(self.told(0.0))

    def test_an_outcome_that_is_known_in_part_counts_within_its_bounds(self) -> None:
        design = self.told(1.0, least=0.5, most=1.0)
        assert self.log_e(design) == [self.log_e(self.told(1.0))[0], self.log_e(self.told(0.5))[1]]
        assert (design.n_comparisons, design.n_missing) == (1, 0)

    def test_pairs_under_way_are_released_as_they_end(self) -> None:
        design = Design(Unstructured(2))
        showing = design.show(*design.ask())
        assert design.in_flight.sum() == 2
        design.end(showing, None)
        assert design.in_flight.sum() == 0

    def test_numbers_can_be_chosen(self) -> None:
        design = Design(Unstructured(3))
        assert [design.show(0, 1, 7), design.show(1, 2), design.show(0, 2, 3)] == [7, 8, 3]
        assert design.open_showings == [7, 8, 3]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (("show", 0, 1, 0), "has begun already"),
            (("show", 0, 0), "not compared with itself"),
            (("end", 5, 1.0), "no showing 5"),
            (("end", 0, 1.5), r"must lie in \[0, 1\]"),
            (("reopen", 5), "no showing 5"),
            (("revise", 1, 1.0), "has no outcome"),
            (("settled_without", [1]), "is not open"),
            (("remember", 9, {"pair": [0, 1]}), "incomplete"),
        ],
    )
    def test_what_cannot_be_is_refused(self, call: tuple[Any, ...], message: str) -> None:
        design = Design(Unstructured(2))
        design.show(0, 1)
        design.end(design.show(0, 1), None)
        before = design.state()
        with pytest.raises(ValueError, match=message):
            getattr(design, call[0])(*call[1:])
        with pytest.raises(ValueError, match="least <= outcome"):
            design.end(0, 0.5, least=0.6)
        assert design.state() == before


def test_a_slip_that_capital_has_moved_on_stays_in_the_proofs() -> None:
    """Capital was given at a price that knew the first answer."""
    design = Design(Unstructured(3), claim="good_enough", epsilon=0.05)
    slip = design.show(0, 1)
    design.end(slip, 1.0)
    for _ in range(12):
        design.tell(0, 2, 1.0)
    assert design._ledger.n_moves > 0
    later = design.show(0, 1)
    design.end(later, 1.0)
    for showing, counted in ((slip, 1.0), (later, 0.0)):
        design.reopen(showing)
        design = Design.from_state(design.space, json.loads(json.dumps(design.state())))
        before = design._tally.proof_wins[0, 0, 1]
        design.end(showing, 0.0)
        assert design._tally.proof_wins[0, 0, 1] == before - 1.0 + counted
        assert design._tally.proof_wins[0, 1, 0] >= 1.0
    assert design.wins[0, 1] == 0.0
