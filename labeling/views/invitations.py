"""Invitation links: made, followed, ended."""

from __future__ import annotations

import uuid

from django import forms
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import UserCreationForm
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from engine import selectors
from engine.errors import InvitationError
from engine.models import Membership
from engine.services import people
from labeling import access


class InvitationForm(forms.Form):
    role = forms.ChoiceField(choices=Membership.Role.choices)
    most_uses = forms.IntegerField(min_value=1, max_value=1000)
    valid_days = forms.IntegerField(min_value=1, max_value=365)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, token: uuid.UUID) -> HttpResponse:
    """Sign up through an invitation, or join with the account one has."""
    if request.user.is_authenticated and (member := people.membership_from(token=token, user=request.user)):
        return _lead_on(member)
    try:
        invitation = people.open_invitation(token=token)
    except InvitationError as refused:
        return render(request, "labeling/invitation_refused.html", {"message": str(refused)}, status=410)
    known = request.user.is_authenticated
    form = None if known else UserCreationForm(request.POST or None)
    if request.method == "POST" and (known or form.is_valid()):
        try:
            with transaction.atomic():
                user = request.user if known else form.save()
                membership = people.accept_invitation(token=token, user=user)
        except InvitationError as refused:
            return render(request, "labeling/invitation_refused.html", {"message": str(refused)}, status=410)
        if not known:
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        return _lead_on(membership)
    status = 400 if request.method == "POST" else 200
    context = {
        "invitation": invitation,
        "form": form,
        "unblinds": known and selectors.would_unblind(invitation.experiment, request.user, invitation.role),
    }
    return render(request, "labeling/join.html", context, status=status)


def _lead_on(membership: Membership) -> HttpResponse:
    page = "welcome" if membership.role == Membership.Role.ANNOTATOR else "dashboard"
    return redirect(page, experiment_id=membership.experiment_id)


@login_required
@require_safe
def welcome(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """The guidelines, before the first pair."""
    return render(request, "labeling/welcome.html", {"experiment": access.to_label(request, experiment_id)})


@login_required
@require_POST
def invite(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Make an invitation link."""
    experiment = access.to_run(request, experiment_id)
    form = InvitationForm(request.POST)
    form.fields["role"].choices = access.roles_to_give(request, experiment)
    if form.is_valid():
        people.create_invitation(experiment=experiment, by=request.user, **form.cleaned_data)
        messages.success(request, "The link is in the list of invitations below.")
    else:
        messages.error(request, "Give a role, a number of uses and of days, each at least one.")
    return redirect("people", experiment_id=experiment.pk)


@login_required
@require_POST
def end_invitation(request: HttpRequest, experiment_id: int, invitation_id: int) -> HttpResponse:
    """Make an invitation useless. Who may not give a role may not take its invitation back either."""
    experiment = access.to_run(request, experiment_id)
    roles = [role for role, _ in access.roles_to_give(request, experiment)]
    invitation = get_object_or_404(experiment.invitations.filter(role__in=roles), pk=invitation_id)
    people.end_invitation(invitation_id=invitation.pk, by=request.user)
    return redirect("people", experiment_id=experiment.pk)
