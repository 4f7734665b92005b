"""Creates, copies and replaces drafts, in which nothing has happened yet; and deletes experiments."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.db.models import Q

from engine.domain.conversations import as_json
from engine.domain.errors import ChangedMeanwhileError, SpecError, WrongStateError
from engine.domain.secret_draws import new_seed
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, TaskSpec
from engine.models import (
    Assignment,
    AuditEntry,
    Comparison,
    Experiment,
    Factor,
    Flag,
    GoldItem,
    Judgment,
    JudgmentVoid,
    Level,
    Membership,
    Opinion,
    PairCount,
    Policy,
    Response,
    ShowingEvent,
    Task,
    Upload,
    User,
)
from engine.selectors import specs
from engine.selectors.rubrics import why_no_judge
from engine.services.audit import record
from engine.services.descriptions import Description, check_description
from engine.services.experiments import refuse_archived, refuse_weaker
from engine.services.locks import lock_by_number, locked_experiment
from engine.services.ready_made import ready_made_responses
from engine.services.tokens import end_tokens_without_rights
from engine.services.trials import drop_tried
from engine.services.uploads import take_upload

_BATCH = 1000


def create_experiment(
    *, spec: ExperimentSpec, by: User | None = None, upload: Upload | None = None
) -> Experiment:
    """Store a draft experiment with everything that its description contains.

    ``by`` makes it, and becomes its owner. ``upload`` is the kept file that it is made from.

    Raises
    ------
    SpecError
        Says which part is unusable and what it should be.
    WrongStateError
        Another worker has imported the file, or its user has cancelled.
    """
    return store_experiment(description=check_description(spec), by=by, upload=upload)


@transaction.atomic
def store_experiment(
    *, description: Description, by: User | None = None, upload: Upload | None = None
) -> Experiment:
    """Store a description that was checked before the transaction: SQLite has one writer at a time."""
    experiment = write_description(experiment=Experiment(maker=by), description=description)
    if by is not None:
        Membership.objects.create(
            experiment=experiment, user=by, role=Membership.Role.OWNER, origin=Membership.Origin.FOUNDER
        )
    take_upload(upload, experiment)
    record(experiment=experiment, by=by, action=AuditEntry.Action.CREATE)
    return experiment


@transaction.atomic
def clone(*, experiment: Experiment, by: User, name: str) -> Experiment:
    """A new draft with the same description and a new random seed. Its owner is ``by``.

    The language model as a judge is dropped if none is configured.

    Raises
    ------
    SpecError
        The name is taken or unusable.
    """
    described = specs.experiment_spec(experiment)
    # With the same seed, the first experiment's pairs would predict the second's.
    settings = {**described.settings, "seed": new_seed()}
    if not settings.get("judge_model") and why_no_judge():
        settings["llm_judge"] = Experiment.LLMJudge.OFF
    spec = replace(described, name=name, settings=settings)
    cloned = create_experiment(spec=spec, by=by)
    record(
        experiment=cloned,
        by=by,
        action=AuditEntry.Action.CLONE,
        details={"source": experiment.name, "source_id": experiment.pk},
    )
    return cloned


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
    description = check_description(spec)
    return _replace_draft(experiment_id=experiment_id, description=description, by=by, version=version)


@transaction.atomic
def _replace_draft(
    *, experiment_id: int, description: Description, by: User | None, version: int | None
) -> Experiment:
    experiment = _locked_draft(experiment_id)
    refuse_archived(experiment)
    # A setting that is left out gets its usual value.
    refuse_weaker(experiment, by, vars(Experiment(**description.spec.settings)))
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
def delete_experiment(*, experiment_id: int, by: User | None) -> None:
    """Delete a draft, or an experiment that has concluded with all that was judged in it.

    Its log stays, without it, and what its models cost. The log of the site says that it existed, and who
    deleted it.

    Raises
    ------
    WrongStateError
        It is running or paused.
    """
    experiment = locked_experiment(experiment_id)
    check_deletable(experiment)
    record(
        experiment=None,
        by=by,
        action=AuditEntry.Action.DELETE,
        details={"name": experiment.name, "number": experiment.pk},
    )
    for tried in experiment.tried_drafts.all():
        discard(tried)
    members = list(User.objects.filter(memberships__experiment=experiment).order_by("pk").distinct())
    if experiment.state == Experiment.State.CONCLUDED:
        _erase_history(experiment)
    _empty(experiment)
    # They stay, without the experiment: its deletion updates them in any order.
    lock_by_number(experiment.trials.all(), no_key=True)
    experiment.delete()
    for member in members:
        end_tokens_without_rights(user=member, by=None)


def discard(draft: Experiment) -> None:
    """Delete a draft that nobody has seen, with what was tried of it."""
    _empty(draft)
    draft.delete()


def check_deletable(experiment: Experiment) -> None:
    """Refuse an experiment in which something may still happen.

    Raises
    ------
    WrongStateError
        It is running or paused.
    """
    if experiment.state in {Experiment.State.RUNNING, Experiment.State.PAUSED}:
        raise WrongStateError("Stop the experiment before you delete it.")


def _erase_history(experiment: Experiment) -> None:
    """Make a draft of a locked experiment: delete everything that happened since its start."""
    experiment.state, experiment.conclusion, experiment.winner = Experiment.State.DRAFT, "", None
    experiment.save(update_fields=["state", "conclusion", "winner"])
    for rows in (experiment.assignments.all(), experiment.comparisons.all()):
        lock_by_number(rows, no_key=False)
    ours = Q(comparison__experiment=experiment)
    judgments = Judgment.objects.filter(ours | Q(assignment__experiment=experiment))
    voids = list(JudgmentVoid.objects.filter(judgment__in=judgments).values_list("pk", flat=True))
    # In an order that the database allows (engine.models.append_only); references are checked at the end.
    for gone in (
        Opinion.objects.filter(ours),
        Flag.objects.filter(ours | Q(assignment__experiment=experiment)),
        ShowingEvent.objects.filter(experiment=experiment),
        judgments,
        JudgmentVoid.objects.filter(pk__in=voids),
        Assignment.objects.filter(experiment=experiment),
        Comparison.objects.filter(experiment=experiment),
    ):
        gone._raw_delete(gone.db)


def _locked_draft(experiment_id: int) -> Experiment:
    experiment = locked_experiment(experiment_id)
    if experiment.state != Experiment.State.DRAFT:
        raise WrongStateError(
            "This experiment has been started, so its setup cannot change: judgments depend on it. "
            "Create a new experiment instead."
        )
    return experiment


def _empty(experiment: Experiment) -> None:
    drop_tried(experiment)
    # The responses left are ready-made, and nobody else changes them.
    Response.objects.filter(task__experiment=experiment).delete()
    PairCount.objects.filter(experiment=experiment).delete()
    for rows in (experiment.policies, experiment.factors, experiment.tasks, experiment.gold_items):
        rows.all().delete()


def check_name(experiment: Experiment) -> None:
    """Refuse a name that another experiment of its maker has.

    Raises
    ------
    SpecError
        It is taken.
    """
    try:
        # The other constraints say nothing of names, and each costs a statement.
        for constraint in Experiment._meta.constraints:
            if isinstance(constraint, models.UniqueConstraint):
                constraint.validate(Experiment, experiment)
    except ValidationError as error:
        raise SpecError(f"name: {' '.join(error.messages)}", ("name",)) from error


def write_description(*, experiment: Experiment, description: Description) -> Experiment:
    """Fill an experiment that has no rows yet with what its checked description says.

    Raises
    ------
    SpecError
        Another experiment of its maker has its name.
    """
    spec = description.spec
    described = Experiment(name=spec.name, **spec.settings)
    for name in ("name", *SETTINGS):
        setattr(experiment, name, getattr(described, name))
    check_name(experiment)
    try:
        with transaction.atomic():
            experiment.save()
    except IntegrityError:
        # Somebody may have taken the name since it was looked up.
        check_name(experiment)
        raise

    policies = _create_policies(experiment, description)
    # One row per pair from the start: a click then only ever updates, and never races to insert.
    PairCount.objects.bulk_create(
        (
            PairCount(experiment=experiment, policy_i=i, policy_j=j)
            for i, j in itertools.combinations(policies, 2)
        ),
        batch_size=_BATCH,
    )
    tasks = Task.objects.bulk_create(task_rows(experiment, spec.tasks))
    GoldItem.objects.bulk_create(
        GoldItem(
            experiment=experiment,
            prompt=gold.prompt,
            messages=as_json(gold.messages),
            better=gold.better,
            worse=gold.worse,
            explanation=gold.explanation,
        )
        for gold in spec.gold
    )
    Response.objects.bulk_create(ready_made_responses(spec, policies, tasks), batch_size=_BATCH)
    return experiment


def _create_policies(experiment: Experiment, description: Description) -> list[Policy]:
    """Store the factors, their levels and the policies made of them; returns the policies, by index."""
    level_rows: list[dict[str, Level]] = []
    for position, spec in enumerate(description.spec.factors):
        factor = Factor.objects.create(
            experiment=experiment, name=spec.name, kind=spec.kind, position=position
        )
        level_rows.append({level.name: level for level in _create_levels(factor, spec)})
    policies = Policy.objects.bulk_create(
        Policy(experiment=experiment, index=i) for i in range(len(description.policies))
    )
    through = Policy.levels.through
    through.objects.bulk_create(
        through(policy_id=policy.pk, level_id=rows[name].pk)
        for policy, combination in zip(policies, description.policies, strict=True)
        for rows, name in zip(level_rows, combination, strict=True)
    )
    return policies


def _create_levels(factor: Factor, spec: FactorSpec) -> list[Level]:
    return Level.objects.bulk_create(
        Level(factor=factor, name=name, value=dict(value), position=position)
        for position, (name, value) in enumerate(spec.levels.items())
    )


def task_rows(
    experiment: Experiment, tasks: Sequence[TaskSpec], *, first: int = 0, joined_at: datetime | None = None
) -> list[Task]:
    """The rows of these tasks, the first one in this position."""
    return [
        Task(
            experiment=experiment,
            position=position,
            prompt=task.prompt,
            reference=task.reference,
            messages=as_json(task.messages),
            variables=dict(task.variables),
            tags=list(task.tags),
            checks=[asdict(check) for check in task.checks],
            joined_at=joined_at,
        )
        for position, task in enumerate(tasks, first)
    ]
