"""An experiment's description, read back from its rows."""

from dataclasses import replace

import pytest

from engine.models import Experiment
from engine.selectors import specs
from engine.services.drafts import create_experiment
from tests.factories import make_spec

pytestmark = pytest.mark.django_db


def test_what_was_described_is_read_back():
    spec = make_spec(n_policies=3, n_gold=2, delta=0.1, practice=1, excluded=[{"System prompt": "Prompt 1"}])
    read = specs.experiment_spec(create_experiment(spec=spec))
    assert {name: read.settings[name] for name in spec.settings} == spec.settings
    assert replace(read, settings=spec.settings) == spec


def test_a_description_read_back_makes_the_same_experiment_again():
    first = specs.experiment_spec(create_experiment(spec=make_spec(name="First")))
    again = create_experiment(spec=replace(first, name="Again"))
    assert replace(specs.experiment_spec(again), name="First") == first
    assert Experiment.objects.count() == 2
