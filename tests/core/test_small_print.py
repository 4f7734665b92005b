"""The words of a claim about its risk, and of the answers alone where it does not hold."""

from __future__ import annotations

import math

import pytest

from engine.core import Claim, Design, Unstructured
from engine.core.claims import describe, describe_by_answers
from engine.core.types import Missing

ASSUMES = "whether it comes soon, late or never"
NEEDS_NO_FAITH = "whoever leaves or delays what. It is about the people who judged"


def told(missing: str) -> str:
    design = Design(Unstructured(2), claim="good_enough", epsilon=0.1, missing=missing)
    for _ in range(40):
        design.tell(0, 1, 1.0)
    assert design.stopped
    return design.decision.claim_text


def test_by_the_rule_a_claim_says_whom_it_is_about_and_assumes_no_good_faith():
    text = told("against")
    assert NEEDS_NO_FAITH in text
    assert ASSUMES not in text


def test_by_the_answers_alone_it_says_what_it_assumes():
    text = told("answers")
    assert ASSUMES in text
    assert NEEDS_NO_FAITH not in text


@pytest.mark.parametrize("missing", Missing)
def test_a_claim_through_the_model_assumes_that_what_is_missing_says_nothing(missing):
    text = describe(Claim.BEST, "Short", (), 0, delta=0.05, margin=0.0, missing=missing, model=True)
    assert ASSUMES in text
    assert "as the model says" in text


@pytest.mark.parametrize(
    ("gamma", "often"),
    [(1.04, "no more often"), (1.0, "no more often"), (4.19, "4.1 times"), (math.inf, "100 times")],
)
def test_the_factor_up_to_which_the_answers_hold_is_rounded_down(gamma, often):
    assert often in describe_by_answers("Short", gamma, 12, "310 more clicks")
