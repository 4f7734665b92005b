"""One annotator from many tabs at once, an answer against a restore, and forgetting against removing."""

import pytest
from django.db import transaction

from engine.domain.errors import AssignmentLostError, SpecError, WrongStateError
from engine.models import Assignment, Judgment, JudgmentVoid, User
from engine.selectors import answers, designs
from engine.selectors.snapshots import latest_snapshot
from engine.services.drafts import create_experiment
from engine.services.forgetting import forget_person
from engine.services.judging import rebuild_counts, record_answer
from engine.services.locks import locked_experiment
from engine.services.planning import advance
from engine.services.policies import add_policies, retire_policy
from engine.services.serving import take_back
from engine.services.undos_and_skips import MOST_HELD, UNDOS_IN_A_ROW
from tests.concurrency import at_once, blocked
from tests.factories import assign, assign_all, click, make_experiment, make_spec, make_user, skip

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def test_many_tabs_at_once_hold_together_no_more_than_one(settings, annotator):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 20
    experiment = make_experiment(ready=True, annotators=(annotator, make_user()))

    def grab() -> None:
        for n_wanted in range(1, MOST_HELD + 2):
            assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=n_wanted)

    at_once([grab] * 6)
    assert Assignment.objects.filter(state="open").count() == MOST_HELD


def test_many_tabs_at_once_spend_one_allowance(settings, annotator):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 20
    experiment = make_experiment(ready=True, annotators=(annotator, make_user()))
    judgments = [click(experiment, annotator) for _ in range(UNDOS_IN_A_ROW + 5)]

    def undo(judgment: Judgment) -> bool:
        try:
            take_back(experiment=experiment, answer=judgment, annotator=annotator)
        except WrongStateError:
            return False
        return True

    undone = at_once([lambda each=each: undo(each) for each in judgments])
    assert sum(undone) == JudgmentVoid.objects.count() == UNDOS_IN_A_ROW
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_undos_and_clicks_while_the_planner_replays_leave_the_evidence_of_a_replay(
    settings, annotator, admin
):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 40
    other = make_user()
    experiment = make_experiment(ready=True, annotators=(annotator, other), delta=1e-9)
    for _ in range(8):
        click(experiment, annotator)

    def undo_on() -> None:
        for _ in range(4):
            newest = answers.newest_answer(experiment, annotator)
            take_back(experiment=experiment, answer=newest, annotator=annotator)

    def click_on() -> None:
        for _ in range(6):
            click(experiment, other, "right")

    def plan_on() -> None:
        for _ in range(6):
            advance(experiment_id=experiment.pk)

    at_once([undo_on, click_on, plan_on, plan_on])
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert not experiment.evidence_stale
    snapshot, replay = latest_snapshot(experiment), designs.replay(experiment).design
    assert (snapshot.comparisons, snapshot.evidence) == (10, replay.evidence.tolist())
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_policies_that_come_and_go_while_people_click_leave_the_evidence_of_a_replay(settings, annotator):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 60
    other = make_user()
    experiment = make_experiment(ready=True, n_policies=5, annotators=(annotator, other), delta=1e-9)
    stays = experiment.policies.get(index=0)

    def join() -> None:
        for k in range(3):
            levels = {"System prompt": {f"New {k}": {"text": "quality 1"}}}
            add_policies(experiment_id=experiment.pk, levels=levels, parent=stays.index)

    def leave() -> None:
        for index in (1, 2):
            retire_policy(experiment_id=experiment.pk, index=index, reason="It is rude.")

    def click_on(user: User) -> None:
        for _ in range(6):
            click(experiment, user, "right")

    def plan_on() -> None:
        for _ in range(4):
            advance(experiment_id=experiment.pk)

    at_once([join, leave, lambda: click_on(annotator), lambda: click_on(other), plan_on])
    advance(experiment_id=experiment.pk)
    stored, replayed = designs.stored(experiment), designs.replay(experiment)
    assert designs.state_of(stored) == designs.state_of(replayed)
    assert stored.design.present.tolist() == [True, False, False, True, True, True, True, True]
    assert rebuild_counts(experiment_id=experiment.pk) == {}


@pytest.mark.postgres_only
def test_a_click_that_waits_for_a_skip_is_refused(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator, make_user()))
    held = assign(experiment, annotator)
    with transaction.atomic():
        skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
        judging = blocked(
            lambda: record_answer(
                experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left"
            )
        )
    with pytest.raises(AssignmentLostError, match="You skipped"):
        judging.result(timeout=60)
    assert not Judgment.objects.exists()


@pytest.mark.postgres_only
def test_a_second_tab_waits_for_the_first_and_gets_the_same_pairs(annotator, settings):
    settings.BUFFER_MIN = MOST_HELD + 2
    experiment = make_experiment(ready=True, annotators=(annotator, make_user()))
    asked = {"experiment_id": experiment.pk, "annotator": annotator, "n_wanted": 3}
    assign(experiment, annotator)
    with transaction.atomic():
        mine = assign_all(**asked)
        waiting = blocked(lambda: assign_all(**asked))
    assert waiting.result(timeout=60) == mine


@pytest.mark.postgres_only
def test_a_name_that_somebody_takes_at_the_same_moment_is_refused(annotator):
    spec = make_spec(name="Mine")
    with transaction.atomic():
        create_experiment(spec=spec, by=annotator)
        late = blocked(lambda: create_experiment(spec=spec, by=annotator))
    with pytest.raises(SpecError, match="You have an experiment of this name already"):
        late.result(timeout=60)


@pytest.mark.postgres_only
def test_forgetting_a_person_and_removing_them_lock_in_one_order(admin):
    person = make_user()
    experiment = make_experiment(annotators=(person,))
    with transaction.atomic():
        locked_experiment(experiment.pk)
        forgetting = blocked(lambda: forget_person(user_id=person.pk, by=admin))
        # A removal comes to the account. If forgetting held it, neither could go on.
        User.objects.select_for_update(no_key=True).get(pk=person.pk)
    assert forgetting.result(timeout=60).forgotten_at is not None
