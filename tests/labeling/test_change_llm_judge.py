"""The dashboard's section on the language model that judges, and its buttons."""

import pytest
from django.urls import reverse

from engine import tasks
from engine.models import Charge
from tests.factories import click_on
from tests.markup import words
from tests.opinions import opine, prefers_first, shadow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def woken(monkeypatch, settings):
    settings.JUDGE_CALIBRATION = 10
    messages = []
    monkeypatch.setattr(tasks.give_opinions, "apply_async", lambda args=(), **options: messages.append(args))
    return messages


def change(client, experiment, stage, rubric="", budget="500", **options):
    form = {"stage": stage, "rubric": rubric, "budget": budget}
    return client.post(reverse("change_llm_judge", args=[experiment.pk]), form, **options)


def section(client, experiment) -> str:
    html = client.get(reverse("quality", args=[experiment.pk])).content.decode()
    return html.partition("Language model as a judge")[2].partition("</section>")[0]


def test_one_that_was_halted_says_why_and_resumes_by_a_button(experiment, annotator, editor, client_for):
    """108 of 108 opinions failed and nothing on the dashboard looked wrong."""
    shadow(experiment)
    click_on(experiment, annotator, 6)
    opine(experiment, lambda first, second: "I would rather not say.")
    client = client_for(editor)
    assert "Halted." in section(client, experiment)
    assert "5 opinions in a row failed. The last one: " in section(client, experiment)
    assert "1 of 500" in section(client, experiment)
    live = client.get(reverse("dashboard_live", args=[experiment.pk])).content.decode()
    assert "The language model that judges was halted." in live
    assert "Resume: let it give opinions, uncounted" in section(client, experiment)
    change(client, experiment, "shadow")
    assert "Halted." not in section(client, experiment)


def test_where_no_model_can_judge_none_is_offered(experiment, editor, client_for, settings):
    settings.JUDGE_BACKEND = ""
    client = client_for(editor)
    assert section(client, experiment) == "", "a product manager can do nothing about it"
    page = words(change(client, experiment, "shadow", follow=True))
    assert "No language model that can judge is configured" in page
    experiment.refresh_from_db()
    assert experiment.llm_judge == "off"


def test_one_that_was_on_when_its_model_went_away_can_be_switched_off(
    experiment, editor, client_for, settings
):
    shadow(experiment)
    settings.JUDGE_BACKEND = ""
    client = client_for(editor)
    assert "The model is not asked, although this experiment allows it to judge." in section(
        client, experiment
    )
    assert 'value="off"' in section(client, experiment)
    assert 'value="shadow"' not in section(client, experiment)
    change(client, experiment, "off")
    experiment.refresh_from_db()
    assert experiment.llm_judge == "off"


def test_from_off_to_votes_and_back(
    experiment, annotator, editor, client_for, woken, django_capture_on_commit_callbacks
):
    client = client_for(editor)
    assert "Off. First let the model give opinions" in section(client, experiment)
    with django_capture_on_commit_callbacks(execute=True):
        response = change(client, experiment, "shadow", rubric="Shorter wins.", budget="40")
    assert response["Location"] == reverse("quality", args=[experiment.pk])
    assert woken == [()]
    experiment.refresh_from_db()
    assert (experiment.llm_judge, experiment.rubric, experiment.llm_budget) == ("shadow", "Shorter wins.", 40)
    assert "10 more are needed" in section(client, experiment)
    assert "let it vote" not in section(client, experiment)

    click_on(experiment, annotator, 10)
    opine(experiment)
    html = section(client, experiment)
    assert "I accept this agreement: let it vote" in html
    change(client, experiment, "votes", rubric="Shorter wins.", budget="40")
    experiment.refresh_from_db()
    assert experiment.llm_judge == "votes"
    assert "votes on comparisons that no annotator is looking at" in section(client, experiment)

    change(client, experiment, "off", rubric="Shorter wins.")
    experiment.refresh_from_db()
    assert experiment.llm_judge == "off"
    off, votes, opinions = experiment.audit_entries.filter(action="llm_judge")
    assert {entry.by for entry in (off, votes, opinions)} == {editor}
    assert "Votes → Off" in off.sentence
    assert "asked about 40 comparisons at most" in opinions.sentence
    assert votes.sentence.endswith("of 10.")
    assert votes.details["rubric"] == "Shorter wins."


def test_the_figures_are_those_of_the_opinions(experiment, annotator, viewer, client_for):
    shadow(experiment)
    click_on(experiment, annotator, 4)
    opine(experiment, prefers_first)
    Charge.objects.create(experiment=experiment, purpose="opinion", cost=48.0, currency="EUR")
    html = " ".join(section(client_for(viewer), experiment).split())
    assert "<dt>Same answer</dt><dd>0% of 4 (0% to 49%)</dd>" in html
    assert "<dt>Same side, when both chose one</dt><dd>–</dd>" in html
    assert "<dt>Cohen’s κ</dt><dd>0.00" in html
    assert "<dt>Same verdict in both orders</dt><dd>0% of 4 (0% to 49%)</dd>" in html
    assert "<dt>Chose the first response twice, the second twice</dt><dd>4, 0</dd>" in html
    assert "<dt>Budget used</dt><dd>4 of 500</dd>" in html
    assert "<dt>Cost</dt><dd>48.00 EUR</dd>" in html
    assert "<form" not in html


def test_what_the_model_says_is_never_markup(experiment, annotator, viewer, client_for):
    shadow(experiment, rubric="<script>alert(1)</script>")
    click_on(experiment, annotator, 1)
    opine(experiment, lambda first, second: "<script>alert(2)</script>")
    html = section(client_for(viewer), experiment)
    assert "<script>" not in html
    assert "alert(2)" in html


@pytest.mark.parametrize(
    ("stage", "rubric", "budget"),
    [
        ("", "", "5"),
        ("on", "", "5"),
        ("shadow", "", "-1"),
        ("shadow", "", "x"),
        ("shadow", "", ""),
        ("shadow", "x" * 10_001, "5"),
    ],
)
def test_what_the_form_does_not_offer_is_a_bad_request(stage, rubric, budget, experiment, editor, client_for):
    assert change(client_for(editor), experiment, stage, rubric, budget).status_code == 400
    experiment.refresh_from_db()
    assert experiment.llm_judge == "off"
