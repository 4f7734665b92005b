"""Tasks join experiments that have started, and are left out of them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from engine.core import Claim
from engine.domain import secret_draws
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.showings import Kind
from engine.domain.specs import TaskSpec
from engine.models import AuditEntry, Experiment, Improvement, ShowingEvent, Task, User, clock
from engine.selectors import specs
from engine.selectors.gates import gate_of
from engine.selectors.improvements import FEWEST_JUDGING, open_improvement, race_of, tasks_left
from engine.selectors.task_changes import tasks_present
from engine.services.audit import record
from engine.services.descriptions import check_description
from engine.services.drafts import task_rows
from engine.services.evidence import settle
from engine.services.experiments import refuse_archived, withdraw
from engine.services.locks import locked_experiment
from engine.services.setting_changes import run_again

_STARTED = {Experiment.State.RUNNING, Experiment.State.PAUSED, Experiment.State.CONCLUDED}


@transaction.atomic
def add_tasks(
    *, experiment_id: int, tasks: Sequence[TaskSpec], anew: bool = False, by: User | None = None
) -> list[Task]:
    """Have tasks join an experiment that has started; a concluded one runs again.

    ``anew``: the claim counts what is compared from now on alone.

    Raises
    ------
    SpecError
        Says what is unusable.
    WrongStateError
        Its tasks cannot change, or it has no stages to count anew.
    """
    experiment = locked_experiment(experiment_id)
    check_tasks_may_change(experiment)
    if not tasks:
        raise SpecError("Give at least one task.", ("tasks",))
    spec = specs.experiment_spec(experiment)
    check_description(replace(spec, tasks=[*spec.tasks, *tasks]))
    now, first = clock.now(), experiment.tasks.count()
    added = Task.objects.bulk_create(task_rows(experiment, tasks, first=first, joined_at=now))
    if improvement := open_improvement(experiment):
        divide(improvement, added, all_open=race_of(improvement).counts_on)
    details = {"tasks": len(added)} | _counted(anew)
    record(experiment=experiment, by=by, action=AuditEntry.Action.TASKS_ADDED, details=details)
    _go_on(experiment, now, anew=anew)
    return added


@transaction.atomic
def leave_out_task(
    *, experiment_id: int, position: int, reason: str, anew: bool = False, by: User | None = None
) -> Task:
    """Have a task be left out: nobody is shown it from now on. Pairs on a screen may be finished.

    ``anew``: as for `add_tasks`.

    Raises
    ------
    WrongStateError
        Its tasks cannot change, it is not there, none would be left, or it has no stages to count anew.
    """
    experiment = locked_experiment(experiment_id)
    check_tasks_may_change(experiment)
    here = tasks_present(experiment)
    task = here.filter(position=position).first()
    if task is None:
        raise WrongStateError("This task is not there, or is left out already.")
    if here.count() == 1:
        raise WrongStateError("No task would be left. Add another one first.")
    improvement = open_improvement(experiment)
    judges = improvement is not None and task.pk not in improvement.open_tasks
    if improvement and judges and race_of(improvement).counts_on:
        raise WrongStateError(
            "What was counted for the champion counts on, and is about this task too. Stop the improvement, "
            "leave the task out, and start another improvement."
        )
    if improvement and judges and tasks_left(improvement).judging <= FEWEST_JUDGING:
        raise WrongStateError("Too few tasks would judge in the improvement. Add another one first.")
    task.left_at, task.left_because = clock.now(), reason
    task.save(update_fields=["left_at", "left_because"])
    said = f"Task {position + 1} was left out."
    withdraw(experiment, experiment.comparisons.filter(task=task), said)
    details = {"task": position + 1, "reason": reason} | _counted(anew)
    record(experiment=experiment, by=by, action=AuditEntry.Action.TASK_LEFT_OUT, details=details)
    _go_on(experiment, task.left_at, anew=anew)
    return task


def check_tasks_may_change(experiment: Experiment) -> None:
    """Refuse other tasks where they cannot come.

    Raises
    ------
    WrongStateError
        It has not started, is in the archive, or compares a fixed pool of texts.
    """
    if experiment.state not in _STARTED:
        raise WrongStateError("This experiment has not started: change its tasks on the page Setup.")
    refuse_archived(experiment)
    if experiment.responses != Experiment.Responses.FRESH:
        raise WrongStateError(
            "This experiment shows the same texts again, and its risk is about this pool of texts. Copy it "
            "with the other tasks."
        )
    improvement = open_improvement(experiment)
    if improvement and improvement.phase != Improvement.Phase.EXPLORE:
        raise WrongStateError(
            "An improvement compares its champion with the original now, on tasks that stay. Stop it, or "
            "wait for its end."
        )


def tasks_may_change(experiment: Experiment) -> bool:
    """True if other tasks can come."""
    try:
        check_tasks_may_change(experiment)
    except WrongStateError:
        return False
    return True


def why_not_anew(experiment: Experiment) -> str:
    """The reason why an experiment cannot count its comparisons anew; empty if it can."""
    if experiment.stopping != "certified":
        return "Under this stopping rule there is no claim to count for."
    if open_improvement(experiment):
        return "While an improvement runs, all comparisons count on."
    if gate_of(experiment):
        return "A gate's challenge has one risk, so it cannot count anew."
    if experiment.strict:
        return "The accepted risk is that of its whole life, so it cannot count anew."
    if experiment.claim == Claim.BEST_IF_ANY or experiment.space != Experiment.Space.UNSTRUCTURED:
        return "Under this claim and assumption everything has one risk, so it cannot count anew."
    return ""


def divide(improvement: Improvement, added: Sequence[Task], *, all_open: bool) -> None:
    """Open all new tasks to its writer, or so many, by lot, that half of all present ones are open."""
    experiment = improvement.experiment
    here = tasks_present(experiment)
    n_open = here.filter(pk__in=improvement.open_tasks).count()
    n = len(added) if all_open else max(0, here.count() // 2 - n_open)
    by_lot = sorted(added, key=lambda task: secret_draws.open_task(experiment.secret, task.position))
    improvement.open_tasks += [task.pk for task in by_lot[:n]]
    improvement.save(update_fields=["open_tasks"])


def _go_on(experiment: Experiment, now: datetime, *, anew: bool) -> None:
    """Count anew if that is wanted, and have a concluded experiment run again."""
    concluded = experiment.state == Experiment.State.CONCLUDED
    if anew:
        if reason := why_not_anew(experiment):
            raise WrongStateError(reason)
        ShowingEvent.objects.create(experiment=experiment, kind=Kind.STAGE, created_at=now)
        # They were drawn from the tasks before.
        said = "The tasks changed, and comparisons are counted anew."
        withdraw(experiment, experiment.comparisons.all(), said, also_open=False)
    elif concluded:
        raise WrongStateError(
            "The experiment has concluded. Other tasks come with comparisons that are counted anew."
        )
    if concluded:
        run_again(experiment=experiment)
    if anew and settle(experiment=experiment).design.decision.stopped:
        raise WrongStateError("The budget is used up. Give the experiment a larger budget first.")


def _counted(anew: bool) -> dict[str, str]:
    return {"counted": " Comparisons are counted anew." if anew else ""}
