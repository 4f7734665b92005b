"""A machine whose clock is ten minutes off: assignments, claims and signs of life go by the database."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.models import Comparison, Response, clock
from engine.selectors import workers
from engine.selectors.missing import actively_held
from engine.services.dashboard_pages import show
from engine.services.generation import claim_responses, expire_claims
from engine.tasks import sweep
from tests.accounts import PASSWORD
from tests.factories import assign, click, make_experiment
from tests.markup import stage

pytestmark = [pytest.mark.django_db, pytest.mark.postgres_only]

true_time, true_seconds = timezone.now, time.time


@pytest.fixture
def elsewhere(monkeypatch) -> Callable[[int], None]:
    """Move this process to a machine whose clock is so many minutes off, before it asks the time."""

    def move(minutes: int) -> None:
        seconds = 60 * minutes
        monkeypatch.setattr(timezone, "now", lambda: true_time() + timedelta(seconds=seconds))
        monkeypatch.setattr(time, "time", lambda: true_seconds() + seconds)
        monkeypatch.setattr(clock, "_seen", None)

    return move


@pytest.mark.parametrize("minutes", [-10, 10])
def test_what_one_machine_reserved_another_leaves_alone(minutes, elsewhere, annotator):
    experiment = make_experiment(n_policies=4, ready=True, annotators=(annotator,))
    held = assign(experiment, annotator)
    Response.objects.update(state=Response.State.WAITING)
    claim_responses(worker="w", limit=1)
    sweep()

    elsewhere(minutes)
    expire_claims()
    held.refresh_from_db()
    assert actively_held(experiment) == [held.comparison_id]
    assert Response.objects.filter(state=Response.State.GENERATING).count() == 1
    [control] = workers.seen("control")
    assert control.alive
    assert 0 <= control.seen_seconds < 60


@pytest.mark.parametrize("minutes", [-10, 10])
def test_what_it_reserves_itself_lasts_as_long_as_anywhere(minutes, elsewhere, annotator):
    elsewhere(minutes)
    experiment = make_experiment(n_policies=4, ready=True, annotators=(annotator,))
    judged = click(experiment, annotator)
    held = assign(experiment, annotator)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    # The clock of this test ran on for a moment; it is not asked how long that was.
    close = timedelta(minutes=5)
    assert abs(held.expires_at - now - timedelta(seconds=settings.ASSIGNMENT_SECONDS)) < close
    for written in (judged.created_at, judged.comparison.judged_at, held.granted_at):
        assert abs(written - now) < close
    assert not Comparison.objects.filter(created_at__gt=now).exists()


@pytest.mark.parametrize("minutes", [-10, 10])
def test_an_answer_may_begin_on_one_web_machine_and_end_on_another(minutes, elsewhere, annotator):
    experiment = make_experiment(n_policies=4, ready=True, annotators=(annotator,))
    browser = Client(headers={"HX-Request": "true"})
    form = {"username": annotator.username, "password": PASSWORD}
    assert browser.post(reverse("login"), form).status_code == 302
    shown = stage(browser.get(reverse("pair", args=[experiment.pk])))["token"]

    elsewhere(minutes)
    assert stage(browser.get(reverse("pair", args=[experiment.pk])))["token"] == shown
    kept = browser.post(reverse("beat", args=[experiment.pk]), {"token": shown})
    assert kept.status_code in {200, 204}
    reply = browser.post(reverse("judge", args=[experiment.pk]), {"token": shown, "choice": "left"})
    assert stage(reply)["token"] not in {"", shown}
    assert experiment.comparisons.get(judgments__token=shown).state == Comparison.State.JUDGED
    # Its own login is as good as any.
    assert Client().post(reverse("login"), form).status_code == 302


@pytest.mark.parametrize("minutes", [-10, 10])
def test_charts_that_one_machine_made_are_no_older_on_another(minutes, elsewhere, settings):
    settings.DASHBOARD_SECONDS = 60
    made: list[str] = []

    experiment = make_experiment()

    def look(page: str) -> None:
        show(experiment=experiment, page=page, make=lambda _: {"n": made.append(page)})

    look("here")
    elsewhere(minutes)
    look("here")
    look("there")
    elsewhere(0)
    look("there")
    assert made == ["here", "there"]
