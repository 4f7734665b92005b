"""Changing a draft, as long as it is one."""

from __future__ import annotations

from django.db import transaction

from engine.errors import WrongStateError
from engine.models import Experiment, Response
from engine.services.experiments import write_description
from engine.specs import ExperimentSpec


@transaction.atomic
def replace_draft(*, experiment_id: int, spec: ExperimentSpec) -> Experiment:
    """Make a draft what ``spec`` describes; its people and invitations stay.

    Raises
    ------
    SpecError
        The description is unusable; the draft stays as it was.
    WrongStateError
        It has been started.
    """
    experiment = _locked_draft(experiment_id)
    _empty(experiment)
    return write_description(experiment=experiment, spec=spec)


@transaction.atomic
def delete_draft(*, experiment_id: int) -> None:
    """Delete an experiment in which nothing has happened yet.

    Raises
    ------
    WrongStateError
        It has been started: then it is kept.
    """
    experiment = _locked_draft(experiment_id)
    _empty(experiment)
    experiment.delete()


def _locked_draft(experiment_id: int) -> Experiment:
    experiment = Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)
    if experiment.state != Experiment.State.DRAFT:
        raise WrongStateError(
            "This experiment has been started, so its setup is fixed: judgments rest on it. Make a new one instead."
        )
    return experiment


def _empty(experiment: Experiment) -> None:
    Response.objects.filter(task__experiment=experiment).delete()
    for rows in (experiment.policies, experiment.factors, experiment.tasks, experiment.gold_items):
        rows.all().delete()
