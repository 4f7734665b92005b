"""The cost of responses, and the limits of money."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.models import Connection, Experiment, Response, clock
from engine.selectors import spending
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


@pytest.fixture
def connection() -> Connection:
    return Connection.objects.create(
        name="GPT", provider="openai", model_id="m", price_prompt=2.0, price_cached=0.5, price_completion=8.0
    )


@pytest.fixture
def experiment() -> Experiment:
    return make_experiment(ready=True)


@pytest.mark.parametrize(
    ("prompt", "cached", "completion", "cost"),
    [
        (1_000_000, None, 0, 2.0),
        (1_000_000, 600_000, 0, 0.8 + 0.3),
        (0, 0, 500_000, 4.0),
        (None, None, 5, None),
        (5, None, None, None),
    ],
)
def test_cached_tokens_have_their_own_price(prompt, cached, completion, cost, connection):
    found = spending.cost_of(connection, prompt=prompt, cached=cached, completion=completion)
    assert found == (cost if cost is None else pytest.approx(cost))


def test_without_a_price_the_cost_is_unknown(connection):
    connection.price_completion = None
    assert spending.cost_of(connection, prompt=1, cached=0, completion=1) is None
    connection.price_completion, connection.price_cached = 8.0, None
    assert spending.cost_of(connection, prompt=1_000_000, cached=1_000_000, completion=0) == 2.0


def test_a_connection_is_overspent_for_a_day(connection, experiment):
    assert spending.overspent_connections() == set()
    Connection.objects.update(daily_limit=1.0)
    rows = Response.objects.filter(state="done")
    rows.update(connection=connection, cost=1.0 / rows.count() - 0.01, done_at=clock.now())
    assert spending.overspent_connections() == set()
    rows.update(cost=1.0 / rows.count())
    assert spending.overspent_connections() == {connection.pk}
    rows.update(done_at=clock.now() - timedelta(hours=25))
    assert spending.overspent_connections() == set()
    Connection.objects.update(daily_limit=0.0)
    assert spending.overspent_connections() == {connection.pk}


def test_an_experiment_is_overspent_until_its_limit_is_raised(connection, experiment):
    Response.objects.filter(state="done").update(cost=0.5, connection=connection)
    spent = 0.5 * Response.objects.filter(state="done").count()
    assert spending.spent_in(experiment) == spent
    for limit, over in ((None, False), (spent + 1, False), (spent, True)):
        experiment.money_limit = limit
        experiment.save()
        assert spending.overspent_experiments() == ({experiment.pk} if over else set())
        assert ("limit of money" in spending.money_trouble(experiment)) == over
    assert f"({spent:,.2f} USD)" in spending.money_trouble(experiment)


def test_no_answers_of_a_policy_are_counted(experiment):
    first = Response.objects.filter(state="done", policy__index=0).first()
    first.text, first.finish_reason = "", "filtered"
    first.save()
    assert [row.unanswered for row in spending.policy_spending(experiment)] == [1, 0, 0]


def test_more_cached_tokens_than_there_are_cost_nothing_less(connection):
    few = spending.cost_of(connection, prompt=1, cached=1_000_000, completion=0)
    assert few is not None
    assert few >= 0
