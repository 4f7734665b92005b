"""The progress that annotators see, and the information that it must not give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from engine.models import Judgment
from engine.models.append_only import lifted
from labeling.annotation import progress
from labeling.annotation.progress import left_together, rounded
from tests.factories import assign, click, click_on, make_experiment, newest
from tests.markup import Markup, stage

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


def test_what_is_left_follows_from_the_number_of_answers_and_is_late(annotator, at):
    experiment = make_experiment(ready=True, annotators=(annotator,), budget=300)
    at(NOON)
    before = left_together(experiment)
    assert before > 0
    give(experiment, annotator, 30, NOON)
    seen = {}
    for minutes in (9, 14, 24, 25, 60):
        at(NOON + timedelta(minutes=minutes))
        seen[minutes] = left_together(experiment)
    assert [seen[minutes] for minutes in (9, 14, 24)] == [before] * 3
    assert seen[25] == seen[60] < before


def test_what_is_left_is_the_same_whatever_was_answered(annotator, at):
    """The same number of answers, all for one policy or for either in turn."""
    told = set()
    for choices in (["left"], ["left", "right"], ["tie"]):
        experiment = make_experiment(ready=True, annotators=(annotator,), seed=5, allow_tie=True)
        for number in range(20):
            click_on(experiment, annotator, 1, choices[number % len(choices)])
        at(timezone.now() + timedelta(hours=1))
        told.add(left_together(experiment))
    assert len(told) == 1


def test_there_are_never_more_left_than_the_budget_and_the_texts_allow(annotator, at):
    at(timezone.now() + timedelta(hours=1))
    small = make_experiment(ready=True, annotators=(annotator,), budget=12, delta=0.01)
    assert left_together(small) == 10
    click_on(small, annotator, 12)
    at(timezone.now() + timedelta(hours=2))
    assert left_together(small) == 0


def test_what_is_left_is_rounded():
    assert [rounded(n) for n in (-3, 0, 1, 44, 154, 460, 1_234, 4_200)] == [
        0,
        0,
        10,
        40,
        150,
        450,
        1200,
        4000,
    ]


@pytest.mark.parametrize("choice", ["left", "right"])
def test_the_page_says_the_same_whichever_side_is_chosen_and_taken_back(choice, annotator, client_for):
    """The attack of the audit: with one annotator alone, and the planner at work in between."""
    experiment = make_experiment(ready=True, annotators=(annotator,), seed=5)
    click_on(experiment, annotator, 24)
    client, undo = client_for(annotator), reverse("undo", args=[experiment.pk])
    told = []
    for answer in (choice, "left"):
        form = {"token": assign(experiment, annotator).token, "choice": answer}
        seen = stage(client.post(reverse("judge", args=[experiment.pk]), form, headers=HTMX))
        assert seen.pop("newest") == str(form["token"])
        told.append({name: value for name, value in seen.items() if name != "token"})
        page = Markup(client.get(reverse("pair", args=[experiment.pk])).content.decode())
        told.append({e.attributes.get("id") for e in page.elements} & {"confidence"})
        client.post(undo, newest(experiment, annotator), headers=HTMX)
    assert told[0] == told[2]
    assert told[0].keys() == {"id", "today", "left", "said"}
    assert told[1] == told[3] == set()


def test_an_undo_does_not_move_it(annotator, client_for, at):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    give(experiment, annotator, 25, NOON)
    at(NOON + timedelta(hours=1))
    client, pair = client_for(annotator), reverse("pair", args=[experiment.pk])
    before = stage(client.get(pair))["left"]
    assert before
    client.post(reverse("undo", args=[experiment.pk]), newest(experiment, annotator), headers=HTMX)
    assert stage(client.get(pair))["left"] == before


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
