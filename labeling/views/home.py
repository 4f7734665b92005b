"""The first page after login."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from engine.models import Experiment
from engine.selectors import answers
from engine.selectors.first_steps import first_steps
from labeling import access
from labeling.accounts.client_address import untrusted_proxy
from labeling.annotation.endings import endings
from labeling.dashboard.cards import cards
from labeling.forms.home_list import HomeForm
from labeling.language import in_english
from labeling.requests import AuthenticatedRequest

_PER_PAGE = 24
# With fewer, everything is seen at a glance.
_WORTH_SEARCHING = 7


@require_safe
def home(request: AuthenticatedRequest) -> HttpResponse:
    """Experiments to label, and experiments to watch with their badges, found by name, state or maker."""
    watched = Experiment.objects.watched_by(request.user)
    n_watched = watched.count()
    may_create = access.may_create(request)
    if may_create or n_watched:
        in_english(request)
    form = HomeForm(request.GET, user=request.user, watched=watched)
    page = Paginator(form.found().select_related("winner"), _PER_PAGE).get_page(request.GET.get("page"))
    to_label = endings(
        answers.with_own_answers(
            Experiment.objects.judged_by(request.user).filter(archived_at__isnull=True),
            request.user,
        ).select_related("winner")
    )
    return render(
        request,
        "labeling/home.html",
        {
            # First those that can be judged.
            "to_label": sorted(to_label, key=lambda each: each[0].state != Experiment.State.RUNNING),
            "n_watched": n_watched,
            "form": form if n_watched >= _WORTH_SEARCHING or form.asks else None,
            "page": page,
            "cards": cards(list(page)),
            "n_archived": watched.filter(archived_at__isnull=False).count(),
            "may_create": may_create,
            "steps": first_steps(request.user) if may_create else None,
            "untrusted_proxy": untrusted_proxy() if request.user.is_superuser else None,
        },
    )
