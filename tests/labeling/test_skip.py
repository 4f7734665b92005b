"""Skipping a pair: with a reason, and for good."""

import pytest
from django.urls import reverse

from engine.models import Allowance, Assignment, Flag, Judgment
from tests.factories import add_member, assign, make_user
from tests.markup import stage, words

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
@pytest.mark.parametrize("reason", Flag.Reason.values)
def test_another_pair_is_shown_and_the_skipped_one_goes_to_nobody(
    headers, reason, experiment, annotator, other, client_for, url
):
    held = assign(experiment, annotator)
    form = {"token": held.token, "reason": reason, "comment": "Empty <b>A</b>."}
    response = client_for(annotator).post(url, form, headers=headers, follow=True)
    assert response.status_code == 200
    assert "no answer" in words(response) + stage(response)["said"]
    following = Assignment.objects.get(token=stage(response)["token"])
    assert following.comparison != held.comparison
    assert assign(experiment, other).comparison != held.comparison
    flag = Flag.objects.get()
    assert (flag.comparison, flag.annotator) == (held.comparison, annotator)
    assert (flag.reason, flag.comment) == (reason, "Empty <b>A</b>.")
    assert not Judgment.objects.exists()


def test_who_has_left_many_is_asked_before_the_next_one(experiment, annotator, client_for, url):
    allowance = {"experiment": experiment, "annotator": annotator, "undo_credit": 0}
    Allowance.objects.create(shown=20, skipped=1, **allowance)
    client, page = client_for(annotator), reverse("pair", args=[experiment.pk])
    assert "asks" not in stage(client.get(page))
    Allowance.objects.update(skipped=2)
    assert "asks" in stage(client.get(page))


def test_who_has_left_too_many_gets_no_more_and_is_told_kindly(experiment, annotator, client_for, url):
    allowance = {"experiment": experiment, "annotator": annotator, "undo_credit": 0}
    Allowance.objects.create(shown=40, skipped=4, **allowance)
    held = assign(experiment, annotator)
    reply = client_for(annotator).post(url, {"token": held.token, "reason": "task"}, headers=HTMX)
    # What was theirs before is shown; the look after it brings no more.
    following = {"token": stage(reply)["token"], "choice": "left"}
    reply = client_for(annotator).post(reverse("judge", args=[experiment.pk]), following, headers=HTMX)
    assert "token" not in stage(reply)
    assert "ask the person who invited you" in words(reply)


def test_a_skip_wakes_the_planner(
    experiment, annotator, client_for, url, sent, django_capture_on_commit_callbacks
):
    token = assign(experiment, annotator).token
    with django_capture_on_commit_callbacks(execute=True):
        client_for(annotator).post(url, {"token": token, "reason": "task"}, headers=HTMX)
    assert sent == [(experiment.pk,)]


@pytest.mark.parametrize(
    "change",
    [{"token": ""}, {"token": "x"}, {"reason": ""}, {"reason": "ugly"}, {"comment": "x" * 1001}],
    ids=lambda change: str(change)[:20],
)
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["plain", "htmx"])
def test_a_bad_form_is_told_so_and_skips_nothing(change, headers, experiment, annotator, client_for, url):
    form = {"token": assign(experiment, annotator).token, "reason": "task"} | change
    assert client_for(annotator).post(url, form, headers=headers).status_code == 400
    assert not Flag.objects.exists()


def test_an_undo_after_a_skip_brings_its_pair_back(experiment, annotator, client_for):
    client, held = client_for(annotator), assign(experiment, annotator)
    reply = client.post(
        reverse("skip", args=[experiment.pk]),
        {"token": held.token, "reason": "task"},
        headers={"HX-Request": "true"},
    )
    named = stage(reply)["newest"]
    reply = client.post(
        reverse("undo", args=[experiment.pk]), {"answer": named}, headers={"HX-Request": "true"}
    )
    assert Assignment.objects.get(token=stage(reply)["token"]) == held
    assert Allowance.objects.get().skipped == 0
