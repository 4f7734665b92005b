"""Making drafts: what is stored of a description, and which descriptions are refused."""

from dataclasses import replace
from typing import Any

import pytest

from engine.domain.errors import SpecError
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.models import Comparison, Experiment, Level, PairCount
from engine.services.drafts import create_experiment
from tests.factories import make_spec

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


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
        ({"factors": [ONE_LEVEL]}, "only one policy"),
        (
            {"tasks": [TASK, TaskSpec("Why?", "  ")], "settings": {"judge": "rule"}},
            r"for every task; 'Why\?' has none",
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
