"""The report of an experiment: for its members, and by link for anybody."""

from typing import Any

from allauth.core.internal import ratelimit
from django import forms
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from engine.models import Experiment
from engine.services import reports
from labeling import access
from labeling.dashboard.policies import winner_asked
from labeling.dashboard.report import report_of
from labeling.requests import AuthenticatedRequest

_NO_END = "0"


class ShareForm(forms.Form):
    valid_days = forms.ChoiceField(
        label="The link works for",
        choices=[
            ("7", "7 days"),
            ("30", "30 days"),
            ("90", "90 days"),
            (_NO_END, "as long as nobody ends it"),
        ],
        initial="30",
    )

    shows_prompt = forms.BooleanField(
        label="Show the prompt, the model and the settings of the recommended policy", required=False
    )

    def __init__(self, experiment: Experiment, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        if experiment.responses == Experiment.Responses.IMPORTED:
            # Their prompts are not known here.
            del self.fields["shows_prompt"]


@require_safe
def report(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The report, and for those who run the experiment its links."""
    return _page(request, _reportable(access.to_watch(request, experiment_id)))


@require_POST
def share(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Make a link to the report. The link is in the answer to this request and nowhere else."""
    experiment = _reportable(access.to_run(request, experiment_id))
    form = ShareForm(experiment, request.POST)
    if not form.is_valid():
        return _page(request, experiment, form=form, status=400)
    days = form.cleaned_data["valid_days"]
    _, secret = reports.share_report(
        experiment=experiment,
        by=request.user,
        valid_days=None if days == _NO_END else int(days),
        shows_prompt=form.cleaned_data.get("shows_prompt", False),
    )
    link = request.build_absolute_uri(reverse("shared_report", args=[secret]))
    return _page(request, experiment, link=link)


@require_POST
def end(request: AuthenticatedRequest, experiment_id: int, link_id: int) -> HttpResponse:
    """End a link to the report."""
    experiment = access.to_run(request, experiment_id)
    link = get_object_or_404(experiment.report_links, pk=link_id)
    reports.end_report_link(link_id=link.pk, by=request.user)
    return redirect("report", experiment_id=experiment.pk)


@login_not_required
@require_safe
def shared_report(request: HttpRequest, token: str) -> HttpResponse:
    """The report by its link, without an account.

    While the experiment runs, known annotators do not get it: somebody who knows the leader may judge by it.
    """
    if ratelimit.consume(request, app="allauth.account", action="shared_report", limit_get=True) is None:
        return _guarded(render(request, "429.html", status=429))
    link = reports.open_link(secret=token)
    if link is None:
        return _guarded(render(request, "reports/ended.html", status=410))
    experiment = link.experiment
    if access.judges_blind(request, experiment):
        return _guarded(render(request, "reports/withheld.html", {"experiment": experiment}, status=403))
    context = {
        "experiment": experiment,
        "report": report_of(experiment),
        "asked": winner_asked(experiment) if link.shows_prompt else None,
        "shared": True,
    }
    return _guarded(render(request, "reports/report.html", context))


def _guarded(response: HttpResponse) -> HttpResponse:
    """The address is a secret: no other site and no search engine learns it."""
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    return response


def _reportable(experiment: Experiment) -> Experiment:
    if experiment.state == Experiment.State.DRAFT:
        raise Http404
    return experiment


def _page(
    request: AuthenticatedRequest,
    experiment: Experiment,
    *,
    form: ShareForm | None = None,
    link: str = "",
    status: int = 200,
) -> HttpResponse:
    may_run = access.may_run(request, experiment)
    context = {
        "experiment": experiment,
        "report": report_of(experiment),
        "may_run": may_run,
        "form": form or ShareForm(experiment),
        "link": link,
        "links": experiment.report_links.open() if may_run else [],
    }
    return render(request, "reports/report.html", context, status=status)
