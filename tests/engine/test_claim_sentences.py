"""The sentences of claims: the policy, the margin, the risk, and what it assumes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.core import BradleyTerry, Claim, Design, Missing, Unstructured
from engine.core.contradictions import Misfit
from engine.domain.claim_sentences import by_answers_alone, conclusion, sentence

ASSUMES = "whether it comes soon, late or never"
NEEDS_NO_FAITH = "even if pairs are left unanswered or answered late. It is about those who judged"
MODEL = "if strengths add up as the model says"
NAMES = ["terse", "warm", "formal"]


def sure(n_policies=2, **settings):
    design = Design(Unstructured(n_policies), labels=NAMES[:n_policies], **settings)
    for _ in range(100):
        for rival in range(1, n_policies):
            design.tell(0, rival, 1.0)
    assert design.stopped
    return design


def none_best(**settings):
    wins = 60.0 * np.array([[0, 4, 1], [1, 0, 4], [4, 1, 0]])
    return Design.from_counts(Unstructured(3), wins, labels=NAMES, **settings)


def in_model(n, **settings):
    wins = n * np.array([[0, 0.3, 0.2], [0.7, 0, 0.3], [0.8, 0.7, 0]])
    return Design.from_counts(BradleyTerry([[0.0], [1.0], [2.0]]), wins, labels=NAMES, **settings)


def test_a_claim_says_whom_it_names_by_how_much_and_at_what_risk():
    text = conclusion(sure(3, claim="good_enough", epsilon=0.1, delta=0.05))
    for part in (
        "terse loses to no other policy by more than 10 points",
        "60%",
        "at most 5%",
        NEEDS_NO_FAITH,
    ):
        assert part in text
    assert ASSUMES not in text


def test_by_the_answers_alone_it_says_what_it_assumes():
    text = conclusion(sure(missing="answers"))
    assert ASSUMES in text
    assert NEEDS_NO_FAITH not in text


@pytest.mark.parametrize("missing", Missing)
def test_a_claim_through_the_model_assumes_it(missing):
    text = conclusion(in_model(50, missing=missing))
    assert MODEL in text
    assert ASSUMES in text
    assert "model" not in conclusion(in_model(150))


def test_a_claim_through_the_model_says_how_the_model_was_tested():
    passed = Misfit(deviance=1.0, freedom=1, p_value=0.4, power=0.8, level=0.01)
    for tested, said in (
        (passed, "found none."),
        (replace(passed, power=0.4), "too few comparisons to test the model."),
        (replace(passed, p_value=0.01), "The data contradict the model."),
    ):
        assert conclusion(in_model(50), tested).endswith(said)
        # A proof head to head needs no model.
        assert "model" not in conclusion(in_model(150), tested)


def test_a_claim_that_follows_says_from_which():
    design = sure(claim="best", epsilon=0.001)
    followed = [replace(each, holds=False, follows_from=Claim.BEST) for each in design.decision.claims]
    for state in followed:
        assert "this follows from “terse beats every other policy”" in sentence(design, state)


@pytest.mark.parametrize("claim", ["best", "best_if_any"])
def test_the_finding_that_none_is_best_is_a_claim(claim):
    assert conclusion(none_best(claim=claim)).startswith("No policy beats every other;")


def test_the_finding_that_none_is_best_has_its_margin():
    wins = 60.0 * np.array([[0, 0.7, 0.7], [0.3, 0, 0.5], [0.3, 0.5, 0]])
    design = Design.from_counts(Unstructured(3), wins, claim="best_if_any", epsilon=0.4)
    assert "with a win rate of at least 90%" in conclusion(design)


@pytest.mark.parametrize("claim", ["best", "best_if_any"])
def test_two_claims_that_exclude_each_other_say_so(claim):
    progress = {"peak_evidence": [9.0, 9.0, 9.0], "named": {"best": 0}}
    wins = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    design = Design.from_counts(Unstructured(3), wins, progress=progress, claim=claim, labels=NAMES)
    said = {state.claim: sentence(design, state) for state in design.decision.claims}
    assert "also establishes that no policy beats every other" in said[Claim.BEST]
    assert "also establishes that terse beats every other policy" in said[Claim.BEST_IF_ANY]


def test_rivals_still_open_are_named_and_names_with_commas_told_apart():
    design = Design(Unstructured(3), labels=["A, B", "A", "B"])
    assert conclusion(design) == "Nothing has been compared yet."
    design.tell(0, 1, 1.0)
    assert "“A, B” beats every other policy; 2 rivals still open (A, B)." in conclusion(design)


def test_a_name_keeps_its_case():
    design = sure()
    design.labels = ("a", "A")
    assert conclusion(design).startswith("a beats every other policy; ")


def test_a_heuristic_stop_makes_no_claim():
    assert "makes no claim" in conclusion(none_best(stopping="heuristic"))


@pytest.mark.parametrize(
    ("gamma", "often"),
    [(1.04, "no more often"), (1.0, "no more often"), (4.19, "4.1 times"), (math.inf, "100 times")],
)
def test_the_factor_up_to_which_the_answers_hold_is_rounded_down(gamma, often):
    assert often in by_answers_alone(sure(), 0, gamma, "310 more clicks")
