"""Pages on which tasks join an experiment that has started, and are left out of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from engine.domain.errors import SpecError, WrongStateError
from engine.domain.wording import number as counted
from engine.importing.rows import ImportingError
from engine.models import Experiment
from engine.services import task_changes
from engine.sources.base import SourceError
from engine.sources.registry import source_names
from engine.tasks import wake_planner
from labeling import access
from labeling.forms.tasks import AddTasksForm, LeaveOutForm, drawn_tasks
from labeling.requests import AuthenticatedRequest, read_or_write


@read_or_write
def add(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Have tasks join."""
    experiment = access.to_run(request, experiment_id)
    try:
        task_changes.check_tasks_may_change(experiment)
    except WrongStateError as error:
        messages.error(request, str(error))
        return redirect("setup", experiment_id=experiment.pk)
    sent = request.method == "POST"
    data, files = (request.POST, request.FILES) if sent else (None, None)
    form = AddTasksForm(data, files, experiment=experiment)
    if request.POST.get("change") == "tasks-source":
        form = _drawn(request, experiment)
    elif form.is_valid():
        try:
            added = task_changes.add_tasks(
                experiment_id=experiment.pk,
                tasks=form.found,
                anew=form.cleaned_data["anew"],
                by=request.user,
            )
        except (SpecError, WrongStateError) as error:
            form.add_error(None, str(error))
        else:
            wake_planner(experiment.pk)
            messages.success(request, f"Added {counted(len(added), 'task')}.")
            return redirect("setup", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "form": form,
        "data": request.POST,
        "sources": source_names(of_pages=True),
    }
    return render(request, "dashboard/add_tasks.html", context, status=400 if form.errors else 200)


def _drawn(request: AuthenticatedRequest, experiment: Experiment) -> AddTasksForm:
    """The form with the tasks of a source in it, for people to look at."""
    typed = {"tasks": request.POST.get("tasks", ""), "anew": request.POST.get("anew", "")}
    try:
        typed["tasks"], told, _ = drawn_tasks(request.POST)
    except (SourceError, ImportingError) as error:
        messages.error(request, str(error))
    else:
        messages.info(request, " ".join(told))
    return AddTasksForm(initial=typed, experiment=experiment)


@read_or_write
def leave_out(request: AuthenticatedRequest, experiment_id: int, number: int) -> HttpResponse:
    """Ask why, then leave a task out."""
    experiment = access.to_run(request, experiment_id)
    task = get_object_or_404(experiment.tasks, position=number - 1)
    form = LeaveOutForm(request.POST if request.method == "POST" else None, experiment=experiment)
    if form.is_valid():
        try:
            task_changes.leave_out_task(
                experiment_id=experiment.pk, position=task.position, by=request.user, **form.cleaned_data
            )
        except WrongStateError as error:
            messages.error(request, str(error))
        else:
            wake_planner(experiment.pk)
            messages.success(request, f"Task {number} is left out.")
        return redirect("setup", experiment_id=experiment.pk)
    context = {"experiment": experiment, "task": task, "number": number, "form": form}
    return render(request, "dashboard/leave_out_task.html", context, status=400 if form.errors else 200)
