"""One annotator of an experiment, for those who run it."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from engine.models import User
from engine.selectors import judges
from labeling import access
from labeling.dashboard.annotators import annotator_rows
from labeling.requests import AuthenticatedRequest


@login_required
@require_safe
def annotator(request: AuthenticatedRequest, experiment_id: int, user_id: int) -> HttpResponse:
    """The figures of one annotator: number, pace, agreement, checks, habits, last answer."""
    experiment = access.to_run(request, experiment_id)
    person = get_object_or_404(User, pk=user_id)
    rows = annotator_rows(experiment, only=person)
    if not rows and not experiment.memberships.filter(user=person).exists():
        raise Http404
    shared, same = judges.agreement_with_others(experiment, person)
    context = {
        "experiment": experiment,
        "person": person,
        "row": rows[0] if rows else None,
        "activity": judges.activity(experiment, person),
        "shared": shared,
        "same": same,
    }
    return render(request, "dashboard/annotator.html", context)
