"""Access to experiments. One that the user may not see answers 404; a missing right to one that they may see
answers 403, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.authentication import get_authentication_records
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from engine.models import Connection, Experiment, ExperimentQuerySet, Invitation, Membership, Token, User
from engine.selectors import blinding, connections, people
from engine.services.people import begin_to_judge
from labeling.requests import AuthenticatedRequest

# The experiments to which a user has a certain right.
_Right = Callable[[User], ExperimentQuerySet]


def annotator_action(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A POST of the annotator's page. After a new login the browser returns to the pair, not to the POST."""

    @login_not_required
    @require_POST
    @wraps(view)
    def wrapped(request: HttpRequest, experiment_id: int, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("pair", args=[experiment_id]))
        return view(request, experiment_id, *args, **kwargs)

    return wrapped


def bound_to(request: AuthenticatedRequest) -> int | None:
    """The only experiment that the request's API token reaches; ``None`` where there is no such limit."""
    token = getattr(request, "auth", None)
    return token.experiment_id if isinstance(token, Token) else None


def _reached(request: AuthenticatedRequest, experiments: ExperimentQuerySet) -> ExperimentQuerySet:
    bound = bound_to(request)
    return experiments if bound is None else experiments.filter(pk=bound)


def watched(request: AuthenticatedRequest) -> ExperimentQuerySet:
    """All experiments whose dashboards the request may see."""
    return _reached(request, Experiment.objects.watched_by(request.user))


def runnable(request: AuthenticatedRequest) -> ExperimentQuerySet:
    """All experiments that the request may change."""
    return _reached(request, Experiment.objects.run_by(request.user))


def judged(request: AuthenticatedRequest, experiment_id: int) -> Experiment | None:
    """The experiment, if the user is its annotator already, with the number of their answers today."""
    reaches = bound_to(request) in {None, experiment_id}
    return people.experiment_to_label(request.user, experiment_id) if reaches else None


def to_label(request: AuthenticatedRequest, experiment_id: int) -> Experiment:
    """The experiment to judge in. An owner who sends something, or asks for a pair by the API, becomes an
    annotator; reading changes no rights.
    """
    labeled = judged(request, experiment_id)
    if labeled is not None:
        return labeled
    joined = _permitted(
        request,
        experiment_id,
        Experiment.objects.joinable_by,
        # The only one of these pages that is not in English.
        _(
            "You may not judge here. Annotators and owners may, after the start and where people judge. "
            "Ask an owner for the role annotator."
        ),
    )
    if request.method == "POST":
        begin_to_judge(experiment_id=joined.pk, by=request.user)
        return judged(request, experiment_id) or joined
    return joined


def to_watch(request: AuthenticatedRequest, experiment_id: int) -> Experiment:
    return _permitted(
        request,
        experiment_id,
        Experiment.objects.watched_by,
        "You may judge here, but not see results. Ask an owner for the role viewer.",
    )


def to_run(request: AuthenticatedRequest, experiment_id: int) -> Experiment:
    return _permitted(
        request,
        experiment_id,
        Experiment.objects.run_by,
        "Only editors and owners of the experiment may do this. Ask an owner for the role editor.",
    )


def _permitted(request: AuthenticatedRequest, experiment_id: int, right: _Right, reason: str) -> Experiment:
    """The experiment, if this user has the right to it.

    Raises
    ------
    PermissionDenied
        The right is missing for an experiment that the user may see; with the reason.
    Http404
        The user may see no such experiment.
    """
    found = _reached(request, right(request.user)).filter(pk=experiment_id).first()
    if found is not None:
        return found
    seen = Experiment.objects.watched_by(request.user) | Experiment.objects.judged_by(request.user)
    if _reached(request, seen).filter(pk=experiment_id).exists():
        raise PermissionDenied(reason)
    raise Http404


def _has(request: AuthenticatedRequest, experiment: Experiment, right: _Right) -> bool:
    return _reached(request, right(request.user)).filter(pk=experiment.pk).exists()


