"""The ledger of charges, its sums, and the limits of money."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, transaction

from engine.domain.list_prices import Money
from engine.domain.replies import Usage
from engine.generation.remote.connection_test import try_connection
from engine.models import Charge, Connection, Experiment, Response, Trial, clock
from engine.selectors import spending
from engine.services import connections
from engine.services.charges import Spent, book
from engine.services.drafts import delete_experiment
from engine.services.generation import claim_responses
from engine.services.trials import drop_tried, forget_trials, start_trial
from tests.backends import SkilledBackend
from tests.concurrency import at_once
from tests.factories import make_experiment, make_user, pay, write_responses
from tests.generation.chat_server import completion, error
from tests.servers import BEHAVIOURS, serving

pytestmark = pytest.mark.django_db


@pytest.fixture
def connection() -> Connection:
    return Connection.objects.create(
        name="GPT", provider="openai", model_id="m", price_prompt=2.0, price_cached=0.5, price_completion=8.0
    )


@pytest.fixture
def experiment() -> Experiment:
    return make_experiment(ready=True)


def done() -> list[Response]:
    return list(Response.objects.filter(state="done"))


class TestPrice:
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
    def test_cached_tokens_have_their_own_price(self, prompt, cached, completion, cost, connection):
        found = spending.cost_of(connection, Usage(prompt, cached, completion))
        assert found == (cost if cost is None else pytest.approx(cost))

    def test_without_a_price_the_cost_is_unknown(self, connection):
        connection.price_completion = None
        assert spending.cost_of(connection, Usage(1, 0, 1)) is None
        connection.price_completion, connection.price_cached = 8.0, None
        assert spending.cost_of(connection, Usage(1_000_000, 1_000_000, 0)) == 2.0

    def test_more_cached_tokens_than_there_are_cost_nothing_less(self, connection):
        few = spending.cost_of(connection, Usage(1, 1_000_000, 0))
        assert few is not None
        assert few >= 0

    @pytest.mark.parametrize(
        ("money", "said"),
        [
            ({}, ""),
            ({"USD": 1234.5}, "1,234.50 USD"),
            ({"USD": 0.0000345, "EUR": 0.0}, "0.00 EUR and 0.000034 USD"),
        ],
    )
    def test_small_amounts_show_two_digits(self, money, said):
        assert str(Money(money)) == said


class TestLedger:
    def test_the_price_and_its_currency_are_those_of_the_moment(self, connection):
        usage, test = Usage(prompt=1_000_000, completion=0), Charge.Purpose.TEST
        book([Spent("GPT", usage, test)])
        Connection.objects.update(currency="EUR", price_prompt=3.0)
        book([Spent("GPT", usage, test), Spent("of a worker", usage, test), Spent("GPT", Usage(), test)])
        rows = Charge.objects.order_by("pk").values_list("model", "connection", "cost", "currency")
        assert list(rows) == [
            ("GPT", connection.pk, 2.0, "USD"),
            ("GPT", connection.pk, 3.0, "EUR"),
            ("of a worker", None, None, ""),
        ]

    def test_nothing_is_changed_or_deleted_and_names_outlive_what_they_name(self, connection, experiment):
        pay(done()[:1], 0.5)
        for change in (lambda: Charge.objects.update(cost=0.0), lambda: Charge.objects.all().delete()):
            with pytest.raises(DatabaseError), transaction.atomic():
                change()
        book([Spent("GPT", Usage(prompt=1_000_000, completion=0), Charge.Purpose.TEST)])
        connections.retire(connection_id=connection.pk, by=None)
        Connection.objects.all().delete()
        gone = Charge.objects.get(purpose="test")
        assert (gone.model, gone.connection_id, gone.cost) == ("GPT", connection.pk, 2.0)

    def test_a_workers_reply_has_no_price_of_a_connection_of_that_name(self, connection, experiment):
        Connection.objects.update(name=SkilledBackend().model)
        make_experiment()
        write_responses()
        assert set(Charge.objects.values_list("model", "connection", "cost")) == {
            (SkilledBackend().model, None, None)
        }
        Connection.objects.update(provider="worker")
        book([Spent(SkilledBackend().model, Usage(1_000_000, 0, 0), Charge.Purpose.TEST, of_worker=True)])
        assert Charge.objects.get(cost__isnull=False).cost == 2.0

    def test_a_trial_leaves_its_cost_behind(self, connection):
        user = make_user()
        draft = make_experiment(running=False)
        start_trial(experiment_id=draft.pk, positions=[0], by=user)
        write_responses()
        tried = Response.objects.filter(trial__experiment=draft)
        assert spending.cost_each(draft) is None, "no price is known"
        pay(tried, 0.25)
        pay(tried.filter(policy__index=0), 0.75, "EUR", purpose="trial")
        n = tried.count()
        assert spending.cost_each(draft) == {"USD": 0.25, "EUR": 0.75 / n}
        drop_tried(draft)
        forget_trials(before=clock.now())
        assert not Trial.objects.exists()
        assert spending.spent_by_purpose(draft) == {"Trials": {"USD": 0.25 * n, "EUR": 0.75}}
        assert spending.cost_each(draft) is None
        delete_experiment(experiment_id=draft.pk, by=user)
        assert Charge.objects.filter(experiment=draft.pk, cost__isnull=False).count() == n + 1

    def test_every_request_of_a_test_is_counted(self, monkeypatch, settings):
        settings.ALLOW_PRIVATE_CONNECTIONS = True
        monkeypatch.setitem(
            BEHAVIOURS,
            "silent",
            lambda asked: error(400, "Bad request.") if "stop" in asked else completion("ok"),
        )
        with serving() as server:
            made = Connection.objects.create(
                name="Silent", provider="compatible", model_id="silent", address=f"{server.url}/v1",
                price_prompt=1.0, price_completion=1.0,
            )  # fmt: skip
            try_connection(made.pk)
        made.refresh_from_db()
        assert made.test["works"], made.test
        [charge] = Charge.objects.all()
        assert (charge.purpose, charge.connection, charge.experiment_id) == ("test", made, None)
        assert spending.spent_with([made.pk]) == {made.pk: {"USD": charge.cost}}
        assert made.test["cost"] == str(Money(USD=charge.cost))


class TestLimits:
    def test_a_connection_is_overspent_for_a_day(self, connection, experiment, monkeypatch):
        assert spending.overspent_connections() == set()
        Connection.objects.update(daily_limit=1.0)
        assert spending.overspent_connections() == set()
        Response.objects.update(connection=connection)
        pay(done()[:1], 0.9)
        pay(done()[:1], 5.0, "EUR")
        assert spending.overspent_connections() == set(), "the limit is in dollars"
        pay(done()[:1], 0.2)
        assert spending.overspent_connections() == {connection.pk}
        later = clock.now() + timedelta(hours=25)
        monkeypatch.setattr(clock, "now", lambda: later)
        assert spending.overspent_connections() == set()
        Connection.objects.update(daily_limit=0.0)
        assert spending.overspent_connections() == {connection.pk}

    def test_an_experiment_is_overspent_until_its_limit_is_raised(self, experiment):
        pay(done(), 0.5)
        spent = 0.5 * len(done())
        assert spending.spent_in(experiment) == {"USD": spent}
        for limit, over in ((None, False), (spent + 1, False), (spent, True), (0.0, True)):
            experiment.money_limit = limit
            experiment.save()
            assert spending.overspent_experiments() == ({experiment.pk} if over else set())
            assert ("limit of money" in spending.money_trouble(experiment)) == over
        assert spending.spent_of_limit(experiment) == f"{spent:,.2f} of 0.00 USD"

    def test_a_limit_holds_for_each_currency(self, experiment):
        Experiment.objects.update(money_limit=1.0)
        experiment.refresh_from_db()
        pay(done()[:1], 0.75)
        pay(done()[:1], 0.75, "EUR")
        assert spending.overspent_experiments() == set()
        assert spending.money_trouble(experiment) == ""
        pay(done()[:1], 0.5, "EUR", purpose="opinion")
        assert spending.overspent_experiments() == {experiment.pk}
        assert "(1.00 EUR)" in spending.money_trouble(experiment)
        assert spending.spent_of_limit(experiment) == "1.25 of 1.00 EUR and 0.75 of 1.00 USD"

    def test_all_limits_are_one_query(self, experiment, django_assert_num_queries):
        for _ in range(2):
            make_experiment(ready=True)
        Experiment.objects.update(money_limit=1.0)
        pay(done(), 1.0)
        with django_assert_num_queries(1):
            assert len(spending.overspent_experiments()) == 3
        Connection.objects.create(name="GPT", provider="openai", model_id="m", daily_limit=1.0)
        with django_assert_num_queries(1):
            spending.overspent_connections()


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_workers_that_pay_at_once_miss_nothing_and_stop_at_the_limit(transactional_db):
    experiment = make_experiment(money_limit=1.0)
    Connection.objects.create(
        name="GPT", provider="openai", model_id="m", price_prompt=1.0, price_completion=1.0, daily_limit=1.0
    )
    waiting = Response.objects.filter(state="waiting").count()
    each = Spent(
        "GPT", Usage(prompt=5_000, completion=5_000), Charge.Purpose.RESPONSE, experiment_id=experiment.pk
    )

    def work() -> int:
        n = 0
        while not (spending.overspent_experiments() or spending.overspent_connections()):
            book([each])
            n += 1
        return n

    n = sum(at_once([work] * 8))
    assert 100 <= n < 100 + 8, "each stops as soon as it sees what all have spent"
    assert spending.spent_in(experiment) == {"USD": pytest.approx(n * 0.01)}
    assert not claim_responses(worker="w", limit=10).responses
    Experiment.objects.update(money_limit=2.0)
    assert len(claim_responses(worker="w", limit=100).responses) == waiting


def test_no_answers_of_a_policy_are_counted(experiment):
    first = Response.objects.filter(state="done", policy__index=0).first()
    first.text, first.finish_reason = "", "filtered"
    first.save()
    assert [row.unanswered for row in spending.policy_spending(experiment)] == [1, 0, 0]
