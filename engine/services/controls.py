"""What an admin may do to an experiment besides starting and stopping it. Everything goes into the audit log."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from engine import selectors
from engine.errors import SpecError, WrongStateError
from engine.models import AuditEntry, Experiment
from engine.services.audit import record
from engine.services.experiments import create_experiment, locked
from engine.services.snapshots import write_snapshot


@transaction.atomic
def change_settings(
    *,
    experiment_id: int,
    by: User | None,
    budget: int | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
) -> Experiment:
    """Change what is given of an experiment that has not concluded.

    The evidence is replayed, so that the next decision rests on the new settings alone.

    Raises
    ------
    SpecError
        A value is out of range.
    WrongStateError
        The experiment has concluded: reopen it with the new settings instead.
    """
    experiment = locked(experiment_id)
    if experiment.state == Experiment.State.CONCLUDED:
        raise WrongStateError("The experiment has concluded. Reopen it with the new settings instead.")
    _change(experiment, by, budget=budget, delta=delta, epsilon=epsilon)
    return experiment


@transaction.atomic
def reopen(
    *,
    experiment_id: int,
    by: User | None,
    budget: int | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
) -> Experiment:
    """Concluded → running, with the settings that are given.

    Raises
    ------
    SpecError
        A value is out of range.
    WrongStateError
        It has not concluded, is in the archive, or would conclude again at once.
    """
    experiment = locked(experiment_id)
    if experiment.state != Experiment.State.CONCLUDED:
        raise WrongStateError(f"Only a concluded experiment can be reopened; this one is {experiment.state}.")
    if experiment.archived_at is not None:
        raise WrongStateError("The experiment is in the archive; take it out first.")
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.REOPEN,
        details={
            "comparisons": selectors.comparison_count(experiment.pk),
            "conclusion": experiment.get_conclusion_display(),
        },
    )
    _change(experiment, by, budget=budget, delta=delta, epsilon=epsilon)
    design = selectors.replayed_design(experiment)
    if design.decision.stopped:
        remedy = {
            Experiment.Conclusion.BUDGET: "Give it a larger budget.",
            Experiment.Conclusion.CERTIFIED: "Ask for a smaller δ, or another ε.",
        }.get(str(design.decision.reason), "Ask for a smaller δ, or another ε.")  # type: ignore[call-overload]
        raise WrongStateError(f"With these settings it would conclude again at once. {remedy}")
    experiment.state = Experiment.State.RUNNING
    experiment.conclusion = ""
    experiment.winner = experiment.concluded_at = None
    experiment.save(update_fields=["state", "conclusion", "winner", "concluded_at"])
    write_snapshot(experiment=experiment, design=design)
    return experiment


def _change(
    experiment: Experiment,
    by: User | None,
    *,
    budget: int | None,
    delta: float | None,
    epsilon: float | None,
) -> None:
    seen = selectors.outcomes_seen(experiment)
    if budget is not None and budget != experiment.budget:
        _record_change(experiment, by, "budget", budget, selectors.budget_consequence(experiment, budget))
        experiment.budget = budget
    replay = False
    if delta is not None and delta != experiment.delta:
        _record_change(experiment, by, "delta", delta, selectors.delta_consequence(experiment, delta))
        if seen and experiment.first_delta is None:
            experiment.first_delta = experiment.delta
        experiment.delta, replay = delta, seen
    if epsilon is not None and epsilon != experiment.epsilon:
        _record_change(experiment, by, "epsilon", epsilon, selectors.epsilon_consequence(experiment, epsilon))
        if seen and experiment.first_epsilon is None:
            experiment.first_epsilon = experiment.epsilon
        experiment.epsilon, replay = epsilon, seen
    try:
        experiment.clean_fields(exclude={"winner"})
    except ValidationError as error:
        faults = "; ".join(f"{key}: {' '.join(texts)}" for key, texts in error.message_dict.items())
        raise SpecError(faults) from error
    experiment.save(update_fields=["budget", "delta", "epsilon", "first_delta", "first_epsilon"])
    if replay:
        # Peaks that were reached under other settings say nothing about these.
        write_snapshot(experiment=experiment, design=selectors.replayed_design(experiment))


def _record_change(
    experiment: Experiment, by: User | None, setting: str, after: float, consequence: str
) -> None:
    record(
        experiment=experiment,
        by=by,
        action=setting,
        details={"before": getattr(experiment, setting), "after": after, "consequence": consequence},
    )


@transaction.atomic
def archive(*, experiment_id: int, by: User | None) -> Experiment:
    """Hide an experiment from everybody's first page. Archiving twice is archiving once.

    Raises
    ------
    WrongStateError
        It is running.
    """
    experiment = locked(experiment_id)
    if experiment.state == Experiment.State.RUNNING:
        raise WrongStateError("A running experiment cannot be archived; pause or stop it first.")
    if experiment.archived_at is None:
        experiment.archived_at = timezone.now()
        experiment.save(update_fields=["archived_at"])
        record(experiment=experiment, by=by, action=AuditEntry.Action.ARCHIVE)
    return experiment


@transaction.atomic
def unarchive(*, experiment_id: int, by: User | None) -> Experiment:
    """Show an experiment again."""
    experiment = locked(experiment_id)
    if experiment.archived_at is not None:
        experiment.archived_at = None
        experiment.save(update_fields=["archived_at"])
        record(experiment=experiment, by=by, action=AuditEntry.Action.UNARCHIVE)
    return experiment


@transaction.atomic
def clone(*, experiment: Experiment, by: User, name: str) -> Experiment:
    """A new draft with the same description, which belongs to whoever made it.

    Raises
    ------
    SpecError
        The name is taken or unusable.
    """
    spec = replace(selectors.experiment_spec(experiment), name=name)
    copy = create_experiment(spec=spec, by=by)
    record(
        experiment=copy,
        by=by,
        action=AuditEntry.Action.CLONE,
        details={"source": experiment.name, "source_id": experiment.pk},
    )
    return copy
