"""The strengths of a draft's policies, as far as the experiment that it copies has measured them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.core.types import FloatArray
from engine.models import AuditEntry, Experiment
from engine.selectors import designs


def source_of(draft: Experiment) -> Experiment | None:
    """The experiment that a draft was copied from, if it was and that one is still there."""
    copied = AuditEntry.objects.filter(experiment=draft, action=AuditEntry.Action.CLONE).first()
    return None if copied is None else Experiment.objects.filter(pk=copied.details["source_id"]).first()


def measured_strengths(source: Experiment, policies: Sequence[Mapping[str, Any]]) -> FloatArray | None:
    """Shape (M, K): drawn from what an experiment has measured; ``None`` where that is nothing about these.

    A policy that is new differs from the others as much as they differ from each other.

    Parameters
    ----------
    policies
        The value of each factor's level, by the factor's name.
    """
    design = designs.stored(source).design
    stored = source.policies.composable()
    index = {_key({each.factor.name: each.value for each in one.levels.all()}): one.index for one in stored}
    places = [index.get(_key(policy)) for policy in policies]
    if not design.n_comparisons or all(place is None for place in places):
        return None
    return with_new(design.drawn_strengths(), places)


def with_new(drawn: FloatArray, places: Sequence[int | None]) -> FloatArray:
    """Shape (M, K): the draws of the policies at these places; None is one that is new."""
    noise = np.random.default_rng(0).standard_normal((drawn.shape[0], len(places)))
    strengths: FloatArray = drawn.mean(axis=1, keepdims=True) + drawn.std(axis=1, keepdims=True) * noise
    for k, place in enumerate(places):
        if place is not None:
            strengths[:, k] = drawn[:, place]
    return strengths


def _key(policy: Mapping[str, Any]) -> str:
    return json.dumps(policy, sort_keys=True)
