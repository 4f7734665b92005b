"""Annotators' pages speak the reader's language; those of admins are English throughout."""

import re

import pytest
from django.urls import reverse

pytestmark = pytest.mark.django_db
GERMAN = {"Accept-Language": "de"}


def language_of(html: str) -> str:
    return re.search(r'<html lang="([^"]+)"', html)[1]


@pytest.mark.parametrize("page", ["pair", "welcome", "history"])
def test_an_annotators_page_is_german_and_offers_other_languages(page, experiment, annotator, client_for):
    answer = client_for(annotator).get(reverse(page, args=[experiment.pk]), headers=GERMAN)
    html = answer.content.decode()
    assert language_of(html) == answer["Content-Language"] == "de"
    assert "Abmelden" in html
    assert 'class="languages"' in html


@pytest.mark.parametrize(
    "page",
    [
        *("dashboard", "comparisons", "export", "experiment_settings"),
        *("people", "log", "new_experiment", "tokens"),
    ],
)
def test_an_admins_page_is_english_down_to_the_menu(page, experiment, admin, client_for):
    arguments = [] if page in {"new_experiment", "tokens"} else [experiment.pk]
    answer = client_for(admin).get(reverse(page, args=arguments), headers=GERMAN)
    html = answer.content.decode()
    assert language_of(html) == answer["Content-Language"] == "en"
    assert "Log out" in html
    assert 'class="languages"' not in html


def test_the_first_page_is_german_for_who_only_labels_and_english_for_who_watches(
    experiment, annotator, viewer, client_for
):
    home = reverse("home")
    assert language_of(client_for(annotator).get(home, headers=GERMAN).content.decode()) == "de"
    assert language_of(client_for(viewer).get(home, headers=GERMAN).content.decode()) == "en"


def test_a_page_that_is_not_there_says_so_in_german(annotator, client_for):
    answer = client_for(annotator).get("/nowhere/", headers=GERMAN)
    assert answer.status_code == 404
    assert language_of(answer.content.decode()) == "de"
    assert "Nicht gefunden" in answer.content.decode()


def test_one_request_in_english_leaves_the_next_its_language(experiment, admin, annotator, client_for):
    client_for(admin).get(reverse("dashboard", args=[experiment.pk]), headers=GERMAN)
    html = (
        client_for(annotator).get(reverse("history", args=[experiment.pk]), headers=GERMAN).content.decode()
    )
    assert language_of(html) == "de"
