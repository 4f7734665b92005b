"""Several judgments of one comparison become one outcome."""

from fractions import Fraction
from itertools import product

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from engine.domain.errors import SpecError
from engine.domain.outcome_of_answers import joint_outcome
from engine.models import Experiment
from tests.factories import make_experiment


@pytest.mark.parametrize(
    ("outcomes", "majority"),
    [
        ([1.0], 1.0),
        ([0.0], 0.0),
        ([0.5], 0.5),
        ([1.0, 0.0], 0.5),
        ([1.0, 0.5], 1.0),
        ([0.0, 0.5], 0.0),
        ([1.0, 1.0, 0.0], 1.0),
        ([0.0, 1.0, 0.0], 0.0),
        ([0.5, 0.5, 0.0], 0.0),
        ([1.0, 0.0, 0.5], 0.5),
        ([1.0] * 5 + [0.0] * 4, 1.0),
        ([1.0] * 4 + [0.0] * 5, 0.0),
    ],
    ids=str,
)
def test_the_side_that_more_chose_wins_and_an_even_split_is_a_half(outcomes, majority):
    assert joint_outcome(outcomes, "majority") == majority


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_shares_of_one_two_four_or_eight_are_exact_and_leave_the_sum_without_a_trace(m):
    total = 3.5
    for outcomes in product([0.0, 0.5, 1.0], repeat=min(m, 4)):
        heard = list(outcomes) * (m // min(m, 4))
        mean = joint_outcome(heard, "mean")
        assert Fraction(mean) == sum(map(Fraction, heard)) / m
        assert (total + mean) - mean == total


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_swapping_the_policies_swaps_the_outcome(rule):
    for outcomes in product([0.0, 0.5, 1.0], repeat=4):
        mirrored = [1.0 - outcome for outcome in outcomes]
        assert joint_outcome(mirrored, rule) == 1.0 - joint_outcome(outcomes, rule)


@pytest.mark.django_db
@pytest.mark.parametrize("overlap", [3, 5, 6, 7, 9])
def test_the_database_refuses_a_mean_of_a_number_that_does_not_divide_exactly(overlap):
    experiment = make_experiment(running=False)
    experiment.overlap, experiment.overlap_rule = overlap, "mean"
    with pytest.raises(ValidationError, match="let the majority decide"):
        experiment.full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        experiment.save()
    with pytest.raises(SpecError, match="let the majority decide"):
        make_experiment(running=False, overlap=overlap, overlap_rule="mean")
    experiment.overlap_rule = "majority"
    experiment.save()


@pytest.mark.django_db
@pytest.mark.parametrize("overlap", [1, 2, 4, 8])
def test_the_database_takes_a_mean_of_a_power_of_two(overlap):
    made = make_experiment(running=False, overlap=overlap, overlap_rule="mean")
    assert Experiment.objects.get(pk=made.pk).overlap == overlap
