"""The admin's page of one experiment."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from engine import selectors
from engine.errors import WrongStateError
from engine.models import Experiment
from engine.services import controls, experiments
from engine.tasks import advance, wake
from labeling import access, charts
from labeling.people import annotator_rows
from labeling.status import policy_names, status_of
from labeling.views import llm_judge

ACTIONS = {
    "start": experiments.start,
    "pause": experiments.pause,
    "stop": experiments.stop,
    "archive": controls.archive,
    "unarchive": controls.unarchive,
}


class StateForm(forms.Form):
    action = forms.ChoiceField(choices=[(action, action) for action in ACTIONS])


@login_required
@never_cache
@require_safe
def dashboard(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """The whole page."""
    experiment = access.to_watch(request, experiment_id)
    context = _context(request, experiment) | {"llm_judge": llm_judge.panel(experiment)}
    return render(request, "dashboard/dashboard.html", context)


@login_required
@never_cache
@require_safe
def live(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """The part that changes while the experiment runs."""
    experiment = access.to_watch(request, experiment_id)
    return render(request, "dashboard/_live.html", _context(request, experiment))


@login_required
@require_POST
def change_state(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Start, pause, stop, archive, or take out of the archive."""
    experiment = access.to_run(request, experiment_id)
    form = StateForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest(f"The action must be one of {', '.join(ACTIONS)}.")
    try:
        ACTIONS[form.cleaned_data["action"]](experiment_id=experiment.pk, by=request.user)
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    wake(advance, experiment.pk)
    return redirect("dashboard", experiment_id=experiment.pk)


def _context(request: HttpRequest, experiment: Experiment) -> dict[str, Any]:
    names = policy_names(experiment)
    snapshots = selectors.race(experiment)
    return {
        "experiment": experiment,
        "status": status_of(experiment),
        "health": selectors.queue_health(experiment),
        "may_run": selectors.experiments_to_run(request.user).filter(pk=experiment.pk).exists(),
        "log": selectors.audit_entries(experiment)[:5],
        "snapshot": selectors.latest_snapshot(experiment),
        "comparisons": selectors.comparison_count(experiment.pk),
        "race": charts.race(snapshots, names, experiment.delta),
        "heat_map": charts.heat_map(selectors.wins_matrix(experiment), names),
        "annotators": annotator_rows(experiment),
        "invitations": experiment.invitations.filter(expires_at__gte=timezone.now()).order_by("-pk"),
        "roles": access.roles_to_give(request, experiment),
        "policies": charts.policy_rows(experiment, names),
    }
