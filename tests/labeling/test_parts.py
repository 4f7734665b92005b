"""The parts of a response on pages, in exports and in the API: text, thinking, and no answer."""

import json
from typing import Any

import pytest
from django.urls import reverse

from engine.core.ranking import Place
from engine.models import Comparison, Connection, Experiment, Response
from engine.selectors import specs
from engine.selectors.rankings import ranking
from engine.selectors.spending import policy_spending
from labeling.dashboard.charts import tradeoffs
from labeling.exports.judgments import COLUMNS
from labeling.forms.draft import data_of
from tests.factories import click_on, make_experiment, make_user, pay
from tests.labeling.exported import export
from tests.markup import text_of, words

pytestmark = pytest.mark.django_db


def thoughtful(experiment: Experiment, **parts: Any) -> None:
    """Give all responses that are done these parts."""
    for row in Response.objects.filter(policy__experiment=experiment, state="done"):
        for name, value in ({"thinking": f"Thought {row.pk}."} | parts).items():
            setattr(row, name, value)
        row.save()


class TestAnnotators:
    def test_an_empty_response_reads_no_answer_and_may_be_judged(self, experiment, annotator, client_for):
        Response.objects.filter(state="done").update(text="", finish_reason="filtered")
        client = client_for(annotator)
        html = client.get(reverse("pair", args=[experiment.pk])).content.decode()
        assert html.count('<p class="muted">(no answer)</p>') >= 2
        click_on(experiment, annotator, 1)
        assert words(client.get(reverse("history", args=[experiment.pk]))).count("(no answer)") == 2

    def test_thinking_is_shown_of_both_or_of_neither(self, experiment, annotator, client_for):
        thoughtful(experiment)
        url = reverse("pair", args=[experiment.pk])
        assert "Thought" not in client_for(annotator).get(url).content.decode()
        Experiment.objects.update(shown_thinking="both")
        html = client_for(annotator).get(url).content.decode()
        first = (
            Comparison.objects.filter(assignments__annotator=annotator)
            .order_by("assignments__created_at")
            .first()
        )
        assert f"Thought {first.left.pk}." in html
        assert f"Thought {first.right.pk}." in html
        Response.objects.filter(pk=first.left.pk).update(thinking="")
        html = client_for(annotator).get(url).content.decode()
        assert "(no thinking)" in html


def test_a_comparison_tells_all_parts(experiment, annotator, viewer, client_for):
    connection = Connection.objects.create(name="GPT", provider="openai", model_id="m", currency="EUR")
    click_on(experiment, annotator, 1)
    thoughtful(
        experiment, marks=["</s>"], served_model="gpt-2026", thinking_tokens=7, cached_tokens=3,
        connection=connection, model="GPT", prompt_tokens=9,
    )  # fmt: skip
    pay(Response.objects.filter(state="done"), 0.25, "EUR")
    row = Comparison.objects.get(state="judged")
    Response.objects.filter(pk=row.left.pk).update(text="", finish_reason="refused", refusal="I will not.")
    said = text_of(
        client_for(viewer).get(reverse("comparison", args=[experiment.pk, row.pk])).content.decode()
    )
    for text in (
        f"Thinking Thought {row.left.pk}.",
        "(no answer)",
        "No answer: the model refused. “I will not.”",
        "GPT, served as gpt-2026",
        "7 of them thinking; 3 from the cache",
        "Marks cut off </s>",
        "0.25 EUR",
    ):
        assert text in said


def test_all_parts_are_exported(experiment, annotator, tmp_path):
    click_on(experiment, annotator, 1)
    thoughtful(experiment, marks=["</s>"], thinking_tokens=7, refusal="No.", failure_reason="Why.")
    done = Response.objects.filter(state="done")
    pay(done, 0.25)
    pay(done, 0.5, purpose="guard")
    [judged] = Comparison.objects.filter(state="judged")
    pay([judged.response_i], 1.0, "EUR")
    [row] = map(json.loads, export(experiment, tmp_path).read_text().splitlines())
    assert list(row) == list(COLUMNS)
    assert row["thinking_i"].startswith("Thought")
    told = {name: row[f"{name}_j"] for name in ("marks", "thinking_tokens", "cost", "currency", "refusal")}
    assert told == {
        "marks": '["</s>"]', "thinking_tokens": 7, "cost": 0.75, "currency": "USD", "refusal": "No."
    }  # fmt: skip
    assert (row["cost_i"], row["currency_i"]) == (None, ""), "two currencies do not add up"
    assert row["failure_reason_i"] == "Why."


