"""Invitation links: made, followed, accepted, ended."""

from collections.abc import Sequence

from allauth.account.utils import perform_login, setup_user_email
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import InvitationError, MembershipError, NameTakenError
from engine.models import Invitation, Membership, User
from engine.selectors import blinding
from engine.selectors.guests import guests_link
from engine.services import invitation_mails, invitations
from engine.services.accounts import make_account
from engine.services.guests import admit_guest, identifier_in, known_guest, open_guest_link
from engine.tasks import deliver, wake
from labeling import access
from labeling.accounts.followed_invitation import (
    first_page,
    follow,
    followed,
    parameters_of,
    stop_following,
)
from labeling.accounts.forms import GuestForm, JoinForm
from labeling.accounts.throttling import count_by_browser, remember_browser
from labeling.exports.downloads import attachment
from labeling.exports.files import stem
from labeling.exports.guests import guests_csv
from labeling.forms.invitations import InvitationForm
from labeling.requests import AuthenticatedRequest, read_or_write
from labeling.views.people import people_page


@login_not_required
@require_safe
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Open a link: remember its invitation, and go on to a page whose address is no secret.

    So forms, logs and later pages never hold the link. Opening it alone makes nobody a member.
    """
    invitation = invitations.find_invitation(secret=token)
    if invitation is None:
        stop_following(request)
    else:
        follow(request, invitation.pk)
    response = redirect("accept_invitation")
    response["Referrer-Policy"] = "no-referrer"
    return response


@login_not_required
@read_or_write
def accept_invitation(request: HttpRequest) -> HttpResponse:
    """Say who invites to what. A POST joins: with a new account, or with the one that is logged in."""
    invitation_id = followed(request)
    if for_guests := guests_link(invitation_id):
        return _accept_as_guest(request, for_guests)
    user = request.user if request.user.is_authenticated else None
    if user and (member := invitations.membership_from(invitation_id=invitation_id, user=user)):
        stop_following(request)
        return redirect(first_page(member))
    if request.method == "POST" and not user and count_by_browser(request, "join") is None:
        return render(request, "429.html", status=429)
    form = JoinForm(request.POST or None)
    try:
        invitation = invitations.open_invitation(invitation_id=invitation_id, user=user)
        if request.method == "POST" and (user or form.is_valid()):
            with transaction.atomic():
                joining = user or make_account(
                    username=form.cleaned_data["username"],
                    password=form.cleaned_data["password1"],
                    email=form.cleaned_data.get("email", ""),
                )
                member = invitations.accept_invitation(invitation_id=invitation.pk, user=joining)
                if not user:
                    setup_user_email(request, joining, [])
            stop_following(request)
            onward = first_page(member)
            return (
                redirect(onward)
                if user
                else perform_login(request, joining, redirect_url=onward, signup=True)
            )
    except NameTakenError:
        form.add_error("username", form.instance.unique_error_message(User, ["username"]))
    except InvitationError as refused:
        stop_following(request)
        return render(request, "labeling/invitation_refused.html", {"message": str(refused)}, status=410)
    status = 400 if request.method == "POST" else 200
    context = {
        "invitation": invitation,
        "form": None if user else form,
        "oidc": settings.OIDC_ISSUER and settings.OIDC_NAME,
        "unblinds": user is not None and blinding.would_unblind(invitation.experiment, user, invitation.role),
    }
    response = render(request, "labeling/join.html", context, status=status)
    # Tells the browsers of one office apart when people join.
    remember_browser(request, response)
    return response


def _logged_in(request: HttpRequest, user: User, redirect_url: str) -> HttpResponse:
    """Log a guest in unless they are, and go on."""
    if user != request.user:
        login(request, user)
    return redirect(redirect_url)


def _accept_as_guest(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    """Ask for a nickname, unless the link says who comes; who came before goes on.

    In a browser in which another account is logged in they press a button first.
    """
    user = request.user if request.user.is_authenticated else None
    parameters = parameters_of(request)
    try:
        if outside_id := identifier_in(invitation, parameters):
            user = known_guest(invitation_id=invitation.pk, outside_id=outside_id, parameters=parameters)
        member = user and invitations.membership_from(invitation_id=invitation.pk, user=user)
        # A link alone, which anybody may have sent, logs nobody out of another account.
        switches = request.user.is_authenticated and user != request.user
        if user and member and (request.method == "POST" or not switches):
            stop_following(request)
            return _logged_in(request, user, first_page(member))
        if request.method == "POST" and count_by_browser(request, "join") is None:
            return render(request, "429.html", status=429)
        form = GuestForm(request.POST if request.method == "POST" else None, asks=not outside_id)
        if not member:
            open_guest_link(invitation_id=invitation.pk, outside_id=outside_id)
        if request.method == "POST" and form.is_valid():
            guest, member = admit_guest(
                invitation_id=invitation.pk,
                nickname=form.cleaned_data.get("nickname", ""),
                outside_id=outside_id,
                parameters=parameters,
            )
            stop_following(request)
            return _logged_in(request, guest, first_page(member))
    except InvitationError as refused:
        stop_following(request)
        return render(request, "labeling/invitation_refused.html", {"message": str(refused)}, status=410)
    context = {"invitation": invitation, "form": form}
    status = 400 if request.method == "POST" else 200
    response = render(request, "labeling/join_as_guest.html", context, status=status)
    remember_browser(request, response)
    return response


@require_safe
def guests(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The guests as CSV: whom to thank, and whom to pay."""
    experiment = access.to_run(request, experiment_id)
    return attachment(guests_csv(experiment), f"{stem(experiment)}-guests.csv", "text/csv")


