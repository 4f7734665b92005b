"""Who may see what: everything that is not one's own does not exist (404)."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from engine import selectors
from engine.models import Experiment, Judgment, Membership


def to_label(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_label(request.user), pk=experiment_id)


def to_watch(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_watch(request.user), pk=experiment_id)


def to_run(request: HttpRequest, experiment_id: int) -> Experiment:
    return get_object_or_404(selectors.experiments_to_run(request.user), pk=experiment_id)


def roles_to_give(request: HttpRequest, experiment: Experiment) -> list[tuple[str, str]]:
    """The roles that this user may invite others to: no invitation leads to more rights than one has."""
    owns = (
        request.user.is_superuser
        or experiment.memberships.filter(user=request.user, role=Membership.Role.OWNER).exists()
    )
    return [(role, label) for role, label in Membership.Role.choices if owns or role != Membership.Role.OWNER]


def own_judgment(request: HttpRequest, experiment: Experiment, judgment_id: int) -> Judgment:
    return get_object_or_404(selectors.own_judgments(experiment, request.user), pk=judgment_id)
