"""The progress that annotators see, and the information that it must not give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from engine.models import Judgment
from engine.models.append_only import lifted
from labeling.annotation import progress
from labeling.annotation.progress import answers_together
from tests.factories import click, click_on, lease, make_experiment, newest
from tests.markup import Markup, stage, words

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def at(monkeypatch):
    """Set the clock of the progress."""

    def set_to(moment: datetime) -> None:
        monkeypatch.setattr(progress.timezone, "now", lambda: moment)

    return set_to


def give(experiment, user, n: int, at: datetime) -> None:
    newest = Judgment.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    click_on(experiment, user, n)
    with lifted():
        Judgment.objects.filter(pk__gt=newest).update(created_at=at)


NOON = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)


def test_it_is_a_number_of_answers_in_steps_of_25_and_late(annotator, monkeypatch):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    give(experiment, annotator, 26, NOON)
    seen = {}
    for minutes in (0, 9, 14, 24, 25, 60):
        moment = NOON + timedelta(minutes=minutes)
        monkeypatch.setattr(progress.timezone, "now", lambda moment=moment: moment)
        seen[minutes] = answers_together(experiment)
    assert seen == {0: 0, 9: 0, 14: 0, 24: 0, 25: 25, 60: 25}


@pytest.mark.parametrize("choice", ["left", "right"])
def test_the_page_says_the_same_whichever_side_is_chosen_and_taken_back(choice, annotator, client_for):
    """The attack of the audit: with one annotator alone, and the planner at work in between."""
    experiment = make_experiment(ready=True, annotators=(annotator,), seed=5)
    click_on(experiment, annotator, 24)
    client, undo = client_for(annotator), reverse("undo", args=[experiment.pk])
    told = []
    for answer in (choice, "left"):
        form = {"token": lease(experiment, annotator).token, "choice": answer}
        seen = stage(client.post(reverse("judge", args=[experiment.pk]), form, headers=HTMX))
        assert seen.pop("newest") == str(form["token"])
        told.append({name: value for name, value in seen.items() if name != "token"})
        page = Markup(client.get(reverse("pair", args=[experiment.pk])).content.decode())
        told.append({e.attributes.get("id") for e in page.elements} & {"confidence", "left"})
        client.post(undo, newest(experiment, annotator), headers=HTMX)
    expected = {"id": "stage", "today": "25", "everybody": "", "said": ""}
    assert told == [expected, set(), expected, set()]


def test_an_undo_does_not_move_it_at_the_very_edge(annotator, client_for, at):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    give(experiment, annotator, 25, NOON)
    at(NOON + timedelta(hours=1))
    client, pair = client_for(annotator), reverse("pair", args=[experiment.pk])
    assert "25+ by everybody some minutes ago" in words(client.get(pair))
    client.post(reverse("undo", args=[experiment.pk]), newest(experiment, annotator), headers=HTMX)
    assert "25+ by everybody some minutes ago" in words(client.get(pair))
    assert stage(client.get(pair))["today"] in {"0", "24"}


class TestLimitsOnThePage:
    def test_an_undo_wakes_the_planner_which_replays(
        self, experiment, annotator, client_for, sent, django_capture_on_commit_callbacks
    ):
        click(experiment, annotator)
        with django_capture_on_commit_callbacks(execute=True):
            client_for(annotator).post(
                reverse("undo", args=[experiment.pk]), newest(experiment, annotator), headers=HTMX
            )
        assert sent == [(experiment.pk,)]
