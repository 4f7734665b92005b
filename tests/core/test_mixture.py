"""Restarted averages of likelihoods: valid for every sampler and stopping time, and quicker."""

import json
from itertools import combinations

import numpy as np
import pytest
from scipy import special

from engine.core import BradleyTerry, Claim, Design
from engine.core import mixture as module
from engine.core.evidence import PairwiseEvidence
from engine.core.ledger import Ledger
from engine.core.structured import BradleyTerryModel
from engine.core.types import FloatArray, IntArray, Tally

FEATURES = np.array([[0.0, 0.0], [1.0, 0.3], [0.4, 1.0]])
# Every history of three policies for four steps, and of two for twelve.
THREE = (FEATURES, 4)
TWO = (np.array([[0.0], [1.0]]), 12)
Case = tuple[FloatArray, int]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts after the first outcomes, and with most of the weight:
    short histories have no use for others.
    """
    monkeypatch.setattr(module, "_RESTARTS_AT", (0.0, 0.3))
    monkeypatch.setattr(module, "_SHARES", (0.1, 0.3, 0.6))


def steps(case: Case) -> FloatArray:
    """Shape (m, 3): each step of a history is a pair and who won it."""
    pairs = combinations(range(case[0].shape[0]), 2)
    return np.array([(i, j, outcome) for i, j in pairs for outcome in (1.0, 0.0)])


def histories(case: Case, claim: Claim, epsilon: float) -> tuple[Ledger, list[FloatArray], list[FloatArray]]:
    """Every history of pairs and outcomes side by side, R in all.

    Returns the ledger at the end, and after each step the model's evidence against each policy's being the
    best, shape (R, K), and that against each policy's beating each other, shape (R, K, K), as far as it is
    claimed.
    """
    features, horizon = case
    n_runs, K = len(steps(case)) ** horizon, features.shape[0]
    ledger = Ledger(
        BradleyTerry(features),
        Tally.empty(K, n_runs),
        delta=0.05,
        epsilon=epsilon,
        stopping="certified",
        claim=claim,
    )
    runs = np.arange(n_runs)
    best, beating = [], []
    for t in range(horizon):
        digit = runs // len(steps(case)) ** (horizon - 1 - t) % len(steps(case))
        i, j, outcome = steps(case)[digit].T
        ledger.record(i.astype(np.int64), j.astype(np.int64), outcome)
        best.append(ledger._watched.structured.copy())
        if claim is Claim.BEST_IF_ANY:
            continue
        proof = ledger.proofs[claim]
        leader = proof._evidence.leader
        against = np.full((n_runs, K, K), -np.inf)
        against[runs, :, leader] = proof.against()
        against[runs, leader, leader] = -np.inf
        beating.append(against)
    return ledger, best, beating


def worst_mean(case: Case, e_values: list[FloatArray], mu: FloatArray) -> float:
    """The largest mean of the e-value over all samplers and all stopping times of one step or more. Exact."""
    pairs = list(combinations(range(case[0].shape[0]), 2))
    chance = np.array([[mu[i, j], mu[j, i]] for i, j in pairs])
    value = e_values[-1]
    for t in range(case[1] - 1, -1, -1):
        # Histories of t steps, the last step split into pair and outcome.
        n = len(steps(case)) ** t
        branches = value.reshape(n, 2 * len(pairs), -1)[:, :, 0].reshape(n, len(pairs), 2)
        value = (branches * chance).sum(axis=2).max(axis=1)
        if t:
            value = np.maximum(value, e_values[t - 1].reshape(n, -1)[:, 0])
    return float(value[0])


def preferences(scores: FloatArray) -> FloatArray:
    return special.expit(scores[:, None] - scores)


@pytest.mark.usefixtures("eager")
class TestValidity:
    @pytest.mark.parametrize("case", [TWO, THREE], ids=["two", "three"])
    @pytest.mark.parametrize("lead", [0.0, 0.3])
    def test_evidence_against_the_best_pays_for_no_sampler_and_no_stopping_time(
        self, case: Case, lead: float
    ) -> None:
        features = case[0]
        scores = features @ np.linalg.solve(features[1:], [-lead, -1.0][: features.shape[1]])
        ledger, best, _ = histories(case, Claim.BEST_IF_ANY, 0.0)
        assert np.all(ledger._mixture._n_begun >= 1)
        assert np.any(ledger._mixture._n_begun == 2) or case is THREE
        assert worst_mean(case, [np.exp(each[:, 0]) for each in best], preferences(scores)) <= 1.0 + 1e-9

    @pytest.mark.parametrize(("claim", "epsilon"), [(Claim.BEST, 0.0), (Claim.GOOD_ENOUGH, 0.1)])
    def test_the_largest_evidence_against_a_true_null_pays_for_none(
        self, claim: Claim, epsilon: float
    ) -> None:
        """Policies 0 and 1 tie, and lead the third by 0.5 or by a little more than the margin."""
        for last in (-0.5, -special.logit(0.5 + epsilon) - 0.1):
            scores = FEATURES @ np.linalg.solve(FEATURES[1:], [0.0, last])
            true = scores[:, None] - scores >= special.logit(0.5 + epsilon) - 1e-12
            np.fill_diagonal(true, val=False)
            _, _, beating = histories(THREE, claim, epsilon)
            largest = [np.exp(against[:, true]).max(axis=1, initial=0.0) for against in beating]
            assert worst_mean(THREE, largest, preferences(scores)) <= 1.0 + 1e-9

    def test_the_search_finds_what_pays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A prior that has seen the outcomes that it is averaged over: the search must notice."""
        begin = module.Mixture._begin

        def begin_and_count_all(self: module.Mixture, runs: IntArray, wins: FloatArray) -> None:
            begin(self, runs, wins)
            self._wins[:] = 0.0

        monkeypatch.setattr(module.Mixture, "_begin", begin_and_count_all)
        _, best, _ = histories(TWO, Claim.BEST_IF_ANY, 0.0)
        assert worst_mean(TWO, [np.exp(each[:, 0]) for each in best], np.full((2, 2), 0.5)) > 1.005


