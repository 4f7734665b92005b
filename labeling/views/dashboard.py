"""The admin's pages of one experiment: its result, its quality and its method."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import WrongStateError
from engine.models import Experiment
from engine.selectors import blinding, counts
from engine.selectors.annotators import several_people_judged
from engine.selectors.experiment_log import audit_entries
from engine.selectors.findings import doubts_about_risk, ladder
from engine.selectors.remarks import Remarked, remarked_comparisons, with_remarks
from engine.selectors.trials import is_tried
from engine.services import analysis, dashboard_pages, experiments
from engine.services.experiments import check_may_stop, may_stop, stop_on
from engine.services.policies import policies_may_change
from engine.tasks import analyse, wake, wake_planner
from labeling import access
from labeling.caching import remembered
from labeling.dashboard import figures
from labeling.dashboard.findings import without_each_annotator
from labeling.dashboard.improvements import step_to_improvement
from labeling.dashboard.llm_judge import panel
from labeling.dashboard.status import status_of
from labeling.requests import AuthenticatedRequest, read_or_write

_NEWEST_REMARKS = 3
_ENTRIES_PER_PAGE = 100


@require_safe
def dashboard(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The result: the verdict, the ranking, and what to read before using it. Of a draft its next step."""
    experiment = access.to_watch(request, experiment_id)
    if experiment.state == Experiment.State.DRAFT:
        return redirect(_next_step(request, experiment))
    context = _result(request, experiment)
    context |= {
        "may_create": access.may_create(request),
        "remarked": _newest_remarks(experiment) if context["may_run"] else [],
    }
    return render(request, "dashboard/dashboard.html", context | figures.reading_matter(experiment))


def _next_step(request: AuthenticatedRequest, experiment: Experiment) -> str:
    """The address of a draft's next step: the tasks while it has none, then a trial if there is one."""
    setup = reverse("setup", args=[experiment.pk])
    if not access.may_run(request, experiment) or experiment.archived_at is not None:
        return setup
    if not experiment.tasks.exists():
        return f"{setup}?step=tasks"
    return reverse("try", args=[experiment.pk]) if is_tried(experiment) else setup


def _newest_remarks(experiment: Experiment) -> list[Remarked]:
    """The newest comparisons with open flags or comments, for somebody who may read the inbox."""
    finished = blinding.withholds_unfinished(experiment)
    rows = remarked_comparisons(experiment, done=False, finished=finished)
    return with_remarks(list(rows.order_by("-number")[:_NEWEST_REMARKS]))


