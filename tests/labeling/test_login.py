"""Logging in and out, and what keeps guessing slow."""

import pytest
from django.urls import reverse

from engine.models import User
from tests.accounts import PASSWORD, is_logged_in
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def try_to_log_in(client, name: str, password: str, **extra: str):
    return client.post(reverse("login"), {"username": name, "password": password}, **extra)


def test_the_right_password_opens_the_first_page(annotator, client):
    response = try_to_log_in(client, "ann", PASSWORD)
    assert response.status_code == 302
    assert response["Location"] == reverse("home")
    assert is_logged_in(client)


def test_it_leads_on_to_where_one_wanted_to_go_but_to_no_other_site(annotator, client):
    for wanted, reached in (
        ("/label/7/", "/label/7/"),
        ("https://evil.example/", "/"),
        ("//evil.example", "/"),
    ):
        client.logout()
        response = client.post(reverse("login"), {"username": "ann", "password": PASSWORD, "next": wanted})
        assert response["Location"] == reached


def test_who_is_logged_in_already_is_led_on(annotator, client_for):
    assert client_for(annotator).get(reverse("login"))["Location"] == reverse("home")


@pytest.mark.parametrize(
    ("name", "password"), [("ann", "wrong"), ("nobody", PASSWORD), ("", ""), ("ann", "")]
)
def test_a_wrong_name_or_password_says_the_same_and_opens_nothing(name, password, annotator, client):
    response = try_to_log_in(client, name, password)
    assert response.status_code == 200
    assert "Name and password do not match." in response.content.decode()
    assert not is_logged_in(client)


def test_what_was_typed_comes_back_as_text_only(client, db):
    html = try_to_log_in(client, '"><script>alert(1)</script>', "x").content.decode()
    assert "<script>alert" not in html


def test_who_is_deactivated_cannot_log_in(client, db):
    make_user("gone", is_active=False)
    assert try_to_log_in(client, "gone", PASSWORD).status_code == 200
    assert not is_logged_in(client)


def test_logging_out_is_a_post_and_ends_the_session(annotator, client_for):
    client = client_for(annotator)
    assert client.get(reverse("logout")).status_code == 405
    assert is_logged_in(client)
    assert client.post(reverse("logout"))["Location"] == reverse("login")
    assert not is_logged_in(client)


def test_nobody_can_register_themselves(client, db):
    for path in ("/accounts/register/", "/accounts/signup/", "/register/", "/signup/"):
        assert client.post(path, {"username": "me", "password1": PASSWORD}).status_code == 404
    assert not User.objects.exists()
