"""The annotator's page: one pair at a time."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from engine import selectors
from engine.errors import LeaseLostError, UnknownTokenError
from engine.models import Experiment, Judgment
from engine.services import judging
from engine.tasks import advance, wake
from labeling import access


class SkipForm(forms.Form):
    token = forms.UUIDField()


class JudgeForm(SkipForm):
    choice = forms.ChoiceField(choices=Judgment.Choice.choices)


@login_required
@never_cache
@require_safe
def pair(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """The pair to judge now; for htmx, just the part of the page that changes."""
    return _show_next(request, access.to_label(request, experiment_id))


@access.annotator_action
def judge(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Record a click and answer with the next pair."""
    experiment = access.to_label(request, experiment_id)
    form = JudgeForm(request.POST)
    if not form.is_valid():
        return _bad_request(request, experiment, "Choose the left or the right response.")
    try:
        recorded = judging.judge_leased(
            experiment_id=experiment.pk,
            token=form.cleaned_data["token"],
            annotator=request.user,
            choice=form.cleaned_data["choice"],
        )
    except LeaseLostError as lost:
        return _show_next(request, experiment, notice=str(lost))
    except UnknownTokenError as unknown:
        return _bad_request(request, experiment, str(unknown))
    if recorded.created:
        wake(advance, experiment.pk)
    return _show_next(request, experiment, saved=True)


@access.annotator_action
def skip(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Hand the pair back and answer with another one."""
    experiment = access.to_label(request, experiment_id)
    form = SkipForm(request.POST)
    if not form.is_valid():
        return _bad_request(request, experiment, "This page is out of date; open the experiment again.")
    try:
        judging.skip(experiment_id=experiment.pk, token=form.cleaned_data["token"], annotator=request.user)
    except UnknownTokenError as unknown:
        return _bad_request(request, experiment, str(unknown))
    wake(advance, experiment.pk)
    return _show_next(request, experiment, notice="Skipped.")


def _show_next(
    request: HttpRequest, experiment: Experiment, *, saved: bool = False, notice: str = ""
) -> HttpResponse:
    if request.method == "POST" and not request.htmx:  # type: ignore[attr-defined]
        if notice:
            messages.info(request, notice)
        return redirect("pair", experiment_id=experiment.pk)
    context = _context(request, experiment) | {"saved": saved, "notice": notice}
    template = "labeling/_stage.html" if request.htmx else "labeling/pair.html"  # type: ignore[attr-defined]
    return render(request, template, context)


def _context(request: HttpRequest, experiment: Experiment) -> dict[str, Any]:
    lease = judging.lease_next(experiment_id=experiment.pk, annotator=request.user)
    return {
        "experiment": experiment,
        "lease": lease,
        "comparison": lease and lease.comparison,
        "snapshot": selectors.latest_snapshot(experiment),
        "left": selectors.expected_left(experiment),
        "today": selectors.judged_today(experiment.pk, request.user),
    }


def _bad_request(request: HttpRequest, experiment: Experiment, message: str) -> HttpResponse:
    return render(
        request, "labeling/bad_request.html", {"experiment": experiment, "message": message}, status=400
    )