@require_safe
def quality(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Reasons to trust the result or not: the people, their agreement, and what would change it."""
    experiment = access.to_watch(request, experiment_id)
    may_run = access.may_run(request, experiment)
    context = {
        "experiment": experiment,
        "badge": figures.badge_of(experiment),
        "may_run": may_run,
        "may_start": may_run
        and experiment.state == Experiment.State.PAUSED
        and experiment.archived_at is None,
        "tab": "quality",
        "charts": figures.charts_of(experiment, "quality", at_once=True),
        "without": without_each_annotator(experiment) if several_people_judged(experiment) else None,
        "llm_judge": panel(experiment),
    }
    return render(request, "dashboard/quality.html", context)


@require_safe
def method(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The statistics, the queue, the workers and the log."""
    experiment = access.to_watch(request, experiment_id)
    context = figures.moving_figures(experiment) | {
        "may_run": access.may_run(request, experiment),
        "tab": "method",
        "charts": figures.charts_of(experiment, "method", at_once=True),
        "log": audit_entries(experiment)[:5],
    }
    return render(request, "dashboard/method.html", context)


def _reload() -> HttpResponse:
    """The answer to a page that still polls after the experiment ended: reload everything, once."""
    return HttpResponse(headers={"HX-Refresh": "true"})


@require_safe
def live(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The verdict, and what htmx puts into places of its own: the badge, and the charts unless the page has
    seen them. 204 if the page has all of it.
    """
    stored = dashboard_pages.poll(experiment_id=experiment_id, page="result", by=request.user)
    experiment = stored.experiment if stored else access.to_watch(request, experiment_id)
    if experiment.state != Experiment.State.RUNNING:
        return _reload()
    if stored and request.GET.get("made") == stored.made_at.isoformat():
        return HttpResponse(status=204)

    def make() -> tuple[str, str, str]:
        context = _result(request, access.to_watch(request, experiment_id)) | {"elsewhere": True}
        parts = (render_to_string(f"dashboard/_{part}.html", context, request) for part in ("live", "charts"))
        return context["charts"].version, *parts

    # The same for all who only watch.
    version, verdict, charts = (
        remembered(f"live:{experiment_id}", stored.made_at, make) if stored and not stored.may_run else make()
    )
    return HttpResponse(verdict if request.GET.get("seen") == version else verdict + charts)


@require_safe
def live_method(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The forecast, the queue and the badge."""
    experiment = access.to_watch(request, experiment_id)
    if experiment.state != Experiment.State.RUNNING:
        return _reload()
    context = figures.moving_figures(experiment) | {
        "may_run": access.may_run(request, experiment),
        "elsewhere": True,
    }
    return render(request, "dashboard/_moving.html", context)


@require_safe
def live_charts(request: AuthenticatedRequest, experiment_id: int, tab: str) -> HttpResponse:
    """The charts and tables of a tab, or 204 if the page has them already.

    A page that was made before the charts names no version.
    """
    experiment = access.to_watch(request, experiment_id)
    if experiment.state != Experiment.State.RUNNING and "seen" in request.GET:
        return _reload()
    charts = figures.charts_of(experiment, tab)
    if charts and request.GET.get("seen") == charts.version:
        return HttpResponse(status=204)
    context = {"experiment": experiment, "tab": tab, "charts": charts}
    return render(request, "dashboard/_figures.html", context)


@read_or_write
def without(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The decision without each annotator; a POST starts its computation."""
    experiment = access.to_watch(request, experiment_id)
    if request.method == "POST":
        analysis.request_replays(experiment_id=experiment.pk)
        wake(analyse)
        return redirect(reverse("quality", args=[experiment.pk]) + "#without")
    context = {"experiment": experiment, "without": without_each_annotator(experiment)}
    return render(request, "dashboard/_without.html", context)


@require_POST
def change_state(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Start, pause, stop, archive, or take out of the archive. Says first what stopping means; ``confirmed``
    does it.
    """
    experiment = access.to_run(request, experiment_id)
    if (action := request.POST.get("action")) not in experiments.ACTIONS:
        return HttpResponseBadRequest(f"The action must be one of {', '.join(experiments.ACTIONS)}.")
    if action == "stop" and may_stop(experiment) and not request.POST.get("confirmed"):
        return _ask_to_stop(request, experiment)
    try:
        experiments.ACTIONS[action](experiment_id=experiment.pk, by=request.user)
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    wake_planner(experiment.pk)
    return redirect("dashboard", experiment_id=experiment.pk)


def _ask_to_stop(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    context = {
        "experiment": experiment,
        "status": status_of(experiment),
        "comparisons": counts.comparison_count(experiment.pk),
        "holding": [rung for rung in ladder(experiment).rungs if rung.holds],
    }
    return render(request, "dashboard/stop_confirm.html", context)


@require_POST
def stop_here(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Stop on a claim that holds, after a page that says what this means and asks to confirm."""
    experiment = access.to_run(request, experiment_id)
    if (claim := request.POST.get("claim")) not in dict(Experiment.CLAIMS):
        return HttpResponseBadRequest(f"The claim must be one of {', '.join(dict(Experiment.CLAIMS))}.")
    try:
        if not request.POST.get("confirmed"):
            return _ask_to_stop_on(request, experiment, claim)
        stop_on(experiment_id=experiment.pk, claim=claim, by=request.user)
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    wake_planner(experiment.pk)
    return redirect("dashboard", experiment_id=experiment.pk)


def _ask_to_stop_on(request: AuthenticatedRequest, experiment: Experiment, claim: str) -> HttpResponse:
    """The question.

    Raises
    ------
    WrongStateError
        There is nothing to ask.
    """
    check_may_stop(experiment)
    claims = ladder(experiment)
    rung = next((rung for rung in claims.rungs if rung.claim == claim and rung.holds), None)
    if rung is None:
        raise WrongStateError("The experiment cannot stop on this claim, because it does not hold by itself.")
    context = {
        "experiment": experiment,
        "rung": rung,
        "ladder": claims,
        "doubts": doubts_about_risk(experiment),
        "found": figures.doubts_of(experiment).found,
    }
    return render(request, "dashboard/stop_here.html", context)


def _result(request: AuthenticatedRequest, experiment: Experiment) -> dict[str, Any]:
    result, may_run = figures.result_of(experiment), access.may_run(request, experiment)
    return result | {
        "may_run": may_run,
        "may_change_policies": may_run and policies_may_change(experiment),
        "improvement": step_to_improvement(experiment, may_run=may_run),
        "may_begin_to_judge": result["lacks_annotators"] and access.may_begin_to_judge(request, experiment),
    }


@require_safe
def log(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The log of the experiment, newest first."""
    experiment = access.to_watch(request, experiment_id)
    pages = Paginator(audit_entries(experiment), _ENTRIES_PER_PAGE)
    page = pages.get_page(request.GET.get("page"))
    return render(request, "dashboard/log.html", {"experiment": experiment, "page": page})
