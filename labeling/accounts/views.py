"""The account page. ``labeling.accounts.urls`` lists the views that come from allauth."""

import logging
from http import HTTPStatus

from allauth.account import views as allauth_views
from allauth.account.models import EmailAddress
from allauth.account.utils import perform_login, setup_user_email
from allauth.mfa.models import Authenticator
from allauth.socialaccount.internal import statekit
from allauth.socialaccount.models import SocialAccount, SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView, OAuth2View
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.sessions.backends import signed_cookies
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from engine.domain.mail_state import mail_is_sent
from engine.selectors.accounts import any_account, tokens_of
from engine.services import accounts
from labeling.accounts import oidc
from labeling.accounts.first_account import opens_first_account
from labeling.accounts.forms import JoinForm
from labeling.accounts.throttling import count_by_browser, remember_browser
from labeling.annotation.keys import KeysForm
from labeling.requests import AuthenticatedRequest, read_or_write

logger = logging.getLogger(__name__)

# The cookie of an attempt to log in at the provider, for browsers that have no session.
_STATE = "provider_login"


@require_safe
def account(request: AuthenticatedRequest) -> HttpResponse:
    """Show the user's account and the ways to change it."""
    sessions = UserSession.objects.purge_and_list(request.user)
    context = {
        "mail_is_sent": mail_is_sent(),
        "email": EmailAddress.objects.get_verified(request.user),
        "new_email": EmailAddress.objects.get_new(request.user),
        "two_step": Authenticator.objects.filter(user=request.user, type=Authenticator.Type.TOTP).first(),
        "sessions": sorted(sessions, key=lambda session: session.created_at, reverse=True),
        "n_tokens": tokens_of(request.user).count(),
        "oidc": settings.OIDC_ISSUER and settings.OIDC_NAME,
        "linked": SocialAccount.objects.filter(user=request.user).first(),
    }
    return render(request, "account/account.html", context)


@login_not_required
@sensitive_post_parameters()
@read_or_write
def first_account(request: HttpRequest, token: str) -> HttpResponse:
    """Make the first account, a superuser's, for somebody who has the link that the program printed."""
    if any_account():
        messages.info(request, _("The first account is made. Log in."))
        return redirect("login")
    if not opens_first_account(token):
        return render(request, "account/first_account_refused.html", status=410)
    form = JoinForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = accounts.make_account(
            username=form.cleaned_data["username"],
            password=form.cleaned_data["password1"],
            email=form.cleaned_data.get("email", ""),
            superuser=True,
        )
        setup_user_email(request, user, [])
        made: HttpResponse = perform_login(request, user, redirect_url=reverse("home"), signup=True)
        return made
    status = 400 if request.method == "POST" else 200
    return render(request, "account/first_account.html", {"form": form}, status=status)


@read_or_write
def keys(request: AuthenticatedRequest) -> HttpResponse:
    """The keys and the layout with which one judges; ``reset`` goes back to the usual ones.

    ``next``: the pairs from which somebody came.
    """
    pairs = request.GET.get("next", "")
    if not _is_ours(request, pairs):
        pairs = ""
    if "reset" in request.POST:
        accounts.set_preferences(user=request.user, keys=None, left_handed=None)
        messages.success(request, _("Keys and layout are the usual ones again."))
        return redirect(request.get_full_path())
    form = KeysForm(request.POST if request.method == "POST" else None, user=request.user)
    if request.method == "POST" and form.is_valid():
        accounts.set_preferences(
            user=request.user, keys=form.chosen_keys(), left_handed=form.cleaned_data["left_handed"] or None
        )
        messages.success(request, _("Saved."))
        return redirect(request.get_full_path())
    context = {"form": form, "pairs": pairs}
    return render(request, "account/keys.html", context, status=400 if form.errors else 200)


@require_POST
def fold_guidelines(request: AuthenticatedRequest) -> HttpResponse:
    """Remember whether the guidelines stand beside the pair."""
    accounts.set_preferences(user=request.user, guidelines=request.POST.get("open") == "true")
    return HttpResponse(status=204)


