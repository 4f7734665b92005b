"""The inbox: what annotators flagged and commented, for those who run the experiment."""

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from engine.selectors import blinding, browsing
from engine.selectors.policies import policy_names
from engine.selectors.remarks import remarked_comparisons, with_remarks
from engine.services import voids
from labeling import access
from labeling.forms.list_place import PlaceForm
from labeling.forms.tags import TagForm
from labeling.requests import AuthenticatedRequest

_PER_PAGE = 25


class DoneForm(forms.Form):
    """``until``: the time of the newest remark that was read; a later one stays open."""

    until = forms.DateTimeField()


@require_safe
def remarks(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Comparisons with flags and comments, the newest first: open ones, or with ``show=done`` the others."""
    experiment = access.to_run(request, experiment_id)
    done = request.GET.get("show") == "done"
    tags = TagForm(request.GET, experiment=experiment)
    rows = remarked_comparisons(experiment, done=done, finished=blinding.withholds_unfinished(experiment))
    if tags.chosen:
        rows = rows.filter(task__in=browsing.tasks_tagged(experiment, tags.chosen))
    page = browsing.page_of(rows, **PlaceForm(request.GET).place, size=_PER_PAGE)
    context = {
        "experiment": experiment,
        "names": policy_names(experiment),
        "unfinished": blinding.unfinished(experiment),
        "done": done,
        "page": page,
        "tag_form": tags,
        "beside": {"show": "done"} if done else {},
        "remarked": with_remarks(page.comparisons),
    }
    return render(request, "comparisons/remarks.html", context)


@require_POST
def settle(request: AuthenticatedRequest, experiment_id: int, comparison_id: int) -> HttpResponse:
    """Mark the flags and comments on a comparison as done."""
    experiment = access.to_run(request, experiment_id)
    comparison = get_object_or_404(experiment.comparisons, pk=comparison_id)
    form = DoneForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("This page is out of date. Open the inbox again.")
    voids.settle_remarks(comparison_id=comparison.pk, by=request.user, until=form.cleaned_data["until"])
    messages.success(
        request,
        f"Comparison {comparison.number} is done. It comes back here when somebody adds to it.",
    )
    return redirect("remarks", experiment_id=experiment.pk)
