"""Voids and restores while people click, in real threads."""

import pytest
from django.db import transaction

from engine.domain.errors import WrongStateError
from engine.models import Experiment, Judgment, JudgmentVoid
from engine.selectors import counts
from engine.services.judging import rebuild_counts, record_answer, void_judgment
from engine.services.voids import restore_judgment, void_annotator
from tests.concurrency import at_once, blocked
from tests.engine.test_races import people
from tests.factories import assign, click, make_experiment

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def attempt(judgment: Judgment) -> bool:
    try:
        restore_judgment(judgment_id=judgment.pk)
    except WrongStateError:
        return False
    return True


def counts_of(experiment: Experiment) -> int:
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    return counts.comparison_count(experiment.pk)


def test_restored_five_times_at_once_is_restored_once(annotator, admin):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    old = click(experiment, annotator)
    void_judgment(judgment_id=old.pk, by=admin, reason="A slip.")
    assert sorted(at_once([lambda: attempt(old)] * 5)) == [False] * 4 + [True]
    assert Judgment.objects.filter(restores=old).count() == 1
    assert counts_of(experiment) == 1


def test_a_restore_and_somebody_elses_click_at_once_are_one_outcome(admin):
    first, second = people(2)
    experiment = make_experiment(ready=True, annotators=(first, second))
    old = click(experiment, first)
    void_judgment(judgment_id=old.pk, by=admin, reason="A slip.")

    def judge_anew() -> bool:
        held = assign(experiment, second)
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=second, choice="left")
        return held.comparison_id == old.comparison_id

    restored, anew = at_once([lambda: attempt(old), judge_anew])
    assert restored + anew == 1
    assert counts.standing(old.comparison.judgments.all()).count() == 1
    assert counts_of(experiment) == 1 + (not anew)


def test_all_of_one_are_voided_while_all_click_and_the_counts_are_right(settings, admin):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 60
    users = people(5)
    spammer = users[0]
    experiment = make_experiment(ready=True, annotators=users, n_policies=4)

    def label(user) -> int:
        for _ in range(6):
            click(experiment, user)
        return 6

    def void() -> int:
        return sum(
            void_annotator(experiment_id=experiment.pk, annotator=spammer, by=admin, reason="Spam")
            for _ in range(5)
        )

    *_, taken = at_once([*[lambda user=user: label(user) for user in users], void])
    assert JudgmentVoid.objects.count() == taken
    assert counts_of(experiment) == 30 - taken
    left = 6 - taken
    assert void_annotator(experiment_id=experiment.pk, annotator=spammer, by=admin, reason="Spam") == left
    assert counts_of(experiment) == 24


def test_two_who_void_the_same_annotator_void_each_judgment_once(annotator, admin):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    for _ in range(4):
        click(experiment, annotator)
    taken = at_once(
        [lambda: void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam")]
        * 3
    )
    assert sorted(taken) == [0, 0, 4]
    assert counts_of(experiment) == 0


@pytest.mark.postgres_only
def test_a_bulk_void_does_not_deadlock_with_a_click_that_waits_for_its_count(annotator, admin):
    experiment = make_experiment(ready=True, annotators=(annotator,), n_policies=2)
    click(experiment, annotator)
    held = assign(experiment, annotator)
    with transaction.atomic():
        # Each pair of policies has one count: the click waits for the count that the bulk void has changed.
        void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam")
        later = blocked(
            lambda: record_answer(
                experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left"
            )
        )
    assert later.result().created
    assert counts_of(experiment) == 1