class TestState:
    def tell(self, design: Design, n: int) -> None:
        rng = np.random.default_rng(4)
        mu = preferences(FEATURES @ np.array([1.5, -1.0]))
        for _ in range(n):
            i, j = design.ask()
            design.tell(i, j, float(rng.random() < mu[i, j]))

    def test_restarts_are_stored_and_go_on_bit_by_bit(self) -> None:
        live = Design(BradleyTerry(FEATURES), seed=1)
        self.tell(live, 60)
        progress = json.loads(json.dumps(live.progress))
        assert 1 <= len(progress["streams"]["starts"]) <= 2
        stored = Design.from_counts(BradleyTerry(FEATURES), live.wins, progress=progress)
        for design in (live, stored):
            design.tell(0, 1, 1.0)
            design.tell(1, 2, 0.0)
        assert stored.evidence.tolist() == live.evidence.tolist()
        assert stored.progress["streams"]["starts"] == live.progress["streams"]["starts"]

    @pytest.mark.parametrize("starts", [[[[0.0]]], [[[0.0, 99, 0], [0, 0, 0], [0, 0, 0]]]])
    def test_starts_that_do_not_fit_are_refused(self, starts: list[object]) -> None:
        design = Design(BradleyTerry(FEATURES), seed=1)
        self.tell(design, 20)
        progress = design.progress
        progress["streams"]["starts"] = starts
        with pytest.raises(ValueError, match="the wins at up to 2 restarts"):
            Design.from_counts(BradleyTerry(FEATURES), design.wins, progress=progress)


def test_a_restart_pays_once_its_prior_is_worth_more_than_what_it_leaves_out() -> None:
    """At the expected outcomes of 9,900 comparisons of all pairs, of which the restart leaves out 1,650."""
    features = np.random.default_rng(8).standard_normal((12, 6)) / 4
    space = BradleyTerry(features)
    mu = preferences(features @ np.array([0.6, -0.36, 0.42, 0.6, 0.18, -0.6]))

    def evidence(*starts: FloatArray) -> float:
        tally = Tally(rounded_wins(mu, 150)[None])
        model = BradleyTerryModel(space, tally)
        mixture = module.Mixture(space, model, tally, starts=[starts])
        found = module.BradleyTerryEvidence(space, model, mixture, PairwiseEvidence(tally))
        return float(np.delete(found.structured[0], found.leader).min())

    assert evidence(rounded_wins(mu, 25)) > evidence() + 1.0


def rounded_wins(mu: FloatArray, n: int) -> FloatArray:
    upper = np.triu(np.rint(n * mu), 1)
    return upper + np.triu(n - upper, 1).T
