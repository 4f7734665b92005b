"""Rows for tests, made through the services that make them in earnest."""

from __future__ import annotations

import itertools
from typing import Any

from django.contrib.auth.models import User

from engine.models import Experiment, Membership
from engine.services.experiments import ExperimentSpec, FactorSpec, TaskSpec, create_experiment, start
from engine.services.planning import advance

_numbers = itertools.count(1)


def make_user(name: str | None = None, **fields: Any) -> User:
    return User.objects.create_user(name or f"user{next(_numbers)}", password="a long password", **fields)


def make_spec(n_policies: int = 3, n_tasks: int = 5, **settings: Any) -> ExperimentSpec:
    """One prompt factor with ``n_policies`` levels; tasks whose reference answers are their numbers."""
    return ExperimentSpec(
        name=settings.pop("name", f"Experiment {next(_numbers)}"),
        factors=[
            FactorSpec(
                name="System prompt",
                kind="prompt",
                levels={f"Prompt {k}": {"text": f"quality {k}"} for k in range(n_policies)},
            )
        ],
        tasks=[TaskSpec(prompt=f"What is {n} + 0?", reference=str(n)) for n in range(n_tasks)],
        settings=settings,
    )


def make_experiment(
    *, running: bool = True, planned: bool = True, annotators: tuple[User, ...] = (), **spec: Any
) -> Experiment:
    """An experiment, started and with its first comparisons planned unless told otherwise."""
    experiment = create_experiment(spec=make_spec(**spec))
    for user in annotators:
        Membership.objects.create(experiment=experiment, user=user, role=Membership.Role.ANNOTATOR)
    if running:
        start(experiment_id=experiment.pk)
        if planned:
            advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    return experiment
