"""The first page after login."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from engine.selectors import people
from labeling import access
from labeling.accounts.client_address import untrusted_proxy
from labeling.annotation.endings import ending
from labeling.dashboard.cards import card
from labeling.language import in_english
from labeling.requests import AuthenticatedRequest


@login_required
@require_safe
def home(request: AuthenticatedRequest) -> HttpResponse:
    """Experiments to label, and experiments to watch with their badges; the archive on demand."""
    archive = "archived" in request.GET
    watched = people.experiments_to_watch(request.user)
    may_create = access.may_create(request)
    if may_create or watched.exists():
        in_english(request)
    return render(
        request,
        "labeling/home.html",
        {
            "to_label": [
                (experiment, ending(experiment))
                for experiment in people.with_own_answers(
                    people.experiments_to_label(request.user).filter(archived_at__isnull=True),
                    request.user,
                )
            ],
            "to_watch": [
                card(experiment)
                for experiment in watched.filter(archived_at__isnull=not archive).select_related("winner")
            ],
            "archive": archive,
            "n_archived": watched.filter(archived_at__isnull=False).count(),
            "may_create": may_create,
            "untrusted_proxy": untrusted_proxy() if request.user.is_superuser else None,
        },
    )
