"""The policies of an experiment, and the assumptions of the engine about them."""

import pytest

from engine.core import Factorial, Unstructured
from engine.domain.errors import SpecError
from engine.domain.policy_space import combinations
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.models import Policy
from engine.selectors import designs
from engine.selectors.policies import space_of
from engine.services.drafts import create_experiment

LEVELS = {"prompt": ["plain", "kind"], "strategy": ["direct", "steps", "list"]}


def _spec(**settings: object) -> ExperimentSpec:
    return ExperimentSpec(
        name="Crossed",
        factors=[
            FactorSpec("prompt", "prompt", {"plain": {"text": "a"}, "kind": {"text": "b"}}),
            FactorSpec(
                "strategy",
                "strategy",
                {name: {"instruction": name} for name in ("direct", "steps", "list")},
            ),
        ],
        tasks=[TaskSpec("1 + 1?")],
        settings=settings,
    )


def test_all_combinations_come_in_the_order_of_the_levels() -> None:
    assert combinations(LEVELS, [])[:4] == [
        ("plain", "direct"),
        ("plain", "steps"),
        ("plain", "list"),
        ("kind", "direct"),
    ]


def test_an_exclusion_leaves_out_every_tuple_that_has_its_levels() -> None:
    assert combinations(LEVELS, [{"strategy": "list"}, {"prompt": "kind", "strategy": "steps"}]) == [
        ("plain", "direct"),
        ("plain", "steps"),
        ("kind", "direct"),
    ]


@pytest.mark.parametrize(
    ("exclusion", "word"),
    [({"mood": "plain"}, "mood"), ({"prompt": "rude"}, "rude"), ({}, "written"), ("plain", "written")],
)
def test_an_exclusion_that_fits_nothing_is_refused(exclusion: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        combinations(LEVELS, [exclusion])


@pytest.mark.django_db
def test_the_stored_policies_are_the_rows_of_the_space() -> None:
    experiment = create_experiment(
        spec=_spec(space="factorial", excluded=[{"prompt": "kind", "strategy": "list"}])
    )
    space = space_of(experiment)
    assert isinstance(space, Factorial)
    assert space.columns == ("prompt=kind", "strategy=steps", "strategy=list")
    stored = [
        tuple(policy.levels.order_by("factor__position").values_list("name", flat=True))
        for policy in Policy.objects.filter(experiment=experiment)
    ]
    assert stored == list(space.policies)
    assert designs.load(experiment).design.n_policies == 5


@pytest.mark.django_db
def test_nothing_is_assumed_by_default() -> None:
    assert space_of(create_experiment(spec=_spec())) == Unstructured(6)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"excluded": [{"prompt": "rude"}]}, "rude"),
        ({"excluded": [{"prompt": "kind"}, {"strategy": "list"}, {"strategy": "steps"}]}, "only one policy"),
        ({"space": "factorial", "excluded": [{"prompt": "kind"}]}, "prompt=kind"),
    ],
)
def test_a_space_that_cannot_be_told_apart_is_refused(asked: dict[str, object], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        create_experiment(spec=_spec(**asked))
