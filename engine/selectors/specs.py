"""An experiment's description, read back from its rows."""

from __future__ import annotations

from engine.models import Experiment
from engine.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, TaskSpec


def experiment_spec(experiment: Experiment) -> ExperimentSpec:
    """The description that would make this experiment anew: every setting is named, whether usual or not.

    What has happened to it (its state, people, comparisons) is no part of it.
    """
    return ExperimentSpec(
        name=experiment.name,
        factors=[
            FactorSpec(factor.name, factor.kind, {level.name: level.value for level in factor.levels.all()})
            for factor in experiment.factors.prefetch_related("levels")
        ],
        tasks=[
            TaskSpec(prompt, reference)
            for prompt, reference in experiment.tasks.values_list("prompt", "reference")
        ],
        settings={name: getattr(experiment, name) for name in SETTINGS},
        gold=[
            GoldSpec(gold.prompt, gold.better, gold.worse, gold.explanation)
            for gold in experiment.gold_items.order_by("pk")
        ],
    )
