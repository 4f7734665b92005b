"""Nobody's wait tells a check from a comparison."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from engine.domain import blinding
from engine.models import Check, Lease
from engine.selectors.answers import newest_answer
from engine.services import serving
from engine.services.locks import locked_experiment
from tests.concurrency import blocked
from tests.factories import make_experiment, make_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.mark.parametrize("kind", [Lease, Check])
def test_an_answer_is_taken_back_once_the_planner_is_through(kind: Any, monkeypatch: pytest.MonkeyPatch):
    """The planner holds the experiment for as long as its round takes: much longer than a statement."""
    monkeypatch.setattr(blinding, "check_draw", lambda *_: 0.0 if kind is Check else 0.99)
    annotator = make_user()
    experiment = make_experiment(ready=True, n_gold=1, gold_rate=0.5, annotators=(annotator,))
    shown = serving.show_next(experiment=experiment, annotator=annotator)
    assert kind.objects.filter(token=shown.token).exists()
    serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
    answer = newest_answer(experiment, annotator)
    with transaction.atomic():
        locked_experiment(experiment.pk)
        taken_back = blocked(
            lambda: serving.take_back(experiment=experiment, answer=answer, annotator=annotator)
        )
    assert taken_back.result(timeout=60) is not None
