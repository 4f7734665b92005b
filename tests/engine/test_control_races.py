"""Controls and the planner at once, on a database that really commits."""

import time

import pytest
from django.db import transaction

from engine.models import Experiment
from engine.selectors import counts, designs
from engine.selectors.snapshots import latest_snapshot
from engine.services.experiments import stop
from engine.services.judging import rebuild_counts
from engine.services.locks import locked_experiment
from engine.services.planning import advance
from engine.services.setting_changes import change_settings, reopen
from tests.concurrency import at_once, blocked
from tests.factories import click, make_experiment, make_user, write_responses

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture
def judged(annotator) -> Experiment:
    experiment = make_experiment(ready=True, annotators=(annotator,), delta=1e-6)
    for _ in range(4):
        click(experiment, annotator)
        advance(experiment_id=experiment.pk)
        write_responses()
    return experiment


def test_settings_clicks_and_planners_at_once_leave_evidence_that_a_replay_confirms(judged, annotator):
    boss = make_user()

    def change_on() -> int:
        for epsilon in (0.1, 0.2, 0.05, 0.1):
            change_settings(experiment_id=judged.pk, by=boss, epsilon=epsilon)
            time.sleep(0.01)
        return 0

    def click_on() -> int:
        for _ in range(4):
            click(judged, annotator)
            time.sleep(0.005)
        return 4

    def plan_on() -> int:
        for _ in range(15):
            advance(experiment_id=judged.pk)
            time.sleep(0.002)
        return 0

    assert sum(at_once([change_on, click_on, plan_on, plan_on])) == 4
    advance(experiment_id=judged.pk)
    judged.refresh_from_db()
    assert (judged.epsilon, judged.first_epsilon) == (0.1, 0.0)
    assert counts.comparison_count(judged.pk) == 8
    assert rebuild_counts(experiment_id=judged.pk) == {}
    snapshot = latest_snapshot(judged)
    assert snapshot.comparisons == 8
    assert snapshot.evidence == list(designs.replay(judged).design.evidence)
    assert judged.audit_entries.filter(action="epsilon").count() == 4


@pytest.mark.postgres_only
def test_a_planner_that_comes_while_settings_change_leaves_at_once(judged):
    """It would plan by settings that are about to be the old ones; who changed them wakes the next."""
    with transaction.atomic():
        locked_experiment(judged.pk)
        assert at_once([lambda: advance(experiment_id=judged.pk)]) == [None]


@pytest.mark.postgres_only
def test_a_change_that_comes_while_the_planner_decides_waits_and_then_goes_by_what_was_decided(judged):
    with transaction.atomic():
        locked_experiment(judged.pk)
        change = blocked(lambda: change_settings(experiment_id=judged.pk, by=None, budget=9999))
        stop(experiment_id=judged.pk)
    with pytest.raises(Exception, match="The experiment has concluded"):
        change.result(timeout=60)
    judged.refresh_from_db()
    assert judged.budget == 2000


@pytest.mark.postgres_only
def test_two_who_reopen_at_once_reopen_once(judged):
    stop(experiment_id=judged.pk)

    def again() -> str:
        try:
            reopen(experiment_id=judged.pk, by=None, budget=3000)
        except Exception as refused:
            return str(refused)
        return "reopened"

    assert sorted(at_once([again, again])) == [
        "Only a concluded experiment can be reopened; this one is running.",
        "reopened",
    ]
    assert judged.audit_entries.filter(action="reopen").count() == 1
