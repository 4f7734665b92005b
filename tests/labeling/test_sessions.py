"""Sessions end when they are over, and with the account."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.urls import reverse
from django.utils import timezone

from engine.models import User
from tests.accounts import is_logged_in

pytestmark = pytest.mark.django_db


def test_a_session_lasts_until_it_is_over(client, annotator):
    client.force_login(annotator)
    assert is_logged_in(client)
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not is_logged_in(client)


def test_nothing_that_a_session_stores_puts_its_end_off(client, annotator, monkeypatch):
    client.force_login(annotator)
    [end] = Session.objects.values_list("expire_date", flat=True)
    monkeypatch.setattr(timezone, "now", lambda: end - timedelta(hours=1))
    session = client.session
    session["more"] = "x"
    session.save()
    assert Session.objects.get().expire_date - end < timedelta(seconds=2)


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "!another"}])
def test_a_session_ends_with_the_account_or_its_password(change, client, annotator):
    client.force_login(annotator)
    assert is_logged_in(client)
    User.objects.filter(pk=annotator.pk).update(**change)
    assert not is_logged_in(client)


def test_a_session_of_an_account_that_was_removed_is_nobodys(client, annotator):
    client.force_login(annotator)
    annotator.delete()
    assert not is_logged_in(client)


@pytest.mark.parametrize("key", ["x" * 32, r'"\000aaaaaaaa"', "X" * 32, "short", ""])
def test_a_made_up_session_is_nobodys(key, client):
    """PostgreSQL looks for no text with a NUL byte, which was an error 500 for anybody who sent one."""
    assert client.get(reverse("home"), headers={"cookie": f"sessionid={key}"}).status_code == 302
