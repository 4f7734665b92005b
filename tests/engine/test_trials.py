"""Trials of drafts: written through the queue, kept apart from the experiment, and limited."""

import pytest

from engine.domain.errors import SpecError
from engine.domain.specs import FactorSpec
from engine.generation.base import Fault, GenerationFailure
from engine.generation.worker import write_batch
from engine.models import Comparison, Experiment, Response, Trial, User
from engine.selectors import specs
from engine.services import experiments, generation, retention, trials
from engine.services.drafts import create_experiment, delete_experiment, replace_draft
from engine.services.planning import advance
from tests.backends import ScriptedBackend
from tests.factories import make_experiment, make_spec, make_user, write_responses

pytestmark = pytest.mark.django_db


@pytest.fixture
def by() -> User:
    return make_user()


@pytest.fixture
def draft() -> Experiment:
    return make_experiment(running=False)


def tried(experiment: Experiment) -> list[Response]:
    return list(Response.objects.filter(trial__experiment=experiment).order_by("pk"))


def test_each_policy_answers_each_task_once_through_the_queue(draft, by):
    trial = trials.start_trial(experiment_id=draft.pk, positions=[0, 3], by=by)
    assert trial.n_responses == 6
    write_responses()
    rows = tried(draft)
    assert [(row.task.position, row.policy.index) for row in rows] == [
        (task, policy) for task in (0, 3) for policy in range(3)
    ]
    assert all(row.state == "done" and row.claimed_by == "w" and row.prompt_tokens for row in rows)
    assert not Comparison.objects.exists()


def test_a_failure_is_tried_again_and_so_is_what_a_dead_worker_had(draft, by, settings):
    settings.GENERATION_ATTEMPTS = 2
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    failed = []

    def reply(request):
        if not failed:
            failed.append(request.key)
            return GenerationFailure(request.key, "Busy.")
        return "A text."

    write_responses(ScriptedBackend(reply))
    assert [row.state for row in tried(draft)] == ["done"] * 3
    assert max(row.attempts for row in tried(draft)) == 2
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    claim = generation.claim_responses(worker="dead", limit=9)
    generation.release_claim(claim=claim.token, reason="It died.")
    assert [(row.state, row.crashes) for row in tried(draft)] == [("waiting", 1)] * 3


def test_a_failure_for_good_says_its_reason(draft, by):
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    write_responses(
        ScriptedBackend(lambda request: GenerationFailure(request.key, "No such model.", Fault.SETTINGS))
    )
    assert {(row.state, row.failure_reason) for row in tried(draft)} == {("failed", "No such model.")}


def test_after_a_stop_nothing_waits_and_late_texts_are_refused(draft, by):
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    stopped = []

    def reply(request):
        if not stopped:
            stopped.append(trials.stop_trial(experiment_id=draft.pk))
        return "Too late."

    write_batch(worker="w", backend=ScriptedBackend(reply))
    assert stopped == [3]
    assert not tried(draft)


@pytest.mark.parametrize("way", ["change", "start", "again", "delete"])
def test_tried_responses_end_with_the_draft_as_it_was(way, draft, by):
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    write_responses()
    before = {row.pk for row in tried(draft)}
    if way == "change":
        replace_draft(experiment_id=draft.pk, spec=specs.experiment_spec(draft))
    elif way == "start":
        experiments.start(experiment_id=draft.pk)
        advance(experiment_id=draft.pk)
        assert Response.objects.filter(trial__isnull=True).exists()
    elif way == "again":
        trials.start_trial(experiment_id=draft.pk, positions=[1], by=by)
    else:
        delete_experiment(experiment_id=draft.pk, by=by)
    assert not Response.objects.filter(pk__in=before).exists()
    # The row outlives them, for the allowance.
    assert Trial.objects.count() == (2 if way == "again" else 1)


def test_a_person_and_an_experiment_have_an_allowance_a_day(draft, by, settings):
    settings.MOST_TRIED = 5
    other = make_experiment(running=False)
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    for experiment, person, where in (
        (other, by, f"By {by}: 6 tried responses"),
        (draft, make_user(), "In this experiment: 6 tried responses"),
    ):
        with pytest.raises(SpecError, match=where):
            trials.start_trial(experiment_id=experiment.pk, positions=[0], by=person)
    trials.start_trial(experiment_id=other.pk, positions=[0], by=make_user())


def test_of_many_policies_some_are_tried_with_each_level_among_them(by):
    factors = [
        FactorSpec(name, "prompt", {f"{name}{n}": {"text": f"{name} {n}."} for n in range(6)})
        for name in "AB"
    ]
    spec = make_spec()
    spec.factors[:] = factors
    draft = create_experiment(spec=spec)
    trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    levels = {level.name for row in tried(draft) for level in row.policy.levels.all()}
    assert len(tried(draft)) == trials.MOST_POLICIES
    assert len(levels) == 12


def test_old_trials_are_forgotten(draft, by):
    trial = trials.start_trial(experiment_id=draft.pk, positions=[0], by=by)
    Trial.objects.update(asked_at=trial.asked_at - 2 * Trial.KEPT_FOR)
    assert retention.forget_old()["trials"] == 1
    assert not tried(draft)
