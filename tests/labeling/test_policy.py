"""The page of one policy, its request as a file, and the setup that can be read after the start."""

import json
import re

import pytest
from django.urls import reverse

from engine.domain.policy_space import names_of
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.models import Experiment, Response
from engine.selectors.rivals import weakest_tasks
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from tests.backends import ScriptedBackend
from tests.factories import (
    add_member,
    assign,
    click,
    click_for,
    click_on,
    copy_of,
    make_experiment,
    write_responses,
)
from tests.markup import text_of

pytestmark = pytest.mark.django_db


def page(client, experiment: Experiment, number: int = 1, **query: str):
    return client.get(reverse("policy", args=[experiment.pk, number]), query)


@pytest.fixture
def made(annotator, viewer) -> Experiment:
    """Two prompts with a strategy, a guardrail and sampling parameters that do not vary."""
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Refunds",
            factors=[
                FactorSpec("Style", "prompt", {"Terse": {"text": "Be brief."}, "Long": {"text": "Go on."}}),
                FactorSpec("Strategy", "strategy", {"Steps": {"instruction": "Think first."}}),
                FactorSpec(
                    "Safety",
                    "guardrail",
                    {"Strict": {"instruction": "No promises.", "output_block": ["lawyer"]}},
                ),
                FactorSpec("Sampling", "sampling", {"Cool": {"temperature": 0.2, "top_k": 9, "stop": ["#"]}}),
            ],
            tasks=[TaskSpec(f"Where is refund {n}?") for n in range(3)],
            settings={"seed": 0, "guidelines": "Prefer the *kind* one."},
        )
    )
    add_member(experiment, annotator)
    add_member(experiment, viewer, "viewer")
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    write_responses(ScriptedBackend(lambda request: f"text {request.seed}"))
    return experiment


class TestNames:
    def test_they_are_the_levels_that_vary_and_no_two_are_the_same(self):
        levels = {"A": ["x", "x · y"], "B": ["y · z", "z"], "C": ["only"]}
        policies = [("x", "y · z", "only"), ("x", "z", "only"), ("x · y", "z", "only")]
        assert [(each.short, each.name) for each in names_of(levels, policies)] == [
            ("P1", "x · y · z (P1)"),
            ("P2", "x · z"),
            ("P3", "x · y · z (P3)"),
        ]
        assert names_of(levels, policies)[1].levels == ("x", "z", "only")


class TestHowItIsAsked:
    def test_the_page_has_the_messages_the_parameters_and_the_guardrail(self, made, viewer, client_for):
        html = page(client_for(viewer), made).content.decode()
        said = text_of(html)
        assert "Terse" in said
        assert ">Be brief.\nNo promises.</pre>" in html
        assert "{{task}}\n\nThink first.</pre>" in html
        assert "Where is refund 0?\n\nThink first.</pre>" in html, "the exact message for a task"
        assert "Temperature 0.2" in said
        assert "Replaces responses with lawyer" in said
        assert "your own system has to apply it" in said

    def test_the_request_is_what_a_server_of_openais_protocol_takes(self, made, viewer, client_for):
        answer = client_for(viewer).get(reverse("policy_request", args=[made.pk, 1]))
        assert answer["Content-Disposition"] == 'attachment; filename="refunds-P1.json"'
        assert json.loads(answer.content) == {
            "model": "scripted-1",
            "messages": [
                {"role": "system", "content": "Be brief.\nNo promises."},
                {"role": "user", "content": "{{task}}\n\nThink first."},
            ],
            "temperature": 0.2,
            "stop": ["#"],
            "top_k": 9,
        }

    def test_a_number_without_a_policy_is_not_found(self, made, viewer, client_for):
        for number in (0, 3):
            for view in ("policy", "policy_request"):
                assert client_for(viewer).get(reverse(view, args=[made.pk, number])).status_code == 404

    def test_responses_from_a_file_have_no_request(self, viewer, client_for):
        experiment = make_experiment(running=False)
        Experiment.objects.filter(pk=experiment.pk).update(responses="imported")
        add_member(experiment, viewer, "viewer")
        assert "written elsewhere" in text_of(page(client_for(viewer), experiment).content.decode())
        address = reverse("policy_request", args=[experiment.pk, 1])
        assert client_for(viewer).get(address).status_code == 404


