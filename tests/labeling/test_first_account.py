"""The first account of an installation, and the first steps after it."""

import re
import time

import pytest
from django.core.signing import TimestampSigner
from django.test import Client
from django.urls import reverse

from engine.models import User
from labeling.accounts.first_account import first_account_path
from tests.factories import add_member, click, connect, make_experiment, make_user

pytestmark = pytest.mark.django_db

FORM = {"username": "ana", "password1": "a long pass phrase", "password2": "a long pass phrase"}


def test_the_link_makes_a_superuser_who_is_logged_in(client):
    path = first_account_path()
    assert client.get(path).status_code == 200
    made = client.post(path, FORM)
    assert made["Location"] == reverse("home")
    [user] = User.objects.all()
    assert (user.username, user.is_superuser, user.is_staff) == ("ana", True, True)
    assert client.get(reverse("home")).context["user"] == user


@pytest.mark.parametrize(
    "wrong", [{"username": ""}, {"password2": "another one"}, {"password1": "short", "password2": "short"}]
)
def test_bad_input_makes_no_account(client, wrong):
    assert client.post(first_account_path(), FORM | wrong).status_code == 400
    assert not User.objects.exists()


def test_the_link_works_once(client):
    path = first_account_path()
    client.post(path, FORM)
    stranger = Client()
    for answer in (stranger.get(path), stranger.post(path, FORM | {"username": "eve"})):
        assert answer["Location"] == reverse("login")
    assert User.objects.count() == 1


def test_a_guessed_an_old_and_another_signed_text_make_no_account(client, monkeypatch):
    foreign = TimestampSigner(salt="something-else").sign("first").removeprefix("first:")
    wrong = [reverse("first_account", args=[token]) for token in ("guess", foreign)]
    two_days_ago = time.time() - 2 * 86_400
    with monkeypatch.context() as then:
        then.setattr("django.core.signing.time.time", lambda: two_days_ago)
        wrong.append(first_account_path())
    for path in wrong:
        assert client.get(path).status_code == 410
        assert client.post(path, FORM).status_code == 410
    assert not User.objects.exists()


def test_a_visitor_of_this_machine_gets_no_account_without_the_link(client):
    """Behind a proxy on this machine every visitor comes from 127.0.0.1."""
    for path in (reverse("home"), reverse("login"), reverse("account_signup")):
        page = client.get(path, REMOTE_ADDR="127.0.0.1", follow=True).content.decode()
        assert first_account_path().rpartition(":")[0] not in page
        assert 'name="password1"' not in page


def test_the_login_page_says_where_the_link_is_until_there_is_an_account(client):
    assert 'class="notice"' in client.get(reverse("login")).content.decode()
    make_user("ana")
    assert 'class="notice"' not in client.get(reverse("login")).content.decode()


# ---------------------------------------------------------------- first steps


def steps(client: Client) -> dict[str, bool]:
    html = client.get(reverse("home")).content.decode()
    return {step: done == "true" for step, done in re.findall(r'data-step="(\w+)" data-done="(\w+)"', html)}


def test_the_first_page_leads_until_all_is_done(client_for):
    boss = make_user("boss", is_staff=True, is_superuser=True)
    client = client_for(boss)
    assert steps(client) == {"model": False, "questions": False, "people": False}
    connect("m", "https://m.example/v1", owner=boss)
    assert steps(client) == {"model": True, "questions": False, "people": False}
    experiment = make_experiment(running=False)
    add_member(experiment, boss, "owner")
    assert steps(client) == {"model": True, "questions": True, "people": False}
    add_member(experiment, make_user("guest"), "annotator")
    assert steps(client) == {}


def test_the_steps_are_gone_once_somebody_has_judged(client_for):
    annotator, boss = make_user("judge"), make_user("boss", is_staff=True, is_superuser=True)
    experiment = make_experiment(annotators=(annotator,), ready=True)
    click(experiment, annotator)
    assert steps(client_for(boss)) == {}


def test_nobody_is_led_who_may_not_make_experiments(client_for):
    assert steps(client_for(make_user("guest"))) == {}
