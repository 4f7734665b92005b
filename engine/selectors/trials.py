"""The trial of a draft, as far as it has come."""

from __future__ import annotations

from engine.models import Experiment, Response


def tried_responses(experiment: Experiment) -> list[Response]:
    """The responses of the draft's trial, by task and then by policy; empty without a trial.

    A policy's levels are at hand too, so that its messages can be composed without further queries.
    """
    tried = Response.objects.filter(trial__experiment=experiment)
    return list(
        tried.select_related("task", "policy__experiment")
        .prefetch_related("policy__levels__factor")
        .order_by("task__position", "policy__index")
    )
