"""The origin of a comparison's responses: new, written once, or imported."""

from dataclasses import replace

import pytest
from django.db.models import F

from engine.domain.errors import SpecError
from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.importing.items import read_responses
from engine.models import Comparison, Experiment, Response
from engine.selectors import specs
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.generation import claim_responses, store_outcomes
from engine.services.planning import advance
from tests.factories import (
    SECRET,
    add_member,
    click_on,
    hopeless,
    make_experiment,
    make_user,
    write_responses,
)

pytestmark = pytest.mark.django_db

ANSWERS = """\
task,policy,response,reference
One?,A,1,1
One?,B,one,
One?,A,I,1
Two?,A,2,2
Two?,B,two,2
Three?,B,three,3
"""


def imported_spec(text: str = ANSWERS, **settings: object) -> ExperimentSpec:
    answers = read_responses(text)
    return ExperimentSpec(
        name="Imported",
        factors=[FactorSpec("Policy", "imported", {name: {} for name in answers.policies})],
        tasks=answers.tasks,
        settings={"responses": "imported"} | settings,
        ready_made=answers.responses,
    )


def started(spec: ExperimentSpec) -> Experiment:
    experiment = create_experiment(spec=spec)
    start(experiment_id=experiment.pk)
    return experiment


class TestImported:
    def test_comparisons_are_ready_at_once_and_drawn_from_the_tasks_in_common(self):
        experiment = started(imported_spec(judge="rule"))
        advanced = advance(experiment_id=experiment.pk)
        comparisons = list(Comparison.objects.select_related("task", "response_i", "response_j"))
        assert advanced.planned == advanced.ready == len(comparisons) > 20
        assert {c.state for c in comparisons} == {"ready"}
        assert {c.task.prompt for c in comparisons} == {"One?", "Two?"}
        assert {(c.response_i.text, c.response_j.text) for c in comparisons} == {
            ("1", "one"),
            ("I", "one"),
            ("2", "two"),
        }
        assert all(c.task_id == c.response_i.task_id == c.response_j.task_id for c in comparisons)
        assert Response.objects.count() == 6

    def test_the_same_seed_and_secret_draw_the_same(self):
        drawn = []
        for name in ("First", "Second"):
            experiment = started(replace(imported_spec(judge="rule", seed=5), name=name))
            Experiment.objects.filter(pk=experiment.pk).update(secret=SECRET)
            advance(experiment_id=experiment.pk)
            rows = experiment.comparisons.order_by("pk").values_list("response_i__text", "response_j__text")
            drawn.append(list(rows))
        assert drawn[0] == drawn[1]

    def test_it_is_judged_to_its_end_without_anybody_generating(self):
        experiment = started(imported_spec(budget=12))
        for ann in (make_user() for _ in range(4)):
            add_member(experiment, ann)
            advance(experiment_id=experiment.pk)
            # Each of them sees the three pairs of texts once.
            click_on(experiment, ann, 3)
        experiment.refresh_from_db()
        assert experiment.conclusion in {"budget", "certified"}
        assert Response.objects.count() == 6

    def test_its_description_is_read_back(self):
        spec = imported_spec()
        read = specs.experiment_spec(create_experiment(spec=spec))
        assert replace(read, settings=spec.settings, gold=spec.gold) == spec

    def test_policies_without_a_task_in_common_are_refused(self):
        spec = imported_spec("task,policy,response\nOne?,A,1\nTwo?,B,2\n")
        with pytest.raises(SpecError, match="'A' and 'B' have no task in common"):
            create_experiment(spec=spec)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"settings": {}}, "the setting “responses: imported”"),
            (
                {"factors": [FactorSpec("P", "prompt", {"A": {"text": ""}, "B": {"text": ""}})]},
                "kind imported",
            ),
            ({"tasks": [TaskSpec("One?")] * 3}, "Two tasks are identical"),
            ({"ready_made": [ReadyMade(0, "C", "x")]}, "which is not a policy"),
            ({"ready_made": []}, "no task in common"),
        ],
    )
    def test_what_does_not_fit_together_is_refused(self, changes, message):
        with pytest.raises(SpecError, match=message):
            create_experiment(spec=replace(imported_spec(), **changes))
        assert not Experiment.objects.exists()


class TestReuse:
    def test_a_policy_answers_a_task_once(self, settings):
        settings.BUFFER_MIN = 40
        experiment = make_experiment(n_tasks=2, responses="reuse", judge="rule", ready=True)
        comparisons = experiment.comparisons.all()
        assert comparisons.count() == 40
        assert Response.objects.count() == 6
        assert {c.state for c in comparisons} == {"ready"}

    def test_what_is_written_already_is_ready_at_once(self, annotator):
        experiment = make_experiment(n_tasks=1, responses="reuse", ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 3)
        assert Response.objects.filter(state="done").count() == Response.objects.count() == 3

    def test_a_failed_response_is_written_anew(self, settings):
        settings.BUFFER_MIN = 1
        experiment = make_experiment(n_policies=2, n_tasks=1, responses="reuse")
        claim = claim_responses(worker="w", limit=1)
        failed = [hopeless(r.pk) for r in claim.responses]
        store_outcomes(claim=claim.token, outcomes=failed)
        assert experiment.comparisons.get().state == "discarded"
        advance(experiment_id=experiment.pk)
        write_responses()
        assert experiment.comparisons.filter(state="ready").count() == 1

    def test_another_comparison_keeps_the_half_that_is_left_of_a_discarded_one(self, settings):
        settings.BUFFER_MIN = 12
        experiment = make_experiment(n_policies=3, n_tasks=1, responses="reuse")
        claim = claim_responses(worker="w", limit=1)
        broken = claim.responses[0]
        store_outcomes(claim=claim.token, outcomes=[hopeless(broken.pk)])
        write_responses()
        states = {
            (broken.pk in (c.response_i_id, c.response_j_id), c.state) for c in experiment.comparisons.all()
        }
        assert states == {(True, "discarded"), (False, "ready")}

    def test_one_planned_while_its_response_was_being_stored_is_settled_by_the_next_advance(self):
        experiment = make_experiment(n_tasks=1, responses="reuse")
        Response.objects.update(state=Response.State.DONE, text="written meanwhile", digest=F("pk"))
        advance(experiment_id=experiment.pk)
        assert {c.state for c in experiment.comparisons.all()} == {"ready"}