def test_the_quality_names_the_policies_that_give_no_answers(experiment, viewer, client_for):
    url = reverse("quality", args=[experiment.pk])
    title = "Responses that are no answer"
    assert title not in client_for(viewer).get(url).content.decode()
    n = Response.objects.filter(state="done", policy__index=1).update(text="", finish_reason="filtered")
    html = client_for(viewer).get(url).content.decode()
    assert title in html
    assert f"<li>Prompt 1: {n} of {n}</li>" in html


class TestTradeoffs:
    @pytest.fixture
    def judged(self) -> Experiment:
        user = make_user()
        experiment = make_experiment(ready=True, annotators=(user,))
        click_on(experiment, user, 6)
        connection = Connection.objects.create(name="GPT", provider="openai", model_id="m")
        for row in Response.objects.filter(state="done").select_related("policy"):
            row.connection, row.latency_seconds = connection, 2.0
            row.save()
            pay([row], 0.001 * (row.policy.index + 1))
        return experiment

    def test_a_policy_is_beaten_by_one_that_is_no_worse_in_anything(self, judged):
        cost, time = tradeoffs(ranking(judged), policy_spending(judged))
        leader = next(each for each in ranking(judged) if each.standing.place is Place.LEADS)
        assert [value for _, value in cost["across"]] == ["0", "1.50", "3.00"]
        assert {percent for _, percent in cost["up"]} <= {dot["percent"] for dot in cost["dots"]}
        assert [dot["beaten"] for dot in cost["dots"]] == [dot["beaten"] for dot in time["dots"]]
        open_ones = {dot["number"] for dot in cost["dots"] if not dot["beaten"]}
        assert leader.standing.policy + 1 in open_ones
        assert 1 in open_ones, "the cheapest is never beaten by a dearer one"
        assert all(0 <= dot["x"] <= 320 and 0 <= dot["y"] <= 200 for dot in (*cost["dots"], *time["dots"]))


class TestMoney:
    def test_a_limit_that_is_reached_is_told(self, experiment, viewer, client_for):
        url = reverse("dashboard", args=[experiment.pk])
        assert "limit of money" not in client_for(viewer).get(url).content.decode()
        pay(Response.objects.filter(state="done"), 1.0)
        Experiment.objects.update(money_limit=2.0)
        page = client_for(viewer).get(url).content.decode()
        assert "limit of money (2.00 USD) is reached" in page
        spent = Response.objects.filter(state="done").count()
        assert f"{spent}.00 of 2.00 USD" in page

    def test_the_setup_tells_what_the_responses_will_cost(self, client_for):
        page = client_for(make_user(is_superuser=True))
        Connection.objects.create(
            name="GPT",
            provider="openai",
            model_id="gpt-4o",
            everybody=True,
            price_prompt=2.0,
            price_completion=4.0,
        )
        Connection.objects.create(name="Free", provider="compatible", model_id="m", everybody=True)
        draft = make_experiment(running=False, model="GPT")

        def summary(**changes: str) -> str:
            data = dict(data_of(specs.experiment_spec(draft)).lists()) | {"part": "size"} | changes
            url = reverse("setup", args=[draft.pk])
            return words(page.post(url, data, headers={"HX-Request": "true"}))

        assert "The cost assumes that a response reads 500 tokens and writes 500." in summary()
        assert "USD" in summary()
        assert "The cost is unknown: Free has no price." in summary(model="Free")
        assert "cost" not in summary(model="").lower()