@require_safe
def welcome(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The guidelines, before the first pair."""
    return render(request, "labeling/welcome.html", {"experiment": access.to_label(request, experiment_id)})


@read_or_write
def invite(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The form; a POST makes a link or sends one to each address.

    A link that is made is in the answer to its request and nowhere else.
    """
    experiment = access.to_run(request, experiment_id)
    if request.method != "POST":
        return people_page(request, experiment, dialog=True)
    form = InvitationForm(request.POST, roles=access.roles_to_give(request, experiment))
    if not form.is_valid():
        return people_page(request, experiment, form=form, dialog=True, status=400)
    if form.cleaned_data["role"] == Membership.Role.OWNER:
        access.require_recent_login(request)
    asked = form.cleaned_data
    addresses = asked.pop("addresses", [])
    try:
        if addresses:
            sent = invitation_mails.invite_by_mail(
                experiment=experiment,
                by=request.user,
                role=asked["role"],
                addresses=addresses,
                valid_days=asked["valid_days"],
            )
            _on_the_way(request, sent)
            return redirect("people", experiment_id=experiment.pk)
        invitation, secret = invitations.create_invitation(experiment=experiment, by=request.user, **asked)
    except (InvitationError, MembershipError) as refused:
        form.add_error("addresses" if addresses else None, str(refused))
        return people_page(request, experiment, form=form, dialog=True, status=400)
    link = request.build_absolute_uri(reverse("join", args=[secret]))
    return people_page(request, experiment, made=invitation, link=link, dialog=True)


@require_POST
def resend_invitation(request: AuthenticatedRequest, experiment_id: int, invitation_id: int) -> HttpResponse:
    """Send an invitation's link to its address again."""
    invitation = access.invitation_to_give(request, experiment_id, invitation_id)
    try:
        invitation_mails.resend(invitation_id=invitation.pk, by=request.user)
    except InvitationError as refused:
        messages.error(request, f"Nothing was sent. {refused}")
    else:
        _on_the_way(request, [invitation])
    return redirect("people", experiment_id=experiment_id)


@require_POST
def end_invitation(request: AuthenticatedRequest, experiment_id: int, invitation_id: int) -> HttpResponse:
    """End an invitation. Only users who may give its role may end it."""
    invitation = access.invitation_to_give(request, experiment_id, invitation_id)
    invitations.end_invitation(invitation_id=invitation.pk, by=request.user)
    return redirect("people", experiment_id=experiment_id)


def _on_the_way(request: AuthenticatedRequest, sent: Sequence[Invitation]) -> None:
    wake(deliver)
    what = "An invitation is" if len(sent) == 1 else f"{len(sent)} invitations are"
    messages.success(request, f"{what} on the way. The list of invitations shows what arrived.")
