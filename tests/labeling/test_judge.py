"""The click."""

import pytest
from django.urls import reverse

from engine.models import Assignment, Experiment, Judgment
from engine.selectors import counts
from engine.services.experiments import pause, stop
from tests.factories import assign, assign_all, make_experiment
from tests.markup import stage, words

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def url(experiment) -> str:
    return reverse("judge", args=[experiment.pk])


@pytest.mark.parametrize("choice", ["left", "right"])
def test_with_htmx_the_click_is_saved_and_the_next_pair_comes_back_with_the_answer(
    choice, experiment, annotator, client_for, url
):
    held = assign(experiment, annotator)
    response = client_for(annotator).post(url, {"token": held.token, "choice": choice}, headers=HTMX)
    assert response.status_code == 200
    assert response.content.decode().lstrip().startswith('<div id="stage"')
    judgment = Judgment.objects.get()
    assert (judgment.choice, judgment.annotator, judgment.comparison) == (choice, annotator, held.comparison)
    assert judgment.via == "page"
    following = Assignment.objects.get(state="open")
    assert following.comparison != held.comparison
    # No word of the server's: the page then says that it is saved.
    assert (stage(response)["token"], stage(response)["said"]) == (str(following.token), "")
    assert stage(response)["today"] == "1"


def test_the_pair_that_comes_back_is_the_one_after_those_that_the_page_holds(
    experiment, annotator, client_for, url
):
    held = assign(experiment, annotator)
    _, ahead = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=2)
    form = {"token": held.token, "choice": "left", "after": ahead.token}
    following = stage(client_for(annotator).post(url, form, headers=HTMX))["token"]
    assert following not in {str(held.token), str(ahead.token)}
    assert Assignment.objects.filter(annotator=annotator, state="open").count() == 2


def test_a_repeated_click_comes_back_with_the_same_next_pair(experiment, annotator, client_for, url):
    """The reply was lost on its way: the retry must not reserve yet another pair."""
    form = {"token": assign(experiment, annotator).token, "choice": "left"}
    client = client_for(annotator)
    first, second = (client.post(url, form, headers=HTMX) for _ in range(2))
    assert stage(first)["token"] == stage(second)["token"]


def test_a_comment_is_kept_with_the_answer(experiment, annotator, client_for, url):
    form = {"token": assign(experiment, annotator).token, "choice": "left", "comment": "Both <b>wrong</b>."}
    assert client_for(annotator).post(url, form, headers=HTMX).status_code == 200
    assert Judgment.objects.get().comment == "Both <b>wrong</b>."


@pytest.mark.parametrize(
    ("offered", "choice"), [("allow_tie", "tie"), ("allow_both_bad", "both_bad")], ids=["tie", "both bad"]
)
def test_a_tie_and_both_bad_count_half_where_the_experiment_offers_them(
    offered, choice, experiment, annotator, client_for, url
):
    form = {"token": assign(experiment, annotator).token, "choice": choice}
    client = client_for(annotator)
    refused = client.post(url, form, headers=HTMX)
    assert refused.status_code == 400
    assert "does not offer that choice" in words(refused)
    assert not Judgment.objects.exists()

    Experiment.objects.update(**{offered: True})
    assert client.post(url, form, headers=HTMX).status_code == 200
    judgment = Judgment.objects.get()
    assert (judgment.choice, judgment.outcome) == (choice, 0.5)


def test_without_javascript_it_leads_back_to_the_page(experiment, annotator, client_for, url):
    held = assign(experiment, annotator)
    client = client_for(annotator)
    response = client.post(url, {"token": held.token, "choice": "left"})
    assert response.status_code == 302
    assert response["Location"] == reverse("pair", args=[experiment.pk])
    assert Judgment.objects.count() == 1
    assert "1 today" in words(client.get(response["Location"]))


def test_a_click_wakes_the_planner_once_however_often_it_is_sent(
    experiment, annotator, client_for, url, sent, django_capture_on_commit_callbacks
):
    client = client_for(annotator)
    click = {"token": assign(experiment, annotator).token, "choice": "left"}
    for _ in range(3):
        with django_capture_on_commit_callbacks(execute=True):
            assert client.post(url, click, headers=HTMX).status_code == 200
    assert sent == [(experiment.pk,)]
    assert counts.comparison_count(experiment.pk) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"token": ""},
        {"token": "not-a-token"},
        {"token": None},
        {"choice": ""},
        {"choice": "both"},
        {"choice": "LEFT"},
        {"choice": None},
        {"comment": "x" * 1001},
        {"after": "many"},
    ],
    ids=lambda change: str(change)[:30],
)
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["plain", "htmx"])
def test_a_bad_form_is_told_so_and_saves_nothing(change, headers, experiment, annotator, client_for, url):
    form = {"token": str(assign(experiment, annotator).token), "choice": "left"} | change
    form = {name: value for name, value in form.items() if value is not None}
    response = client_for(annotator).post(url, form, headers=headers)
    assert response.status_code == 400
    assert "Choose one of the answers that the page offers." in response.content.decode()
    assert reverse("pair", args=[experiment.pk]) in response.content.decode()
    assert not Judgment.objects.exists()


def test_the_address_of_one_experiment_judges_nothing_of_another(annotator, client_for, url):
    """A person removed from one experiment must not answer there through another one."""
    other = make_experiment(ready=True, annotators=(annotator,))
    held = assign(other, annotator)
    other.memberships.all().delete()
    response = client_for(annotator).post(url, {"token": held.token, "choice": "left"})
    assert response.status_code == 400
    assert not Judgment.objects.exists()


@pytest.mark.parametrize(("change", "reason"), [(pause, "Paused"), (stop, "Stopped. Thank you!")])
def test_the_last_click_before_the_end_still_counts(change, reason, experiment, annotator, client_for, url):
    held = assign(experiment, annotator)
    change(experiment_id=experiment.pk)
    response = client_for(annotator).post(url, {"token": held.token, "choice": "left"}, headers=HTMX)
    assert stage(response)["said"] == ""
    assert reason in words(response)
    assert counts.comparison_count(experiment.pk) == 1
