"""Replaces and deletes drafts."""

from __future__ import annotations

from dataclasses import fields

from django.db import transaction

from engine.domain.errors import ChangedMeanwhileError, WrongStateError
from engine.domain.specs import ExperimentSpec
from engine.models import AuditEntry, Experiment, PairCount, Response, User
from engine.selectors import specs
from engine.services.audit import record
from engine.services.experiments import Description, check_description, refuse_archived, write_description
from engine.services.locks import locked_experiment
from engine.services.tokens import end_tokens_without_rights


def replace_draft(
    *, experiment_id: int, spec: ExperimentSpec, by: User | None = None, version: int | None = None
) -> Experiment:
    """Make a draft what ``spec`` describes; its people and invitations stay.

    ``version`` is that of the draft from which the description was made (`specs.version_of`); ``None``
    replaces any.

    Raises
    ------
    ChangedMeanwhileError
        The draft has another version by now.
    SpecError
        The description is unusable; the draft stays as it was.
    WrongStateError
        It has been started, or is in the archive.
    """
    return _replace_draft(
        experiment_id=experiment_id, description=check_description(spec), by=by, version=version
    )


@transaction.atomic
def _replace_draft(
    *, experiment_id: int, description: Description, by: User | None, version: int | None
) -> Experiment:
    experiment = _locked_draft(experiment_id)
    refuse_archived(experiment)
    if version is not None and version != specs.version_of(experiment):
        raise ChangedMeanwhileError(
            "The draft was saved in another tab, or by somebody else, since this page was opened. Your input "
            "is kept. Open the draft in another tab to see what is stored. To replace that, save again."
        )
    before = specs.experiment_spec(experiment)
    _empty(experiment)
    experiment = write_description(experiment=experiment, description=description)
    if changed := _differences(before, specs.experiment_spec(experiment)):
        record(
            experiment=experiment,
            by=by,
            action=AuditEntry.Action.EDIT,
            details={"changed": ", ".join(changed)},
        )
    return experiment


def _differences(before: ExperimentSpec, after: ExperimentSpec) -> list[str]:
    """The names of the parts in which two descriptions differ; each setting is a part."""
    parts = [
        field.name
        for field in fields(ExperimentSpec)
        if field.name != "settings" and getattr(before, field.name) != getattr(after, field.name)
    ]
    return parts + [name for name, value in after.settings.items() if before.settings.get(name) != value]


@transaction.atomic
def delete_draft(*, experiment_id: int, by: User | None) -> None:
    """Delete an experiment in which nothing has happened yet.

    Its log stays, without it. The log of the site says that it existed, and who deleted it.

    Raises
    ------
    WrongStateError
        It has been started: then it is kept.
    """
    experiment = _locked_draft(experiment_id)
    record(
        experiment=None,
        by=by,
        action=AuditEntry.Action.DELETE,
        details={"name": experiment.name, "number": experiment.pk},
    )
    members = list(User.objects.filter(memberships__experiment=experiment).order_by("pk").distinct())
    _empty(experiment)
    experiment.delete()
    for member in members:
        end_tokens_without_rights(user=member, by=None)


def _locked_draft(experiment_id: int) -> Experiment:
    experiment = locked_experiment(experiment_id)
    if experiment.state != Experiment.State.DRAFT:
        raise WrongStateError(
            "This experiment has been started, so its setup cannot change: judgments depend on it. "
            "Create a new experiment instead."
        )
    return experiment


def _empty(experiment: Experiment) -> None:
    Response.objects.filter(task__experiment=experiment).delete()
    PairCount.objects.filter(experiment=experiment).delete()
    for rows in (experiment.policies, experiment.factors, experiment.tasks, experiment.gold_items):
        rows.all().delete()
