"""Changing an experiment's settings, copying it, and the log of all that was done to it."""

from __future__ import annotations

from copy import copy

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import EngineError, SpecError
from engine.models import Experiment
from engine.selectors.designs import winner_name
from engine.selectors.log import audit_entries
from engine.services import controls, drafts
from engine.tasks import wake_planner
from labeling import access
from labeling.requests import AuthenticatedRequest
from labeling.views.settings import ChangeSettingsForm, CloneForm, DisplayForm, settings_page

_ENTRIES_PER_PAGE = 100


@require_POST
def change_settings(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Say what a change means; with ``confirmed``, make it, which reopens a concluded experiment."""
    experiment = access.to_run(request, experiment_id)
    form = ChangeSettingsForm(request.POST)
    if not form.is_valid():
        return settings_page(request, experiment, status=400, form=form)
    reopening = experiment.state == Experiment.State.CONCLUDED
    if not request.POST.get("confirmed"):
        return _ask(request, experiment, form, reopening=reopening)
    change = controls.reopen if reopening else controls.change_settings
    try:
        change(experiment_id=experiment.pk, by=request.user, **form.cleaned_data)
    except EngineError as refused:
        form.add_error(None, str(refused))
        return settings_page(request, experiment, status=400, form=form)
    wake_planner(experiment.pk)
    messages.success(request, "Reopened." if reopening else "Changed.")
    return redirect("dashboard", experiment_id=experiment.pk)


@require_POST
def change_display(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Change the tags, and whether annotators see a leaderboard."""
    experiment = access.to_run(request, experiment_id)
    form = DisplayForm(request.POST, instance=copy(experiment))
    if not form.is_valid():
        return settings_page(request, experiment, status=400, display_form=form)
    controls.change_display(experiment_id=experiment.pk, by=request.user, **form.cleaned_data)
    messages.success(request, "Saved.")
    return redirect("experiment_settings", experiment_id=experiment.pk)


def _ask(
    request: AuthenticatedRequest, experiment: Experiment, form: ChangeSettingsForm, *, reopening: bool
) -> HttpResponse:
    changes = [
        {
            "label": form.fields[name].label or name.capitalize(),
            "before": controls.said(name, getattr(experiment, name)),
            "after": controls.said(name, value),
            "consequence": controls.CONSEQUENCES[name](experiment, value),
        }
        for name, value in form.cleaned_data.items()
        if value != getattr(experiment, name)
    ]
    if not changes and not reopening:
        messages.info(request, "These settings are already in force.")
        return redirect("experiment_settings", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "values": form.cleaned_data,
        "changes": changes,
        "reopening": reopening,
    }
    return render(request, "dashboard/settings_confirm.html", context)


@require_POST
def clone(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Make a new draft of the same description."""
    experiment = access.to_copy(request, experiment_id)
    form = CloneForm(request.POST)
    if not form.is_valid():
        return settings_page(request, experiment, status=400, clone_form=form)
    try:
        copy = drafts.clone(experiment=experiment, by=request.user, name=form.cleaned_data["name"])
    except SpecError as refused:
        form.add_error(None, str(refused))
        return settings_page(request, experiment, status=400, clone_form=form)
    winner = winner_name(experiment)
    change = f"“{winner}” won: keep its levels and add others that challenge it" if winner else "Change it"
    messages.success(request, f"Copied. This is the copy, a draft that you own. {change}, then start it.")
    return redirect("setup", experiment_id=copy.pk)


@require_safe
def log(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The log of the experiment, newest first."""
    experiment = access.to_watch(request, experiment_id)
    pages = Paginator(audit_entries(experiment), _ENTRIES_PER_PAGE)
    page = pages.get_page(request.GET.get("page"))
    return render(request, "dashboard/log.html", {"experiment": experiment, "page": page})
