"""Members of an experiment and their roles."""

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.http.request import split_domain_port
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import MembershipError
from engine.domain.wording import number
from engine.models import Experiment, Invitation, Membership
from engine.selectors import blinding
from engine.selectors.guests import has_links
from engine.selectors.people import open_invitations
from engine.services import invitation_mails
from engine.services import people as services
from labeling import access
from labeling.forms.invitations import GroupForm, InvitationForm
from labeling.requests import AuthenticatedRequest

_ONLY_HERE = {"localhost", "127.0.0.1", "[::1]"}


@require_safe
def people(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Members, and open invitations to roles that the reader may give. Only owners change members."""
    return people_page(request, access.to_run(request, experiment_id))


def people_page(
    request: AuthenticatedRequest,
    experiment: Experiment,
    *,
    form: InvitationForm | None = None,
    group_form: GroupForm | None = None,
    made: Invitation | None = None,
    link: str = "",
    dialog: bool = False,
    status: int = 200,
) -> HttpResponse:
    """The page. ``dialog``: with the form to invite open; it holds ``made`` and its ``link`` instead where
    this request made one.
    """
    roles = access.roles_to_give(request, experiment)
    context = {
        "experiment": experiment,
        "members": experiment.memberships.select_related("user", "invited_by").order_by(
            "user__username", "role"
        ),
        "invitations": open_invitations(experiment, [role for role, _ in roles]),
        "all_roles": Membership.Role.choices,
        "has_guests": has_links(experiment),
        "form": form or InvitationForm(roles=roles),
        "single_sign_on": settings.OIDC_ISSUER and settings.OIDC_NAME,
        "groups": experiment.group_roles.order_by("group", "role"),
        "group_form": group_form or GroupForm(),
        "may_own": access.may_own(request, experiment),
        "may_begin_to_judge": access.may_begin_to_judge(request, experiment),
        "made": made,
        "link": link,
        "only_here": split_domain_port(request.get_host())[0] in _ONLY_HERE,
        "message": made and f"{invitation_mails.message(made)}\n\n{link}\n",
        "dialog": dialog,
        "unblinded": blinding.unblinded_annotators(experiment),
    }
    return render(request, "dashboard/people.html", context, status=status)


@require_POST
@access.recent_login_required
def change_role(request: AuthenticatedRequest, experiment_id: int, membership_id: int) -> HttpResponse:
    """Give a member another role."""
    experiment = access.to_own(request, experiment_id)
    member = get_object_or_404(experiment.memberships, pk=membership_id)
    if (role := request.POST.get("role")) not in Membership.Role.values:
        return HttpResponseBadRequest("The role must be annotator, viewer, editor or owner.")
    try:
        ended = services.change_role(membership_id=member.pk, by=request.user, role=role)
        if member.user_id in blinding.unblinded_annotators(experiment):
            messages.warning(
                request,
                f"{member.user} now annotates and may see which policy wrote what. The other pages "
                "hide from them every pair that is still to be judged, and exports mark their judgments.",
            )
    except MembershipError as refused:
        messages.error(request, str(refused))
    else:
        _tell_ended(request, member, ended)
    return _back(request, experiment)


@require_POST
@access.recent_login_required
def remove_member(request: AuthenticatedRequest, experiment_id: int, membership_id: int) -> HttpResponse:
    """Take a role away from somebody."""
    experiment = access.to_own(request, experiment_id)
    member = get_object_or_404(experiment.memberships, pk=membership_id)
    try:
        ended = services.remove_member(membership_id=member.pk, by=request.user)
    except MembershipError as refused:
        messages.error(request, str(refused))
    else:
        _tell_ended(request, member, ended)
    return _back(request, experiment)


@require_POST
@access.recent_login_required
def add_group(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Give everybody in a group of the single sign-on a role."""
    experiment = access.to_own(request, experiment_id)
    form = GroupForm(request.POST)
    if not form.is_valid():
        return people_page(request, experiment, group_form=form, status=400)
    try:
        services.add_group(experiment=experiment, by=request.user, **form.cleaned_data)
    except MembershipError as refused:
        messages.error(request, str(refused))
    return redirect("people", experiment_id=experiment.pk)


@require_POST
@access.recent_login_required
def remove_group(request: AuthenticatedRequest, experiment_id: int, number: int) -> HttpResponse:
    """Take a role away from a group."""
    experiment = access.to_own(request, experiment_id)
    services.remove_group(group_role=get_object_or_404(experiment.group_roles, pk=number), by=request.user)
    return redirect("people", experiment_id=experiment.pk)


def _tell_ended(request: AuthenticatedRequest, member: Membership, ended: int) -> None:
    if ended:
        links = number(ended, "open invitation")
        messages.info(
            request,
            (
                f"{links} that {member.user} had made or used also ended. Make new links for people who "
                "still need one."
            ),
        )


def _back(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    """Back to the page of people, or to the first page if the user has just given up the right to see it."""
    if access.may_run(request, experiment):
        return redirect("people", experiment_id=experiment.pk)
    return redirect("home")
