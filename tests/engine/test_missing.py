"""Pairs without an answer, for each person and each policy."""

from datetime import timedelta

import pytest

from engine.models import Assignment, clock
from engine.selectors.missing import by_person, by_policy, capped
from engine.services import serving
from engine.services.undos_and_skips import hold
from labeling.dashboard.annotators import ended_rows
from tests.factories import assign, click, make_experiment, make_user

pytestmark = pytest.mark.django_db


def test_skips_by_reason_and_what_was_left_are_counted(annotator, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 16
    bob = make_user("bob")
    experiment = make_experiment(n_policies=2, ready=True, n_tasks=20, annotators=(annotator, bob))
    for reason in ("cannot_tell", "cannot_tell", "leak"):
        token = assign(experiment, annotator).token
        serving.skip(experiment=experiment, token=token, annotator=annotator, reason=reason)
    click(experiment, annotator)
    assign(experiment, annotator)
    assign(experiment, bob)
    past = clock.now() - hold() - timedelta(seconds=1)
    Assignment.objects.filter(annotator=annotator, state="open").update(created_at=past)
    people = by_person(experiment)
    ann = people[annotator.username]
    assert (ann.shown, ann.answered, ann.skipped, ann.left) == (5, 1, 3, 1)
    assert ann.reasons == {"cannot_tell": 2, "leak": 1}
    assert (people["bob"].shown, people["bob"].left) == (1, 0)
    first, second = by_policy(experiment).values()
    assert first == second == ann + people["bob"]
    assert capped(experiment) == {}


def test_who_gets_no_more_is_listed_for_the_owner(annotator, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 16
    experiment = make_experiment(ready=True, n_tasks=20, annotators=(annotator,))
    for _ in range(5):
        token = assign(experiment, annotator).token
        serving.skip(experiment=experiment, token=token, annotator=annotator, reason="task")
    assert capped(experiment) == {annotator.username: (5, 5)}
    assert [row["name"] for row in ended_rows(experiment)] == [annotator.username]
