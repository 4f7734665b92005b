"""The progress that annotators see, and the information that it must not give."""

import pytest
from django.urls import reverse

from labeling.annotation.progress import left_together, rounded
from tests.factories import assign, click, click_on, make_experiment, newest
from tests.markup import Markup, stage

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


def test_what_is_left_falls_with_the_answers_at_once(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), budget=300)
    seen = [left_together(experiment)]
    for _ in range(3):
        click_on(experiment, annotator, 10)
        seen.append(left_together(experiment))
    assert seen == sorted(set(seen), reverse=True), "each ten answers are seen"


def test_what_is_left_is_the_same_whatever_was_answered(annotator):
    """The same number of answers, all for one policy or for either in turn."""
    told = set()
    for choices in (["left"], ["left", "right"], ["tie"]):
        experiment = make_experiment(ready=True, annotators=(annotator,), seed=5, allow_tie=True)
        for number in range(20):
            click_on(experiment, annotator, 1, choices[number % len(choices)])
        told.add(left_together(experiment))
    assert len(told) == 1


def test_there_are_never_more_left_than_the_budget_and_the_texts_allow(annotator):
    small = make_experiment(ready=True, annotators=(annotator,), budget=12, delta=0.01)
    assert left_together(small) == 10
    click_on(small, annotator, 12)
    assert left_together(small) == 0


def test_what_is_left_is_rounded():
    assert [rounded(n) for n in (-3, 0, 1, 44, 154, 1_234)] == [0, 0, 10, 40, 150, 1_200]


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


def test_an_undo_does_not_move_it(annotator, client_for):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 25)
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
