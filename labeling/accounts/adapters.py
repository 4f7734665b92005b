"""Differences from django-allauth: who gets an account, how often one may try, and the texts of its pages."""

import logging
import time
from smtplib import SMTPException
from typing import Any
from urllib.parse import urlsplit

import httpx2
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import record_authentication
from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.account.utils import filter_users_by_email
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from cryptography.fernet import MultiFernet
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from qrcode.image.svg import SvgPathImage
from qrcode.main import make as make_qr_code

from engine.domain.credentials import cipher
from engine.domain.errors import InvitationError
from engine.domain.mail_state import mail_is_sent
from engine.models import User
from engine.selectors.people import any_has_a_role
from engine.services import invitations
from engine.services.accounts import note_browser
from engine.services.people import follow_groups
from labeling import access
from labeling.accounts.followed_invitation import first_page, followed, stop_following
from labeling.accounts.oidc import http_client
from labeling.accounts.throttling import count_attempt, remember_browser, take_back

logger = logging.getLogger(__name__)


def _message(template: str) -> str | None:
    """The message of a page after one of allauth's steps; ``None`` if the page needs none."""
    return {
        "account/messages/email_confirmation_sent.txt": _(
            "We have sent you a link. Open it to confirm the address."
        ),
        "account/messages/email_confirmed.txt": _("The e-mail address is confirmed."),
        "account/messages/email_confirmation_failed.txt": _("Another account uses this e-mail address."),
        "account/messages/email_deleted.txt": _("The e-mail address is removed."),
        "account/messages/password_changed.txt": _(
            "The password is changed. All other browsers are logged out."
        ),
        "account/messages/password_set.txt": _("The password is set."),
        "mfa/messages/totp_activated.txt": _("Two-step login is on."),
        "mfa/messages/totp_deactivated.txt": _("Two-step login is off."),
        "socialaccount/messages/account_connected.txt": _("The login is linked to your account."),
        "socialaccount/messages/account_connected_other.txt": _(
            "That login is linked to another account already."
        ),
        "socialaccount/messages/account_disconnected.txt": _("The login is no longer linked."),
    }.get(template)


class AccountAdapter(DefaultAccountAdapter):
    """Accounts with a name and a password. New ones come from invitations; there is no page to register."""

    @property
    def error_messages(self) -> dict[str, Any]:
        return {
            **DefaultAccountAdapter.error_messages,
            "duplicate_email": _("This is your address already."),
            "enter_current_password": _("This is not your current password."),
            "incorrect_code": _("This code is not right. Codes change every half minute."),
            "incorrect_password": _("This is not your password."),
            "invalid_password_reset": _("This link no longer works."),
            "rate_limited": _("Too many attempts. Wait a few minutes and try again."),
            "too_many_login_attempts": _("Too many attempts. Wait a few minutes and try again."),
            "username_password_mismatch": _("Name and password do not match."),
        }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    # ------------------------------------------------------------ trying a password

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        counted = count_attempt(request, credentials["username"])
        if counted is None:
            raise ImmediateHttpResponse(render(request, "account/locked_out.html", status=429))
        self._counted = counted

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        user: User | None = super().authenticate(request, **credentials)
        if user is not None and not user.is_active:
            self.authentication_failed(request, **credentials)
            return None
        if user is not None:
            take_back(self._counted)
        return user

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        logger.warning(
            "Wrong password for %r from %s", credentials.get("username"), request.META["REMOTE_ADDR"]
        )

    # ------------------------------------------------------------ logging in

    def post_login(self, request: HttpRequest, user: User, **how: Any) -> HttpResponse:
        response: HttpResponse = super().post_login(request, user, **how)
        # A fresh login needs no confirmation a minute later. A provider may have asked for nothing: it says
        # when it last did.
        at = time.time()
        if sociallogin := (how["signal_kwargs"] or {}).get("sociallogin"):
            at = min(at, sociallogin.state["authenticated_at"])
            follow_groups(user=user, groups=sociallogin.state["groups"])
        record_authentication(request, user, method="login", at=at, reauthenticated=True)
        note_browser(user=user, number=remember_browser(request, response, user.get_username()))
        return response

    def is_reauthentication_required(self, *, app: str, **_: Any) -> bool:
        """Apply the rule of the whole site to allauth's own pages.

        allauth's rule never asks an account that logs in by a provider alone.
        """
        access.require_recent_login(self.request)
        return False

    def get_reauthentication_methods(self, user: User | AnonymousUser) -> list[dict[str, Any]]:
        methods = super().get_reauthentication_methods(user)
        words = {"reauthenticate": _("Use the password"), "mfa_reauthenticate": _("Use a code")}
        methods = [method | {"description": words[method["id"]]} for method in methods]
        linked = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"] and user.is_authenticated
        if linked and SocialAccount.objects.filter(user=user).exists():
            name = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["name"]
            description = _("Use %(name)s") % {"name": name}
            methods.append({"id": "oidc", "description": description, "url": reverse("confirm_by_oidc")})
        return methods

    # ------------------------------------------------------------ messages

    def should_send_confirmation_mail(
        self, request: HttpRequest, email_address: EmailAddress, signup: bool
    ) -> bool:
        return mail_is_sent()

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        try:
            super().send_mail(template_prefix, email, context)
        except (OSError, SMTPException):
            # A different answer would reveal who has an account here.
            logger.exception("A message to an account could not be sent")

    def get_reset_password_from_key_url(self, key: str) -> str:
        return _at_this_site(super().get_reset_password_from_key_url(key))

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: EmailConfirmation) -> str:
        return _at_this_site(super().get_email_confirmation_url(request, emailconfirmation))

    def add_message(  # noqa: PLR0917 - allauth's own signature
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        extra_tags: str = "",
        message: str | None = None,
    ) -> None:
        if text := message or _message(message_template or ""):
            extra_tags = extra_tags or ("error" if level >= messages.ERROR else "")
            messages.add_message(request, level, text, extra_tags=extra_tags)

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account")

    def get_email_verification_redirect_url(self, email_address: EmailAddress) -> str:
        return reverse("account")


