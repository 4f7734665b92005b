"""Who belongs to an experiment, and in which role."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from engine import selectors
from engine.errors import MembershipError
from engine.models import Experiment, Membership, User
from engine.services import people as services
from labeling import access


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Membership.Role.choices)


@login_required
@never_cache
@require_safe
def people(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Members and open invitations. Owners change them; editors look, and invite."""
    experiment = access.to_run(request, experiment_id)
    roles = access.roles_to_give(request, experiment)
    context = {
        "experiment": experiment,
        "members": experiment.memberships.select_related("user").order_by("user__username", "role"),
        "invitations": experiment.invitations.filter(expires_at__gte=timezone.now()).order_by("-pk"),
        "all_roles": Membership.Role.choices,
        "roles": roles,
        "role_values": [role for role, _ in roles],
        "may_own": access.may_own(request, experiment),
        "unblinded": selectors.unblinded_annotators(experiment),
    }
    return render(request, "dashboard/people.html", context)


@login_required
@require_POST
def change_role(request: HttpRequest, experiment_id: int, membership_id: int) -> HttpResponse:
    """Give a member another role."""
    experiment = access.to_own(request, experiment_id)
    member = get_object_or_404(experiment.memberships, pk=membership_id)
    form = RoleForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("The role must be annotator, viewer, editor or owner.")
    try:
        services.change_role(membership_id=member.pk, by=request.user, role=form.cleaned_data["role"])
        _warn_of_both_roles(request, experiment, member.user)
    except MembershipError as refused:
        messages.error(request, str(refused))
    return _back(request, experiment)


@login_required
@require_POST
def remove_member(request: HttpRequest, experiment_id: int, membership_id: int) -> HttpResponse:
    """Take a role away from somebody."""
    experiment = access.to_own(request, experiment_id)
    member = get_object_or_404(experiment.memberships, pk=membership_id)
    try:
        services.remove_member(membership_id=member.pk, by=request.user)
    except MembershipError as refused:
        messages.error(request, str(refused))
    return _back(request, experiment)


def _warn_of_both_roles(request: HttpRequest, experiment: Experiment, user: User) -> None:
    if user.pk in selectors.unblinded_annotators(experiment):
        messages.warning(
            request,
            f"{user} now annotates and may see which policy wrote what. Pairs that {user} may still be shown stay "
            f"hidden from them, and their judgments are marked in exports.",
        )


def _back(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """Where the page may still be seen: who has just given up a role of their own is led home."""
    if access.may_run(request, experiment):
        return redirect("people", experiment_id=experiment.pk)
    return redirect("home")
