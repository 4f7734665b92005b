"""Pages that list comparisons, and void or restore judgments."""

from collections.abc import Mapping
from typing import Any, cast

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import WrongStateError
from engine.models import Comparison, Experiment, Judgment, User
from engine.selectors import blinding, browsing
from engine.selectors.annotators import passed_checks, people_who_judged
from engine.selectors.policies import policy_names
from engine.selectors.spending import costs_of
from engine.services import voids
from engine.tasks import wake_planner
from labeling import access
from labeling.dashboard.explanations import explain
from labeling.dashboard.policies import messages_for
from labeling.exports.filter_form import SelectionForm
from labeling.forms.list_place import PlaceForm
from labeling.forms.void import VoidForm
from labeling.requests import AuthenticatedRequest, read_or_write


@require_safe
def comparisons(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The comparisons that a filter leaves, newest first, a page at a time."""
    experiment = access.to_watch(request, experiment_id)
    form, place = SelectionForm(request.GET, experiment=experiment), PlaceForm(request.GET)
    context: dict[str, Any] = {
        "experiment": experiment,
        "form": form,
        "names": form.names,
        "unfinished": blinding.unfinished(experiment),
        "may_run": access.may_run(request, experiment),
    }
    if not (form.is_valid() and place.is_valid()):
        return render(request, "comparisons/comparisons.html", context, status=400)
    rows = browsing.selected_comparisons(
        experiment, form.selection(finished=blinding.withholds_unfinished(experiment))
    )
    filled = form.filled()
    context |= {
        "page": browsing.page_of(rows, **place.place),
        "filtered": bool(filled),
        "query": urlencode(filled),
        "annotator": _annotator_in(filled, experiment),
        "may_void": access.may_void(request, experiment),
    }
    return render(request, "comparisons/comparisons.html", context)


@require_safe
def comparison(request: AuthenticatedRequest, experiment_id: int, comparison_id: int) -> HttpResponse:
    """The page of one comparison with all its data."""
    experiment = access.to_watch(request, experiment_id)
    row = browsing.comparison_in_full(experiment, comparison_id)
    if row is None:
        raise Http404
    withheld = blinding.withholds_unfinished(experiment)
    if withheld and row.state in Comparison.PENDING:
        context = {"experiment": experiment, "number": row.number}
        return render(request, "comparisons/withheld.html", context, status=403)
    names = policy_names(experiment)
    costs = costs_of([row.response_i_id, row.response_j_id])
    sides = [
        {
            "side": side,
            "policy": policy,
            "name": names[policy.index],
            "response": response,
            "cost": costs.get(response.pk),
            "messages": _messages(experiment, policy.index, row),
        }
        for side, policy, response in (
            ("A", row.policy_i if row.i_on_left else row.policy_j, row.left),
            ("B", row.policy_j if row.i_on_left else row.policy_i, row.right),
        )
    ]
    reasons, record = explain(row, names)
    return render(
        request,
        "comparisons/comparison.html",
        {
            "experiment": experiment,
            "comparison": row,
            "names": names,
            "withheld": withheld,
            "sides": sides,
            "reasons": reasons,
            "record": record,
            "may_void": access.may_void(request, experiment),
        },
    )


def _messages(experiment: Experiment, index: int, row: Comparison) -> list[tuple[str, str]]:
    policy = experiment.policies.composable().at(index)
    return [] if policy is None else messages_for(policy, row.task)


@read_or_write
def void(request: AuthenticatedRequest, experiment_id: int, judgment_id: int) -> HttpResponse:
    """One judgment without its outcome; a POST with a reason voids it.

    Voiding by outcome could make any policy win, so this page shows everything but the outcome.
    """
    experiment = access.to_run(request, experiment_id)
    judgment = browsing.judgment_without_outcome(experiment, judgment_id)
    if judgment is None:
        raise Http404
    form = VoidForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            voids.void_one(judgment_id=judgment.pk, by=request.user, reason=form.cleaned_data["reason"])
            messages.success(request, "Voided. The estimates leave it out, and every proof keeps it.")
        except WrongStateError as wrong:
            messages.error(request, str(wrong))
        wake_planner(experiment.pk)
        return redirect("void", experiment_id=experiment.pk, judgment_id=judgment.pk)
    if form.is_bound:
        messages.error(request, "Give a reason for voiding the judgment, in at most 200 characters.")
    person = judgment.annotator
    comparison = cast(Comparison, judgment.comparison)
    pending = blinding.withholds_unfinished(experiment) and comparison.state in Comparison.PENDING
    context = {
        "experiment": experiment,
        "judgment": judgment,
        "comparison": comparison,
        "pending": pending,
        "texts": () if pending else (("A", comparison.left), ("B", comparison.right)),
        "checks": [] if person is None else passed_checks(experiment, person),
        "may_void": access.may_void(request, experiment),
    }
    return render(request, "comparisons/void.html", context, status=400 if form.is_bound else 200)


@require_POST
def restore(request: AuthenticatedRequest, experiment_id: int, judgment_id: int) -> HttpResponse:
    """Bring a voided judgment back."""
    experiment = access.to_run(request, experiment_id)
    judgment = get_object_or_404(Judgment, pk=judgment_id, comparison__experiment=experiment)
    try:
        voids.restore_judgment(judgment_id=judgment.pk, by=request.user)
        messages.success(request, "Restored: a new judgment copies the voided one for the estimates.")
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    wake_planner(experiment.pk)
    return redirect("void", experiment_id=experiment.pk, judgment_id=judgment.pk)


def _annotator_in(filled: Mapping[str, str], experiment: Experiment) -> User | None:
    """The annotator that the filter names."""
    if "annotator" not in filled:
        return None
    return people_who_judged(experiment).filter(username=filled["annotator"]).first()
