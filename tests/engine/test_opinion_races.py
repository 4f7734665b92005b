"""People click while the language model votes."""

import time

import pytest
from django.db import transaction

from engine.domain.errors import AssignmentLostError
from engine.models import Comparison, Judgment, Opinion
from engine.selectors import counts
from engine.services.judging import rebuild_counts, record_answer
from engine.services.opinions import ask_opinions, cast_votes, claim_opinions
from engine.services.planning import advance
from tests.concurrency import at_once, with_helpers
from tests.engine.test_races import people
from tests.factories import assign, assign_next, click, make_experiment, write_responses
from tests.opinions import opine, shadow, vote

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture(autouse=True)
def small_numbers(settings):
    settings.JUDGE_CALIBRATION = 10
    settings.BUFFER_MIN = settings.BUFFER_MAX = 40


@pytest.fixture
def users(transactional_db):
    return people(4)


@pytest.fixture
def voting(users):
    """The language model has an opinion on everything that is ready, and may vote."""
    experiment = make_experiment(ready=True, annotators=users, n_policies=4, delta=1e-9)
    shadow(experiment)
    for _ in range(10):
        click(experiment, users[0])
    opine(experiment)
    vote(experiment)
    opine(experiment)
    return experiment


def assert_once_each(experiment) -> None:
    judged = Comparison.objects.filter(experiment=experiment, state="judged").count()
    assert Judgment.objects.count() == judged == counts.comparison_count(experiment.pk)
    assert Judgment.objects.values("comparison").distinct().count() == judged
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_every_comparison_is_judged_once_by_the_first_judge(voting, users):
    def label(user) -> int:
        clicks = 0
        while (held := assign_next(experiment_id=voting.pk, annotator=user)) is not None:
            try:
                clicks += record_answer(
                    experiment_id=voting.pk, token=held.token, annotator=user, choice="left"
                ).created
            except AssignmentLostError:
                pytest.fail("A pair that somebody was looking at was taken from them.")
        return clicks

    voters = [lambda: cast_votes(experiment_id=voting.pk)] * 3
    done = at_once([*[lambda user=user: label(user) for user in users], *voters])
    assert sum(done) == 30
    votes = Judgment.objects.filter(judge="llm").count()
    assert sum(done[-3:]) == votes == Opinion.objects.filter(judgment__isnull=False).count()
    assert_once_each(voting)


def test_with_planners_and_writers_in_between_nothing_is_lost_or_doubled(voting, users):
    def label(user) -> int:
        clicks = 0
        while clicks < 8:
            held = assign_next(experiment_id=voting.pk, annotator=user)
            if held is None:
                time.sleep(0.005)
                continue
            clicks += record_answer(
                experiment_id=voting.pk, token=held.token, annotator=user, choice="right"
            ).created
        return clicks

    clicks = with_helpers(
        [lambda user=user: label(user) for user in users],
        [
            lambda: opine(voting, batches=1),
            lambda: cast_votes(experiment_id=voting.pk),
            lambda: advance(experiment_id=voting.pk),
            write_responses,
        ],
    )
    assert clicks == 32
    assert Judgment.objects.filter(judge="human").count() == 42
    assert_once_each(voting)


def test_workers_that_claim_at_once_share_nothing(voting, users, settings):
    settings.JUDGE_BATCH = 30
    for _ in range(20):
        click(voting, users[0])
    shadow(voting, rubric="Another judge.")
    assert ask_opinions(experiment_id=voting.pk, most=30) == 30
    claims = at_once([lambda: claim_opinions(worker="j", limit=9)] * 5)
    ids = [opinion.pk for claim in claims for opinion in claim.opinions]
    assert len(ids) == len(set(ids))


def test_the_budget_holds_with_concurrent_callers(voting):
    shadow(voting, rubric="Another judge.", budget=45)
    at_once([lambda: ask_opinions(experiment_id=voting.pk, most=10)] * 4)
    assert Opinion.objects.count() <= 45


@pytest.mark.postgres_only
def test_a_pair_that_is_being_given_to_somebody_gets_no_vote(voting, users):
    with transaction.atomic():
        held = assign(voting, users[0])
        at_once([lambda: cast_votes(experiment_id=voting.pk)])
    assert not held.comparison.judgments.exists()
    assert record_answer(experiment_id=voting.pk, token=held.token, annotator=users[0], choice="left").created
    assert_once_each(voting)


@pytest.mark.postgres_only
def test_what_is_being_voted_on_is_given_to_nobody(voting, users):
    with transaction.atomic():
        assert cast_votes(experiment_id=voting.pk) > 0
        given = at_once([lambda: assign_next(experiment_id=voting.pk, annotator=users[0])])
    assert [each for each in given if each and each.comparison.judgments.exists()] == []
    assert_once_each(voting)
