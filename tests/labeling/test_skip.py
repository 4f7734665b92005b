"""Handing a pair back."""

from __future__ import annotations

import uuid

import pytest
from django.urls import reverse

from engine.models import Judgment, Lease
from tests.factories import add_member, click, lease, make_experiment, make_user

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def other(experiment):
    user = make_user()
    add_member(experiment, user)
    return user


@pytest.fixture
def url(experiment, other) -> str:
    return reverse("skip", args=[experiment.pk])


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["plain", "htmx"])
def test_another_pair_is_shown_and_the_skipped_one_goes_to_somebody_else(
    headers, experiment, annotator, other, client_for, url
):
    held = lease(experiment, annotator)
    response = client_for(annotator).post(url, {"token": held.token}, headers=headers, follow=True)
    html = response.content.decode()
    assert response.status_code == 200
    assert "Skipped." in html
    following = Lease.objects.get(annotator=annotator, state="active")
    assert following.comparison != held.comparison
    assert str(following.token) in html
    assert lease(experiment, other).comparison == held.comparison
    assert not Judgment.objects.exists()


def test_a_skip_wakes_the_planner(
    experiment, annotator, client_for, url, sent, django_capture_on_commit_callbacks
):
    token = lease(experiment, annotator).token
    with django_capture_on_commit_callbacks(execute=True):
        client_for(annotator).post(url, {"token": token}, headers=HTMX)
    assert sent == [(experiment.pk,)]


def test_skipped_twice_is_skipped_once(experiment, annotator, client_for, url):
    held = lease(experiment, annotator)
    client = client_for(annotator)
    for _ in range(2):
        assert client.post(url, {"token": held.token}, headers=HTMX).status_code == 200
    held.comparison.refresh_from_db()
    assert held.comparison.skips == 1


def test_what_was_judged_stays_judged(experiment, annotator, client_for, url):
    judgment = click(experiment, annotator)
    assert client_for(annotator).post(url, {"token": judgment.token}, headers=HTMX).status_code == 200
    judgment.comparison.refresh_from_db()
    assert judgment.comparison.state == "judged"


@pytest.mark.parametrize("form", [{}, {"token": ""}, {"token": "x"}], ids=str)
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["plain", "htmx"])
def test_a_bad_form_is_told_so(form, headers, annotator, client_for, url):
    response = client_for(annotator).post(url, form, headers=headers)
    assert response.status_code == 400
    assert "This page is out of date" in response.content.decode()


def test_a_token_that_was_never_given_out_is_told_so(annotator, client_for, url):
    response = client_for(annotator).post(url, {"token": uuid.uuid4()})
    assert response.status_code == 400
    assert "This pair was not shown to you" in response.content.decode()


def test_nobody_can_skip_for_somebody_else(experiment, annotator, other, client_for, url):
    held = lease(experiment, annotator)
    assert client_for(other).post(url, {"token": held.token}).status_code == 400
    held.refresh_from_db()
    assert held.state == "active"


def test_the_address_of_one_experiment_skips_nothing_of_another(annotator, client_for, url):
    elsewhere = make_experiment(ready=True, annotators=(annotator,))
    held = lease(elsewhere, annotator)
    assert client_for(annotator).post(url, {"token": held.token}).status_code == 400
    held.refresh_from_db()
    assert held.state == "active"
