"""Nobody's wait tells a check from a comparison."""

from typing import Any

import pytest
from django.db import transaction

from engine.domain import secret_draws
from engine.models import Assignment, Experiment
from engine.selectors.answers import newest_answer
from engine.selectors.snapshots import latest_snapshot
from engine.services import evidence, serving
from engine.services.locks import locked_experiment
from engine.services.planning import advance
from tests.concurrency import at_once, blocked
from tests.engine.test_identical_texts import hold_back
from tests.factories import make_experiment, make_user

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres_only,
    pytest.mark.usefixtures("late_planner"),
]


@pytest.mark.parametrize("is_check", [False, True], ids=["comparison", "check"])
def test_an_answer_is_taken_back_once_the_planner_is_through(is_check: bool, monkeypatch: pytest.MonkeyPatch):
    """The planner holds the experiment for as long as its round takes: much longer than a statement."""
    monkeypatch.setattr(secret_draws, "check_draw", lambda *_: 0.0 if is_check else 0.99)
    annotator = make_user()
    experiment = make_experiment(ready=True, n_gold=1, gold_rate=0.5, annotators=(annotator,))
    shown = serving.show_next(experiment=experiment, annotator=annotator)
    assert Assignment.objects.checks().filter(token=shown.token).exists() is is_check
    serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
    answer = newest_answer(experiment, annotator)
    with transaction.atomic():
        locked_experiment(experiment.pk)
        taken_back = blocked(
            lambda: serving.take_back(experiment=experiment, answer=answer, annotator=annotator)
        )
    assert taken_back.result(timeout=60) is not None


def test_an_answer_does_not_wait_for_a_round_that_judged_ties(monkeypatch: pytest.MonkeyPatch):
    """An answer to a check waits for no count, so a wait would tell a comparison."""
    annotator = make_user()
    experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,))
    tie, *_ = experiment.comparisons.order_by("number")
    hold_back(tie)
    shown = serving.show_next(experiment=experiment, annotator=annotator)
    answered = []

    def beside_an_answer(planned: Experiment) -> Any:
        answered.extend(
            at_once(
                [
                    lambda: serving.answer(
                        experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left"
                    )
                ]
            )
        )
        monkeypatch.setattr(evidence, "latest_snapshot", latest_snapshot)
        return latest_snapshot(planned)

    monkeypatch.setattr(evidence, "latest_snapshot", beside_an_answer)
    advance(experiment_id=experiment.pk)
    assert [answer.created for answer in answered] == [True]
    tie.refresh_from_db()
    assert tie.state == "judged"
