"""Every address below accounts/: logged out and in, by every method, under the strict policy."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from labeling.accounts import urls
from tests.factories import make_user
from tests.labeling.test_accounts import log_in, turn_on_two_steps
from tests.labeling.test_security import STRICT, csp

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Page:
    """Statuses of a request without a body: GET and POST logged out, then logged in. 302 logged out: to the
    login.
    """

    get: int
    post: int
    user_get: int
    user_post: int
    arguments: tuple[str, ...] = ()


OWN = {"get": 302, "post": 302}
PAGES = {
    "account": Page(**OWN, user_get=200, user_post=405),
    "mfa_index": Page(**OWN, user_get=200, user_post=405),
    "login": Page(200, 200, 302, 302),
    "account_login": Page(200, 200, 302, 302),
    "logout": Page(405, 302, 405, 302),
    "account_signup": Page(404, 404, 404, 404),
    "account_inactive": Page(200, 405, 200, 405),
    "log_out_everywhere": Page(**OWN, user_get=405, user_post=302),
    "account_keys": Page(**OWN, user_get=200, user_post=400),
    "account_guidelines": Page(**OWN, user_get=405, user_post=204),
    "account_email": Page(**OWN, user_get=200, user_post=302),
    "account_confirm_email": Page(200, 404, 200, 404, ("MQ:no:key",)),
    "account_change_password": Page(**OWN, user_get=200, user_post=200),
    # A user with a password changes it instead.
    "account_set_password": Page(**OWN, user_get=302, user_post=302),
    "account_reset_password": Page(200, 200, 200, 200),
    "account_reset_password_done": Page(200, 405, 200, 405),
    "account_reset_password_from_key": Page(200, 200, 200, 200, ("1", "no-key")),
    "account_reauthenticate": Page(**OWN, user_get=200, user_post=200),
    # Without a second step there is no code to give.
    "mfa_reauthenticate": Page(**OWN, user_get=302, user_post=302),
    "confirm_by_oidc": Page(**OWN, user_get=404, user_post=405),
    "mfa_authenticate": Page(302, 302, 302, 302),
    "mfa_activate_totp": Page(**OWN, user_get=200, user_post=200),
    "mfa_deactivate_totp": Page(**OWN, user_get=404, user_post=404),
    "mfa_view_recovery_codes": Page(**OWN, user_get=404, user_post=405),
    "mfa_generate_recovery_codes": Page(**OWN, user_get=200, user_post=200),
    "socialaccount_connections": Page(**OWN, user_get=200, user_post=200),
    "socialaccount_login_cancelled": Page(302, 405, 302, 405),
    "openid_connect_login": Page(404, 404, 404, 404, ("sso",)),
    "openid_connect_callback": Page(404, 405, 404, 405, ("sso",)),
}
each_page = pytest.mark.parametrize("name", PAGES)


def at(name: str) -> str:
    return reverse(name, args=PAGES[name].arguments)


def test_no_address_is_missing_from_the_table():
    assert sorted(PAGES) == sorted(route.name for route in urls.urlpatterns)


@each_page
def test_who_is_logged_out(name, client):
    page = PAGES[name]
    assert (client.get(at(name)).status_code, Client().post(at(name)).status_code) == (page.get, page.post)
    if page.get == page.user_get == 302:
        return
    if page.get == 302:
        assert client.get(at(name))["Location"].startswith(reverse("login"))


@each_page
def test_who_is_logged_in(name, annotator, client_for):
    page = PAGES[name]
    assert client_for(annotator).get(at(name)).status_code == page.user_get
    assert client_for(annotator).post(at(name)).status_code == page.user_post


@each_page
@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "head"])
def test_no_other_method_is_an_error_of_ours_or_does_anything(name, method, annotator, client_for):
    client = client_for(annotator)
    assert getattr(client, method)(at(name)).status_code < 500
    assert client.get(reverse("home")).status_code == 200


@each_page
def test_a_request_from_another_site_changes_nothing(name, annotator):
    client = Client(enforce_csrf_checks=True)
    client.force_login(annotator)
    assert client.post(at(name)).status_code == 403


@each_page
@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_keeps_to_the_policy_and_to_one_language(name, language, annotator, client_for):
    for client in (Client(), client_for(annotator)):
        client.cookies["django_language"] = language
        response = client.get(at(name))
        assert csp(response) == STRICT
        if response.status_code != 200:
            continue
        html = response.content.decode()
        assert not re.search(r"<[^>]+\s(style|on\w+)=", html)
        assert not re.search(r"<style\b|<script\b(?![^>]*src=)", html)
        assert f'<html lang="{language}">' in html


def test_the_pages_of_the_second_step_keep_to_the_policy(annotator):
    client = log_in(annotator)
    turn_on_two_steps(client)
    half = log_in(annotator)
    pages = [
        client.get(reverse(name))
        for name in (
            "account", "mfa_view_recovery_codes", "mfa_generate_recovery_codes",
            "mfa_deactivate_totp", "mfa_reauthenticate",
        )
    ]  # fmt: skip
    for response in [*pages, half.get(reverse("mfa_authenticate"))]:
        assert response.status_code == 200
        assert csp(response) == STRICT
        assert not re.search(r"<[^>]+\s(style|on\w+)=|<style\b", response.content.decode())


def test_the_errors_are_in_the_readers_language(annotator, client_for):
    client = client_for(annotator)
    client.cookies["django_language"] = "de"
    wrong = {"oldpassword": "wrong", "password1": "x", "password2": "y"}
    page = client.post(reverse("account_change_password"), wrong).content.decode()
    with translation.override("de"):
        assert translation.gettext("This is not your current password.") in page
    assert "This is not" not in page


def test_personal_pages_are_kept_by_no_cache(annotator, client_for):
    client = client_for(annotator)
    for name in ("account", "account_email", "mfa_activate_totp", "socialaccount_connections"):
        assert "no-store" in client.get(at(name))["Cache-Control"], name


def test_somebody_elses_linked_login_and_address_are_out_of_reach(annotator, client_for):
    bob = make_user("bob", email="bob@example.org")
    client = client_for(annotator)
    client.post(reverse("account_email"), {"email": "bob@example.org", "action_remove": ""})
    bob.refresh_from_db()
    assert bob.email == "bob@example.org"
