"""Who may see what: everything that is not one's own does not exist (404)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_POST

from engine import selectors
from engine.models import Check, Experiment, Judgment, Membership


def annotator_action(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A POST of the annotator's page. Whoever was logged out meanwhile comes back to the pair, not to the POST."""

    @require_POST
    @wraps(view)
    def wrapped(request: HttpRequest, experiment_id: int, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("pair", args=[experiment_id]))
        return view(request, experiment_id, *args, **kwargs)

    return wrapped


def to_label(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_label(request.user), pk=experiment_id)


def to_watch(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_watch(request.user), pk=experiment_id)


def to_run(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_run(request.user), pk=experiment_id)


def may_run(request: HttpRequest, experiment: Experiment) -> bool:
    return selectors.experiments_to_run(request.user).filter(pk=experiment.pk).exists()


def may_own(request: HttpRequest, experiment: Experiment) -> bool:
    return selectors.experiments_to_own(request.user).filter(pk=experiment.pk).exists()


def withholds_unfinished(request: HttpRequest, experiment: Experiment) -> bool:
    """Whether this user annotates too, so that pairs which they may still be shown are kept from them."""
    return selectors.withholds_unfinished(experiment, request.user)


def may_create(request: HttpRequest) -> bool:
    """Superusers (who have every permission), and whoever was given this one."""
    return request.user.has_perm("engine.add_experiment")


def to_create(request: HttpRequest) -> None:
    """Go on only for those who may make experiments."""
    if not may_create(request):
        raise Http404


def to_own(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_own(request.user), pk=experiment_id)


def roles_to_give(request: HttpRequest, experiment: Experiment) -> list[tuple[str, str]]:
    """The roles that this user may invite others to: no invitation leads to more rights than one has."""
    owns = may_own(request, experiment)
    return [(role, label) for role, label in Membership.Role.choices if owns or role != Membership.Role.OWNER]


def own_answer(request: HttpRequest, experiment: Experiment, token: uuid.UUID) -> Judgment | Check:
    """What this user answered under a token, to a comparison or to a check."""
    answer = selectors.own_answer(experiment, request.user, token)
    if answer is None:
        raise Http404
    return answer
