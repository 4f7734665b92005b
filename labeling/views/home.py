"""The first page after login."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from engine import selectors
from labeling.status import status_of


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Experiments to label, and experiments to watch with their badges."""
    return render(
        request,
        "labeling/home.html",
        {
            "to_label": selectors.with_own_judgments(
                selectors.experiments_to_label(request.user), request.user
            ),
            "to_watch": [
                {"experiment": experiment, "status": status_of(experiment)}
                for experiment in selectors.experiments_to_watch(request.user)
            ],
        },
    )
