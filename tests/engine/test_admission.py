"""Gold items admit people before their first pair that counts, and end what they are shown."""

import pytest

from engine.domain import secret_draws
from engine.models import Assignment, Experiment, Judgment, User
from engine.selectors.admission import failed
from engine.services import serving
from engine.services.planning import advance
from engine.services.serving import Ended
from tests.factories import make_experiment, write_responses

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(annotator) -> Experiment:
    return make_experiment(ready=True, n_tasks=40, n_gold=20, gold_rate=0.3, annotators=(annotator,))


def kinds_answered(experiment: Experiment, user: User, right: str) -> list[str]:
    """Answer pair after pair until no more come, and return their kinds. Gold items are answered rightly
    where ``right`` says "+", and skipped where it says "s".
    """
    kinds, n_gold = [], 0
    while (shown := serving.show_next(experiment=experiment, annotator=user)) is not None:
        check = Assignment.objects.checks().filter(token=shown.token).first()
        kinds.append(check.kind if check else "comparison")
        choice = "left"
        if check is not None:
            if n_gold == len(right):
                break
            better = check.expected
            choice = better if right[n_gold] == "+" else {"left": "right", "right": "left"}[better]
            n_gold += 1
            if right[n_gold - 1] == "s":
                serving.skip(experiment=experiment, token=shown.token, annotator=user, reason="task")
                continue
        serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=user, choice=choice)
        advance(experiment_id=experiment.pk)
        write_responses()
    return kinds


def ended(experiment: Experiment, user: User) -> Ended:
    return serving.desk(experiment=experiment, annotator=user, n_wanted=1).ended


@pytest.mark.parametrize("right", ["+++++", "+-+++"])
def test_who_passes_goes_on_to_pairs_that_count(right, experiment, annotator, monkeypatch):
    monkeypatch.setattr(secret_draws, "check_draw", lambda *_: 0.9)
    for _ in range(5):
        [kind, *_] = kinds_answered_once(experiment, annotator, right)
        assert kind == "admission"
        right = right[1:]
    assert not Judgment.objects.exclude(comparison=None).exists()
    shown = serving.show_next(experiment=experiment, annotator=annotator)
    assert not Assignment.objects.checks().filter(token=shown.token).exists()
    assert ended(experiment, annotator) is Ended.NOT


def kinds_answered_once(experiment: Experiment, user: User, right: str) -> list[str]:
    """The kind of the next pair, after it was answered."""
    shown = serving.show_next(experiment=experiment, annotator=user)
    check = Assignment.objects.checks().get(token=shown.token)
    better = check.expected
    choice = better if right[0] == "+" else {"left": "right", "right": "left"}[better]
    told = serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=user, choice=choice)
    assert told.feedback == ""
    return [check.kind]


@pytest.mark.parametrize("right", ["+-+-+", "-----", "+ss++", "sssss"])
def test_who_fails_gives_nothing_that_counts(right, experiment, annotator):
    assert kinds_answered(experiment, annotator, right) == ["admission"] * 5
    assert ended(experiment, annotator) is not Ended.NOT
    assert not Judgment.objects.exclude(comparison=None).exists()
    assert list(failed(experiment)) == [annotator.username]


def test_nothing_that_counts_is_fetched_ahead_of_the_last_admission_item(experiment, annotator):
    held = serving.desk(experiment=experiment, annotator=annotator, n_wanted=6).pairs
    assert [pair.kind for pair in held] == ["admission"] * 5


def test_who_fails_later_gets_no_more_and_what_they_gave_stays(experiment, annotator):
    kinds = kinds_answered(experiment, annotator, "+++++" + "-" * 10)
    assert kinds.count("gold") == 3, "5 of 8 is below the mark"
    given = kinds.count("comparison")
    assert given == Judgment.objects.filter(comparison__isnull=False).count() > 0
    assert ended(experiment, annotator) is Ended.GOLD
    assert failed(experiment)[annotator.username].right == 5


def test_an_undo_does_not_admit(experiment, annotator):
    kinds_answered_once(experiment, annotator, "-")
    again = Judgment.objects.get()
    serving.take_back(experiment=experiment, answer=again, annotator=annotator)
    assert kinds_answered(experiment, annotator, "+-+++") == ["admission"] * 5
    assert ended(experiment, annotator) is Ended.GOLD


def test_practice_comes_first_and_takes_its_items(annotator):
    experiment = make_experiment(ready=True, practice=2, n_gold=4, gold_rate=0.1, annotators=(annotator,))
    assert kinds_answered(experiment, annotator, "++--")[:4] == ["practice"] * 2 + ["admission"] * 2
    assert ended(experiment, annotator) is Ended.GOLD


def test_without_a_share_of_gold_pairs_there_is_no_gate(annotator):
    experiment = make_experiment(ready=True, n_gold=9, annotators=(annotator,))
    shown = serving.show_next(experiment=experiment, annotator=annotator)
    assert not Assignment.objects.checks().filter(token=shown.token).exists()