def _at_this_site(url: str) -> str:
    """The same page at ``SITE_URL``: the request's own address cannot be trusted.

    The client that asks for a link writes the header ``Host``. Nobody checks its port, and the link in
    somebody else's mail would lead there with its secret.
    """
    return settings.SITE_URL + urlsplit(url).path


class TwoStepAdapter(DefaultMFAAdapter):
    """Codes from an authenticator app. Their secrets are encrypted: a copy of the database makes no codes."""

    @property
    def error_messages(self) -> dict[str, Any]:
        return {
            **DefaultMFAAdapter.error_messages,
            "incorrect_code": _("This code is not right. Codes change every half minute."),
        }

    def encrypt(self, text: str) -> str:
        return _keys().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _keys().decrypt(encrypted_text.encode()).decode()

    def get_totp_label(self, user: User) -> str:
        return user.get_username()

    def build_totp_svg(self, url: str) -> str:
        """Without the XML declaration, which has no place inside a page."""
        return make_qr_code(url, image_factory=SvgPathImage, box_size=16).to_string(encoding="unicode")


def _keys() -> MultiFernet:
    return cipher("two-step", [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS])


class OidcAdapter(DefaultSocialAccountAdapter):
    """Login with the organisation's own accounts.

    It opens the account here that is linked to it. If none is, it links one whose e-mail address both sides
    have verified, once: an address does not open an account that has a link. It makes a new account only for
    somebody who follows an invitation, which is then used, or whose group has a role somewhere.
    """

    def get_requests_session(self) -> httpx2.Client:
        return http_client()

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: str = AuthError.UNKNOWN,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> None:
        if error != AuthError.CANCELLED:
            logger.warning("A login with %s failed: %.300r", provider, exception)

    def can_authenticate_by_email(self, login: SocialLogin, email: str) -> bool:
        return bool(EmailAddress.objects.filter(email__iexact=email, verified=True).exists())

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        sociallogin.state |= {
            "authenticated_at": sociallogin.authenticated_at,
            "groups": sociallogin.groups,
        }
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            return
        if not sociallogin.is_existing:
            if not self.is_open_for_signup(request, sociallogin):
                raise ImmediateHttpResponse(render(request, "socialaccount/refused.html", status=403))
            _drop_claimed_addresses(sociallogin)
        elif not sociallogin.account.pk and SocialAccount.objects.filter(user=sociallogin.user).exists():
            logger.warning(
                "Refused a login with %s: %r has its e-mail address, and a link to another account there",
                sociallogin.provider,
                sociallogin.user.get_username(),
            )
            context = {"linked_elsewhere": True}
            raise ImmediateHttpResponse(render(request, "socialaccount/refused.html", context, status=403))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        try:
            invitations.open_invitation(invitation_id=followed(request))
        except InvitationError:
            stop_following(request)
            return any_has_a_role(sociallogin.state["groups"])
        return True

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        user: User = super().save_user(request, sociallogin, form)
        invitation_id = followed(request)
        if invitation_id is None:
            return user
        stop_following(request)
        try:
            member = invitations.accept_invitation(invitation_id=invitation_id, user=user)
        except InvitationError as refused:
            page = render(request, "labeling/invitation_refused.html", {"message": str(refused)}, status=410)
            raise ImmediateHttpResponse(page) from refused
        sociallogin.state["next"] = first_page(member)
        return user

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: SocialAccount) -> str:
        return reverse("account")


def _drop_claimed_addresses(sociallogin: SocialLogin) -> None:
    """Make the new account without an address that another account has entered and not confirmed."""
    emails = [address.email for address in sociallogin.email_addresses]
    if any(filter_users_by_email(email) for email in emails):
        sociallogin.email_addresses, sociallogin.user.email = [], ""
