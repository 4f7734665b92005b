"""The pages below accounts/: one language, the strict policy, and nothing of somebody else.

tests/authorisation tries every address as everybody, by every method.
"""

import re

import pytest
from django.urls import reverse
from django.utils import translation

from tests.factories import make_user
from tests.labeling.test_accounts import log_in, turn_on_two_steps
from tests.labeling.test_security import STRICT, csp

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_keeps_to_the_policy_and_to_one_language(language, annotator, client):
    names = ["login", "account_inactive", "account_reset_password", "account_reset_password_done"]
    own = ["account", "account_keys", "account_email", "account_change_password", "account_reauthenticate",
           "mfa_activate_totp", "mfa_generate_recovery_codes", "socialaccount_connections"]  # fmt: skip
    two_steps = log_in(annotator)
    turn_on_two_steps(two_steps)
    halfway = log_in(annotator)
    second = ["mfa_view_recovery_codes", "mfa_deactivate_totp", "mfa_reauthenticate"]
    half = ["mfa_authenticate"]
    bob = log_in(make_user("bob"))
    for browser, pages in ((client, names), (bob, own), (two_steps, second), (halfway, half)):
        browser.cookies["django_language"] = language
        for name in pages:
            response = browser.get(reverse(name))
            html = response.content.decode()
            assert (response.status_code, csp(response)) == (200, STRICT), name
            assert not re.search(r"<[^>]+\s(style|on\w+)=|<style\b|<script\b(?![^>]*src=)", html), name
            assert f'<html lang="{language}">' in html, name


def test_the_errors_are_in_the_readers_language(annotator, client_for):
    client = client_for(annotator)
    client.cookies["django_language"] = "de"
    wrong = {"oldpassword": "wrong", "password1": "x", "password2": "y"}
    page = client.post(reverse("account_change_password"), wrong).content.decode()
    with translation.override("de"):
        assert translation.gettext("This is not your current password.") in page
    assert "This is not" not in page


def test_somebody_elses_address_is_out_of_reach(annotator, client_for):
    bob = make_user("bob", email="bob@example.org")
    client_for(annotator).post(reverse("account_email"), {"email": "bob@example.org", "action_remove": ""})
    bob.refresh_from_db()
    assert bob.email == "bob@example.org"