class TestItsResults:
    def test_against_each_rival_and_each_response_with_its_outcome(self, annotator, viewer, client_for):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        add_member(experiment, viewer, "viewer")
        for _ in range(6):
            click_for(experiment, annotator, lambda i, j: i < j)
            advance(experiment_id=experiment.pk)
            write_responses()
        met = experiment.comparisons.filter(state="judged", policy_i__index=0)
        said = text_of(page(client_for(viewer), experiment).content.decode())
        assert said.count("Preferred ·") == met.count() > 0
        assert "Not preferred" not in said
        for rival in (1, 2):
            n = met.filter(policy_j__index=rival).count()
            assert f"Prompt {rival} {'100%' if n else '–'} {n}" in said

    def test_they_come_in_pages(self, annotator, viewer, client_for):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,))
        add_member(experiment, viewer, "viewer")
        click_on(experiment, annotator, 1)
        only = experiment.comparisons.get(state="judged")
        for _ in range(24):
            copy_of(only)
        client = client_for(viewer)
        first = page(client, experiment).content.decode()
        assert first.count('<article class="example">') == 20
        older = re.search(r'rel="next" href="\?before=(\d+)"', first)[1]
        second = page(client, experiment, before=older).content.decode()
        assert second.count('<article class="example">') == 5
        assert 'rel="prev"' in second
        assert 'rel="next"' not in second
        assert page(client, experiment, before="nonsense").status_code == 200

    def test_its_responses_are_those_of_one_tag(self, annotator, viewer, client_for):
        experiment = make_experiment(n_policies=2, n_tasks=2, ready=True, annotators=(annotator,))
        add_member(experiment, viewer, "viewer")
        judged = click(experiment, annotator).comparison
        client = client_for(viewer)
        assert b'name="tag"' not in page(client, experiment).content
        experiment.tasks.filter(pk=judged.task_id).update(tags=["it's"])
        experiment.tasks.exclude(pk=judged.task_id).update(tags=["b & c"])
        address = reverse("comparison", args=[experiment.pk, judged.pk])
        for query, shown in (({}, True), ({"tag": "it's"}, True), ({"tag": "b & c"}, False)):
            assert (address in page(client, experiment, **query).content.decode()) == shown

    def test_a_response_that_somebody_may_still_judge_is_not_told(self, annotator, client_for):
        """A person who annotates and watches sees the page, with the finished pairs alone."""
        experiment = make_experiment(ready=True, annotators=(annotator,))
        add_member(experiment, annotator, "viewer")
        for response in Response.objects.all():
            Response.objects.filter(pk=response.pk).update(text=f"the text of response {response.pk}.")
        judged = click(experiment, annotator).comparison
        held = assign(experiment, annotator).comparison
        client = client_for(annotator)
        said = " ".join(text_of(page(client, experiment, number).content.decode()) for number in (1, 2, 3))
        for response in (judged.response_i_id, judged.response_j_id):
            assert f"the text of response {response}." in said
        shown = set(map(int, re.findall(r"the text of response (\d+)\.", said)))
        assert shown == {judged.response_i_id, judged.response_j_id}
        assert held.response_i_id not in shown

    def test_the_weakest_tasks_are_those_it_lost_most_often(self, annotator):
        experiment = make_experiment(n_policies=2, n_tasks=2, ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 1)
        only = experiment.comparisons.get(state="judged")
        first, second = experiment.tasks.all()
        experiment.comparisons.filter(state="judged").update(state="discarded", outcome=None)
        for task, outcomes in ((first, (1.0, 1.0, 0.5, 0.0)), (second, (1.0, 0.0))):
            for outcome in outcomes:
                copy_of(only, task_id=task.pk, outcome=outcome)
        weak = weakest_tasks(experiment.policies.get(index=0))
        assert [(each.task, each.comparisons, each.share) for each in weak] == [(first, 4, 0.625)]
        [other] = weakest_tasks(experiment.policies.get(index=1))
        assert other.share == 0.375


class TestSetupAfterTheStart:
    def test_everybody_who_watches_reads_prompts_parameters_tasks_and_guidelines(
        self, made, viewer, client_for
    ):
        said = text_of(client_for(viewer).get(reverse("setup", args=[made.pk])).content.decode())
        for expected in ("Be brief.", "Think first.", "Output block lawyer", "Temperature 0.2",
                         "Where is refund 2?", "Prefer the kind one.", "Terse Long", "is fixed"):  # fmt: skip
            assert expected in said
