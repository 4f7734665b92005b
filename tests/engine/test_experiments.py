"""Making experiments, and the states they move through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core import StopReason
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.models import Comparison, Experiment, Level, PairCount, Response
from engine.services.experiments import create_experiment, discard_leftovers, pause, start, stop
from engine.services.generation import claim_responses
from engine.services.planning import advance
from tests.factories import lease, make_experiment, make_spec, write_responses

pytestmark = pytest.mark.django_db


def two_factor_spec(**settings: Any) -> ExperimentSpec:
    return ExperimentSpec(
        name="Crossed",
        factors=[
            FactorSpec("Prompt", "prompt", {"Kind": {"text": "Be kind."}, "Terse": {"text": "Be terse."}}),
            FactorSpec(
                "Strategy",
                "strategy",
                {
                    "Direct": {"instruction": "Answer directly."},
                    "Steps": {"instruction": "Think step by step."},
                    "None": {},
                },
            ),
        ],
        tasks=[TaskSpec("What is 1 + 1?", "2"), TaskSpec("What is 2 + 2?", "4")],
        settings=settings,
    )


class TestCreate:
    def test_the_policies_are_the_product_of_the_levels_with_the_last_factor_turning_fastest(self):
        experiment = create_experiment(spec=two_factor_spec())
        names = [
            tuple(policy.levels.order_by("factor__position").values_list("name", flat=True))
            for policy in experiment.policies.all()
        ]
        assert names == [
            ("Kind", "Direct"),
            ("Kind", "Steps"),
            ("Kind", "None"),
            ("Terse", "Direct"),
            ("Terse", "Steps"),
            ("Terse", "None"),
        ]
        assert [policy.label for policy in experiment.policies.all()] == ["P1", "P2", "P3", "P4", "P5", "P6"]

    def test_every_pair_has_one_count_that_starts_at_nothing(self):
        experiment = create_experiment(spec=two_factor_spec())
        pairs = PairCount.objects.filter(experiment=experiment).values_list(
            "policy_i__index", "policy_j__index", "wins_i", "comparisons"
        )
        assert sorted(pairs) == [(i, j, 0.0, 0) for i in range(6) for j in range(i + 1, 6)]

    def test_levels_and_tasks_keep_their_order_and_content(self):
        experiment = create_experiment(spec=two_factor_spec())
        assert list(experiment.factors.values_list("name", "kind", "position")) == [
            ("Prompt", "prompt", 0),
            ("Strategy", "strategy", 1),
        ]
        level = Level.objects.get(name="Steps")
        assert (level.position, level.value) == (1, {"instruction": "Think step by step."})
        assert list(experiment.tasks.values_list("prompt", "reference")) == [
            ("What is 1 + 1?", "2"),
            ("What is 2 + 2?", "4"),
        ]

    def test_a_new_experiment_is_a_draft_that_has_planned_nothing(self):
        experiment = create_experiment(spec=two_factor_spec(delta=0.1, budget=7))
        assert (experiment.state, experiment.conclusion, experiment.winner) == ("draft", "", None)
        assert (experiment.delta, experiment.budget, experiment.planned_count) == (0.1, 7, 0)
        assert not Comparison.objects.exists()

    def test_tasks_of_people_need_no_reference(self):
        spec = replace(two_factor_spec(), tasks=[TaskSpec("Write a poem.")])
        assert create_experiment(spec=spec).tasks.get().reference == ""


PROMPT = FactorSpec("Prompt", "prompt", {"A": {"text": "a"}, "B": {"text": "b"}})
ONE_LEVEL = FactorSpec("Prompt", "prompt", {"A": {"text": "a"}})
TASK = TaskSpec("What is 1 + 1?", "2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factors": []}, "at least one factor"),
        ({"factors": [PROMPT, FactorSpec("Strategy", "strategy", {})]}, "at least one level for each factor"),
        ({"tasks": []}, "at least one task"),
        ({"factors": [ONE_LEVEL]}, "only one policy"),
        (
            {"tasks": [TASK, TaskSpec("Why?", "  ")], "settings": {"judge": "rule"}},
            r"reference answer for every task; 'Why\?' has none",
        ),
        (
            {"factors": [FactorSpec("Mood", "mood", {"A": {}, "B": {}})]},
            "Factor 'Mood'.*'mood' is not a kind of factor",
        ),
        (
            {"factors": [FactorSpec("Prompt", "prompt", {"A": {"text": "a"}, "B": {"txt": "b"}})]},
            "Factor 'Prompt', level 'B': A prompt level has no txt",
        ),
        (
            {
                "factors": [
                    FactorSpec("Draw", "sampling", {"Cold": {"temperature": 0}, "Odd": {"temperature": -1}})
                ]
            },
            "Factor 'Draw', level 'Odd': temperature must be at least 0",
        ),
        ({"factors": [PROMPT, PROMPT]}, "Two factors are named 'Prompt'"),
        ({"factors": [replace(PROMPT, name="x" * 101)]}, "Factor 'x+'.*100 characters"),
        ({"factors": [replace(PROMPT, name="")]}, "Factor ''.*blank"),
        (
            {"factors": [FactorSpec("Prompt", "prompt", {"A": {"text": "a"}, "x" * 101: {"text": "b"}})]},
            "Factor 'Prompt', level 'x+'.*100 characters",
        ),
        ({"name": ""}, "name: .*blank"),
        ({"name": "x" * 201}, "name: .*200 characters"),
        ({"settings": {"judge": "dice"}}, "judge: .*not a valid choice"),
        ({"settings": {"rule_preference": "long"}}, "rule_preference: .*not a valid choice"),
        ({"settings": {"delta": 0.0}}, "delta: "),
        ({"settings": {"delta": 0.5}}, "delta"),
        ({"settings": {"delta": float("nan")}}, "delta"),
        ({"settings": {"epsilon": -0.1}}, "epsilon: "),
        ({"settings": {"epsilon": 0.45}}, "epsilon: "),
        ({"settings": {"budget": 0}}, "budget: "),
        ({"settings": {"seed": -1}}, "seed: "),
        ({"settings": {"sampler": "clairvoyant"}}, "sampler must be one of .*'clairvoyant'"),
        ({"settings": {"stopping": "hunch"}}, "stopping must be one of .*'hunch'"),
        ({"settings": {"colour": "red"}}, "Unknown setting: colour"),
        ({"settings": {"state": "running"}}, "Unknown setting: state"),
    ],
)
def test_an_unusable_description_is_refused_with_what_is_wrong_and_leaves_nothing_behind(change, message):
    spec = replace(ExperimentSpec(name="Fine", factors=[PROMPT], tasks=[TASK]), **change)
    with pytest.raises(SpecError, match=message):
        create_experiment(spec=spec)
    assert not Experiment.objects.exists()


def test_two_experiments_cannot_have_the_same_name():
    create_experiment(spec=make_spec(name="Twice"))
    with pytest.raises(SpecError, match=r"name: .*of this name already"):
        create_experiment(spec=make_spec(name="Twice"))


class TestStates:
    def test_start_pause_start_keeps_the_first_start_time(self):
        experiment = make_experiment(running=False)
        first = start(experiment_id=experiment.pk)
        assert first.state == Experiment.State.RUNNING
        assert pause(experiment_id=experiment.pk).state == Experiment.State.PAUSED
        again = start(experiment_id=experiment.pk)
        assert again.state == Experiment.State.RUNNING
        assert again.started_at == first.started_at

    @pytest.mark.parametrize("before", ["running", "concluded"])
    def test_only_a_draft_or_paused_experiment_can_be_started(self, before):
        experiment = in_state(before)
        with pytest.raises(WrongStateError, match=f"draft or paused .* is {before}"):
            start(experiment_id=experiment.pk)

    @pytest.mark.parametrize("before", ["draft", "paused", "concluded"])
    def test_only_a_running_experiment_can_be_paused(self, before):
        experiment = in_state(before)
        with pytest.raises(WrongStateError, match=f"running .* is {before}"):
            pause(experiment_id=experiment.pk)

    @pytest.mark.parametrize("before", ["draft", "concluded"])
    def test_only_a_running_or_paused_experiment_can_be_stopped(self, before):
        experiment = in_state(before)
        with pytest.raises(WrongStateError, match=f"running or paused .* is {before}"):
            stop(experiment_id=experiment.pk)

    @pytest.mark.parametrize("before", ["running", "paused"])
    def test_stopping_by_hand_names_no_winner(self, before):
        experiment = in_state(before)
        stop(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert (experiment.state, experiment.conclusion, experiment.winner) == ("concluded", "stopped", None)
        assert experiment.concluded_at is not None

    def test_an_experiment_that_does_not_exist_cannot_be_started(self):
        with pytest.raises(Experiment.DoesNotExist):
            start(experiment_id=12345)


def in_state(state: str) -> Experiment:
    experiment = make_experiment(running=state != "draft")
    if state == "paused":
        pause(experiment_id=experiment.pk)
    if state == "concluded":
        stop(experiment_id=experiment.pk)
    return experiment


class TestConclusion:
    def test_it_has_a_label_for_every_reason(self):
        choices = dict(Experiment._meta.get_field("conclusion").choices)
        assert [reason.value for reason in StopReason] == list(choices)

    def test_what_was_planned_or_ready_is_discarded_with_its_reason(self):
        experiment = make_experiment(ready=True)
        advance(experiment_id=experiment.pk)
        stop(experiment_id=experiment.pk)
        states = set(experiment.comparisons.values_list("state", "discard_reason"))
        assert states == {("discarded", "The experiment concluded before this comparison was needed.")}

    def test_nothing_waits_to_be_written_any_longer(self):
        experiment = make_experiment()
        stop(experiment_id=experiment.pk)
        assert set(Response.objects.values_list("state", "failure_reason")) == {
            ("failed", "The experiment concluded before this comparison was needed.")
        }
        assert claim_responses(worker="w", limit=10).responses == []

    def test_another_experiment_goes_on_undisturbed(self):
        stopped, other = make_experiment(), make_experiment()
        stop(experiment_id=stopped.pk)
        assert set(other.comparisons.values_list("state", flat=True)) == {"planned"}
        assert write_responses() == {other.pk}

    def test_what_is_handed_back_in_that_very_moment_is_discarded_by_the_sweep(self):
        """A skip that read "running" just before puts its pair back to ready just after."""
        experiment, running = make_experiment(ready=True), make_experiment(ready=True)
        stop(experiment_id=experiment.pk)
        late = experiment.comparisons.first()
        Comparison.objects.filter(pk=late.pk).update(state="ready", discard_reason="")
        discard_leftovers()
        late.refresh_from_db()
        assert (late.state, late.discard_reason) == (
            "discarded",
            "The experiment concluded before this comparison was needed.",
        )
        assert set(running.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_what_an_annotator_is_looking_at_stays_theirs(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = lease(experiment, annotator)
        stop(experiment_id=experiment.pk)
        held.comparison.refresh_from_db()
        assert held.comparison.state == Comparison.State.LEASED
        assert lease(experiment, annotator) == held


def test_what_is_handed_back_as_an_experiment_concludes_is_discarded_by_the_next_sweep():
    experiment = make_experiment()
    stop(experiment_id=experiment.pk)
    late = experiment.comparisons.order_by("pk").first()
    Comparison.objects.filter(pk=late.pk).update(state=Comparison.State.READY)
    discard_leftovers()
    late.refresh_from_db()
    assert late.state == Comparison.State.DISCARDED
    assert "concluded" in late.discard_reason
