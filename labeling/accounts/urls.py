"""Addresses below ``accounts/``. allauth's own list has pages that this site does not offer, so each is named
here.

The names are those that allauth looks up. Some pages of allauth are parts of the account's page here.
"""

from allauth.account import views as account
from allauth.mfa.base import views as two_step
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from allauth.socialaccount import views as linked
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LogoutView
from django.urls import path, re_path

from labeling.access import recent_login_required
from labeling.accounts import views as own

urlpatterns = [
    path("", own.account, name="account"),
    path("", own.account, name="mfa_index"),
    path("login/", account.login, name="login"),
    path("login/", account.login, name="account_login"),
    path("logout/", login_not_required(LogoutView.as_view()), name="logout"),
    path("signup/", own.closed, name="account_signup"),
    path("first/<str:token>/", own.first_account, name="first_account"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("everywhere/", own.log_out_everywhere, name="log_out_everywhere"),
    path("keys/", own.keys, name="account_keys"),
    path("guidelines/", own.fold_guidelines, name="account_guidelines"),
    path("email/", account.email, name="account_email"),
    path("email/confirm/<str:key>/", account.confirm_email, name="account_confirm_email"),
    path("password/change/", account.password_change, name="account_change_password"),
    path("password/set/", recent_login_required(account.password_set), name="account_set_password"),
    path("password/reset/", own.reset_password, name="account_reset_password"),
    path("password/reset/sent/", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^password/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("confirm/code/", two_step.reauthenticate, name="mfa_reauthenticate"),
    path("confirm/sso/", own.confirm_by_oidc, name="confirm_by_oidc"),
    path("two-step/code/", two_step.authenticate, name="mfa_authenticate"),
    path("two-step/on/", totp.activate_totp, name="mfa_activate_totp"),
    path("two-step/off/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("two-step/recovery/", recovery_codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path(
        "two-step/recovery/new/", recovery_codes.generate_recovery_codes, name="mfa_generate_recovery_codes"
    ),
    path("linked/", linked.connections, name="socialaccount_connections"),
    path("linked/cancelled/", own.oidc_cancelled, name="socialaccount_login_cancelled"),
    path("oidc/<slug:provider_id>/login/", own.oidc_login, name="openid_connect_login"),
    path("oidc/<slug:provider_id>/login/callback/", own.oidc_callback, name="openid_connect_callback"),
]