def may_run(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    return _has(request, experiment, Experiment.objects.run_by)


def may_void(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    """True if the reader may take judgments back: those of a concluded experiment are final."""
    return experiment.state != Experiment.State.CONCLUDED and may_run(request, experiment)


def may_begin_to_judge(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    """True for an owner who would become an annotator by judging."""
    return _has(request, experiment, Experiment.objects.joinable_by)


def may_own(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    return _has(request, experiment, Experiment.objects.owned_by)


def withholds_responses(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    """True if the authors of ready-made responses are hidden from this user, who also judges them.

    Editors of a draft bring the responses, so they see them.
    """
    if experiment.state == Experiment.State.DRAFT and may_run(request, experiment):
        return False
    return blinding.judges_too(experiment, request.user) and not blinding.is_over(experiment)


def may_copy(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    """False if ready-made responses are hidden from this user: a copy would belong to them and hold these."""
    imported = experiment.responses == Experiment.Responses.IMPORTED
    return not (imported and withholds_responses(request, experiment))


def to_copy(request: AuthenticatedRequest, experiment_id: int) -> Experiment:
    """The experiment of which the user may make a copy."""
    experiment = to_run(request, experiment_id)
    if not may_copy(request, experiment):
        raise PermissionDenied(
            "You judge this experiment, or did, and a copy would show you who wrote its responses. Copy it "
            "after it has concluded, or ask somebody who runs it and does not judge."
        )
    check_may_create(request)
    return experiment


def judges_blind(request: HttpRequest, experiment: Experiment) -> bool:
    """True if the reader is known to judge this experiment, and may not see its results before its end."""
    if not request.user.is_authenticated or experiment.state == Experiment.State.CONCLUDED:
        return False
    rights = (Experiment.objects.judged_by(request.user), Experiment.objects.watched_by(request.user))
    judges, watches = (experiments.filter(pk=experiment.pk).exists() for experiments in rights)
    return judges and not watches


def may_create(request: HttpRequest) -> bool:
    """Superusers (who have every permission), and users with this permission."""
    return request.user.has_perm("engine.add_experiment")


def check_may_create(request: AuthenticatedRequest) -> None:
    """Refuse with 403 a user or a token that may not make experiments."""
    if bound_to(request) is not None:
        raise PermissionDenied(
            "This token is limited to one experiment, so it cannot create others. Use another token."
        )
    if not may_create(request):
        raise PermissionDenied("You may not create experiments. Ask an administrator for the permission.")


def to_create(request: AuthenticatedRequest) -> None:
    """Answer 404 to users who may not make experiments."""
    if not may_create(request):
        raise Http404


def to_administer(request: AuthenticatedRequest) -> None:
    """Answer 404 to everybody but superusers, who run the site."""
    if not request.user.is_superuser:
        raise Http404


def to_own(request: AuthenticatedRequest, experiment_id: int) -> Experiment:
    return _permitted(
        request,
        experiment_id,
        Experiment.objects.owned_by,
        "Only owners of the experiment may do this.",
    )


def connection_to_see(request: AuthenticatedRequest, connection_id: int) -> Connection:
    """Answer 404 to those who may not know of this connection."""
    return get_object_or_404(connections.seen_by(request.user), pk=connection_id)


def connection_to_change(request: AuthenticatedRequest, connection_id: int) -> Connection:
    """Answer 404 to everybody but its owner; of the site's, to everybody but staff."""
    found = connection_to_see(request, connection_id)
    if not connections.may_change(request.user, found):
        raise Http404
    return found


def roles_to_give(request: AuthenticatedRequest, experiment: Experiment) -> list[tuple[str, str]]:
    """The roles that this user may invite others to: no invitation leads to more rights than one has."""
    roles = people.roles_to_give(request.user, experiment.pk)
    return [(role, label) for role, label in Membership.Role.choices if role in roles]


def invitation_to_give(request: AuthenticatedRequest, experiment_id: int, invitation_id: int) -> Invitation:
    """An invitation of the experiment, to a role that this user may give."""
    experiment = to_run(request, experiment_id)
    roles = people.roles_to_give(request.user, experiment_id)
    return get_object_or_404(experiment.invitations, pk=invitation_id, role__in=roles)


def require_recent_login(request: HttpRequest) -> None:
    """Require that the user has given the password, a code or the organisation's login a short while ago.

    Anybody else is asked to confirm first; then the request is carried out. So a browser that was left open
    or a stolen cookie is not enough to make tokens or owners.

    Raises
    ------
    ReauthenticationRequired
        allauth's middleware answers it with the page that asks.
    """
    if request.user.is_authenticated and not logged_in_recently(request):
        raise ReauthenticationRequired


def logged_in_recently(request: HttpRequest) -> bool:
    """True if the person in this session logged in within ``ACCOUNT_REAUTHENTICATION_TIMEOUT`` seconds."""
    earliest = time.time() - settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
    records = get_authentication_records(request, request.user)
    return any(record.get("reauthenticated") and record["at"] > earliest for record in records)


def recent_login_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a view whose changes need a recent login; reading needs none."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in {"GET", "HEAD", "OPTIONS"}:
            require_recent_login(request)
        return view(request, *args, **kwargs)

    return wrapped