@require_POST
def log_out_everywhere(request: AuthenticatedRequest) -> HttpResponse:
    """End all of one's sessions, this one too, and the API tokens where the box is ticked."""
    accounts.log_out_everywhere(user=request.user, tokens="tokens" in request.POST)
    logout(request)
    messages.success(request, _("You are logged out everywhere."))
    return redirect("login")


@login_not_required
@read_or_write
def reset_password(request: HttpRequest) -> HttpResponse:
    """A link by e-mail, or, where no mail is sent, whom to ask for one."""
    if mail_is_sent():
        response: HttpResponse = allauth_views.password_reset(request)
        return response
    if request.method == "POST":
        raise Http404
    return render(request, "account/password_reset_by_hand.html", {"contact": settings.SITE_CONTACT})


@require_safe
def confirm_by_oidc(request: HttpRequest) -> HttpResponse:
    """Ask for a new login by the organisation's provider: the account has no other."""
    if not settings.OIDC_ISSUER:
        raise Http404
    # The submitted form is lost on the way to the provider, so return to the page with the form.
    page = request.headers.get("Referer", "")
    back = page if _is_ours(request, page) else reverse("home")
    return render(request, "account/confirm_by_oidc.html", {"name": settings.OIDC_NAME, "back": back})


def _is_ours(request: HttpRequest, page: str) -> bool:
    """True if this address leads to no other site."""
    return url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())


@login_not_required
@read_or_write
def oidc_login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Ask, then send the browser to the provider, by a page in between: see the template."""
    if request.method != "POST":
        return _answer(request, OAuth2LoginView, provider_id)
    stored = request.session
    if not stored.keys():
        # Store no session: each press of the button would add a row.
        request.session = signed_cookies.SessionStore()
    response = _in_time(request, OAuth2LoginView, provider_id)
    state, request.session = request.session, stored
    if response.status_code == HTTPStatus.FOUND:
        context = {"url": response["Location"], "name": settings.OIDC_NAME}
        response = render(request, "socialaccount/leaving.html", context)
        remember_browser(request, response)
        if state is not stored:
            response.set_cookie(
                _STATE,
                str(state.session_key),
                max_age=statekit.STATE_TTL,
                path=settings.SESSION_COOKIE_PATH,
                httponly=True,
                samesite="Lax",
                secure=settings.SESSION_COOKIE_SECURE,
            )
    return response


@login_not_required
@require_safe
def oidc_callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """The browser is back from the provider. Attempts that fail are limited."""
    attempt = count_by_browser(request, "provider_failed")
    if attempt is None:
        return render(request, "429.html", status=HTTPStatus.TOO_MANY_REQUESTS)
    was_empty = not request.session.keys()
    if was_empty:
        request.session.update(signed_cookies.SessionStore(request.COOKIES.get(_STATE)).load())
    response = _in_time(request, OAuth2CallbackView, provider_id)
    if response.status_code == HTTPStatus.FOUND:
        attempt.rollback()
    elif was_empty:
        request.session.flush()
    response.delete_cookie(_STATE, path=settings.SESSION_COOKIE_PATH)
    return response


def _in_time(request: HttpRequest, view: type[OAuth2View], provider_id: str) -> HttpResponse:
    """The answer of a view that asks the provider."""
    try:
        with oidc.exchange(request):
            return _answer(request, view, provider_id)
    except (OAuth2Error, IntegrityError) as error:
        # Two answers at once may want one name, or make one link.
        logger.warning("A login at the provider failed: %.300r", error)
        return render(request, "socialaccount/authentication_error.html", status=503)


def _answer(request: HttpRequest, view: type[OAuth2View], provider_id: str) -> HttpResponse:
    try:
        response: HttpResponse = view.adapter_view(oidc.Exchange(request, provider_id))(request)
    except SocialApp.DoesNotExist as missing:
        raise Http404 from missing
    return response


@login_not_required
@require_safe
def oidc_cancelled(request: HttpRequest) -> HttpResponse:
    """The person cancelled at the provider's page."""
    messages.info(request, _("The login was cancelled."))
    return redirect("account" if request.user.is_authenticated else "login")


@login_not_required
def closed(request: HttpRequest) -> HttpResponse:
    """Registration is closed: accounts come from invitations. allauth still needs an address for it."""
    raise Http404
