"""The page on which a writer's proposals are looked at, accepted and refused, and what came of them."""

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import SpecError, WrongStateError
from engine.models import Connection, Experiment, Improvement, Proposal
from engine.selectors import improvements as selectors
from engine.selectors.policies import policy_names
from engine.selectors.task_changes import tasks_present
from engine.services import improvements
from engine.services.connection_loans import lend_chosen
from engine.services.policies import parent_of
from engine.tasks import wake_planner
from engine.writing.registry import PREPARED
from labeling import access
from labeling.dashboard import figures
from labeling.dashboard import improvements as pages
from labeling.forms.improvements import GoOnForm, ImproveForm, ProposalForm
from labeling.requests import AuthenticatedRequest, read_or_write


@read_or_write
def improve(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The newest improvement, or with ``new`` or without any the form that starts one."""
    if request.method == "POST":
        start = _go_on if "more" in request.POST else _start
        return start(request, access.to_run(request, experiment_id))
    experiment = access.to_watch(request, experiment_id)
    found = pages.improvements_of(experiment)
    if not found or "new" in request.GET:
        return _form(request, access.to_run(request, experiment_id), None)
    return render(request, "improvements/improvement.html", _shown(request, experiment, found))


@require_safe
def live(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """What moves on the page of an improvement that is open."""
    experiment = access.to_watch(request, experiment_id)
    found = pages.improvements_of(experiment)
    if not found or found[0].state != Improvement.State.OPEN:
        # Not a renewal: the page may be the answer to a form.
        return HttpResponse(headers={"HX-Redirect": reverse("improve", args=[experiment.pk])})
    return render(request, "improvements/_live.html", _shown(request, experiment, found))


@require_POST
def stop(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Say what ending the open improvement means; ``confirmed`` ends it. With ``certify``, have its champion
    meet the original first.
    """
    experiment = access.to_run(request, experiment_id)
    end = improvements.fix_champion if "certify" in request.POST else improvements.stop_improvement
    if (found := selectors.open_improvement(experiment)) is not None:
        if not request.POST.keys() & {"certify", "confirmed"}:
            return render(request, "improvements/stop.html", pages.stopping(found))
        try:
            end(improvement_id=found.pk, by=request.user)
        except WrongStateError as wrong:
            messages.error(request, str(wrong))
    wake_planner(experiment.pk)
    return redirect("improve", experiment_id=experiment.pk)


@require_POST
def settle(request: AuthenticatedRequest, experiment_id: int, number: int) -> HttpResponse:
    """Accept or refuse a proposal. A text that cannot join comes back to its box, with the reason."""
    experiment = access.to_run(request, experiment_id)
    form = ProposalForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("The action must be accept or refuse, and the reason short.")
    proposal = get_object_or_404(Proposal, improvement__experiment=experiment, number=number)
    data: dict[str, Any] = {"proposal_id": proposal.pk, "by": request.user}
    try:
        if form.cleaned_data["action"] == "accept":
            edited = form.cleaned_data["text"].replace("\r\n", "\n").strip()
            # Emptied is edited too.
            improvements.accept_proposal(**data, text=edited if "text" in form.data else None)
            messages.success(request, f"Proposal {number} joins the race.")
        else:
            improvements.refuse_proposal(**data, reason=form.cleaned_data["reason"])
            told = "" if proposal.improvement.writer == PREPARED else " The writer is told so."
            messages.success(request, f"Proposal {number} is refused.{told}")
    except SpecError as error:
        form.add_error("text", str(error))
        context = _shown(request, experiment, pages.improvements_of(experiment))
        context["waiting"] = [
            replace(each, returned=form) if each.proposal == proposal else each for each in context["waiting"]
        ]
        return render(request, "improvements/improvement.html", context, status=400)
    except WrongStateError as error:
        messages.error(request, f"Proposal {number}: {error}")
    wake_planner(experiment.pk)
    return redirect("improve", experiment_id=experiment.pk)


def _start(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    form = _improve_form(request, experiment, request.POST)
    if form.is_valid():
        given = form.given
        try:
            lend_chosen(experiment=experiment, by=request.user, names=[given["connection"]])
            improvements.start_improvement(experiment_id=experiment.pk, by=request.user, **given)
        except (SpecError, WrongStateError) as error:
            form.add_error(None, str(error))
        else:
            wake_planner(experiment.pk)
            return redirect("improve", experiment_id=experiment.pk)
    return _form(request, experiment, form)


def _go_on(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    """Have an improvement that has ended look on from its champion."""
    form, found = GoOnForm(request.POST), selectors.newest_improvement(experiment)
    if not form.is_valid() or found is None:
        return HttpResponseBadRequest("Give from 20 to 10,000 more clicks.")
    try:
        improvements.go_on_improving(
            improvement_id=found.pk, clicks=form.cleaned_data["more"], by=request.user
        )
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    wake_planner(experiment.pk)
    return redirect("improve", experiment_id=experiment.pk)


def _improve_form(request: AuthenticatedRequest, experiment: Experiment, data: Any) -> ImproveForm:
    theirs = Connection.objects.remote().choosable_by(request.user, experiment)
    return ImproveForm(
        data,
        connections=list(theirs.values_list("name", flat=True)),
        factors=pages.factors_to_change(experiment),
        use_required_attribute=False,
    )


def _form(request: AuthenticatedRequest, experiment: Experiment, form: ImproveForm | None) -> HttpResponse:
    try:
        original = parent_of(experiment)
    except WrongStateError as error:
        messages.error(request, str(error))
        return redirect("dashboard", experiment_id=experiment.pk)
    if not pages.may_improve(experiment):
        messages.error(
            request, "Nothing can be improved here: no text that a writer may change, or no model."
        )
        return redirect("dashboard", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "badge": figures.badge_of(experiment),
        "may_run": True,
        "form": form or _improve_form(request, experiment, None),
        "original": policy_names(experiment)[original.index].name,
        "n_tasks": tasks_present(experiment).count(),
    }
    return render(request, "improvements/start.html", context, status=200 if form is None else 400)


def _shown(request: AuthenticatedRequest, experiment: Experiment, found: list[Improvement]) -> dict[str, Any]:
    newest, *earlier = found
    newest.experiment = experiment
    return pages.page_of(newest) | {
        "experiment": experiment,
        "badge": figures.badge_of(experiment),
        "awaited": figures.troubles_of(experiment) if newest.state == Improvement.State.OPEN else [],
        "may_run": access.may_run(request, experiment),
        "why_not_go_on": improvements.why_not_go_on(newest),
        "may_judge": access.may_begin_to_judge(request, experiment)
        or access.judged(request, experiment.pk) is not None,
        "earlier": [(each, selectors.sentence_of(each)) for each in earlier],
        "risk_of_several": selectors.risk_of_several(found),
    }
