"""The ranking of an experiment's policies: the page, and the file."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from engine.models import Experiment
from labeling import access
from labeling.dashboard import rankings
from labeling.exports.rankings import WORDS, ranking_csv
from labeling.requests import AuthenticatedRequest


@login_required
@require_safe
def ranking(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Every policy with its win rate and interval and, where there are past votes, what they allow to say."""
    experiment = access.to_watch(request, experiment_id)
    context = {
        "experiment": experiment,
        "ranked": [(each, WORDS[each.standing.place]) for each in rankings.ranked(experiment)],
        "facts": rankings.facts_of_past_votes(experiment),
        "may_start": access.may_run(request, experiment)
        and experiment.state == Experiment.State.PAUSED
        and experiment.archived_at is None,
    }
    return render(request, "dashboard/ranking.html", context)


@login_required
@require_safe
def ranking_file(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The ranking as CSV."""
    experiment = access.to_watch(request, experiment_id)
    name = slugify(experiment.name) or f"experiment-{experiment.pk}"
    return HttpResponse(
        ranking_csv(rankings.ranked(experiment)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}-ranking.csv"'},
    )
