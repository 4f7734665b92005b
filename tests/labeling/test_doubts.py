"""Doubts about a result, and what machines gave: the same words on the card, in the report, in messages."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from engine.models import Assignment, Experiment, Notification, User, clock
from engine.selectors.doubts import doubts
from engine.selectors.findings import by_machines, ladder
from engine.services.planning import advance
from tests.accounts import bearer
from tests.engine.test_doubts import judged, shown
from tests.factories import add_member, certify, make_experiment, make_user, subscribed
from tests.markup import words

pytestmark = pytest.mark.django_db


def told(experiment: Experiment, user: User) -> Any:
    """The answer of the API about it."""
    headers = bearer(user, ["read"], experiment)
    return Client().get(f"/api/experiments/{experiment.pk}", headers=headers).json()


class TestWords:
    """The same sentences on the card, in the report, in the API and in a message."""

    @pytest.fixture
    def doubted(self, owner) -> Experiment:
        people: list[User] = [make_user(name) for name in ("mia", "ben", "cem")]
        experiment = make_experiment(planned=False, annotators=tuple(people))
        add_member(experiment, owner, "owner")
        judged(experiment, people, n=300, leaves=people[0])
        return experiment

    def test_each_place_has_the_doubts_and_only_those_who_run_it_the_names(self, doubted, owner, client_for):
        subscribed(doubted)
        certify(doubted)
        doubt = next(each for each in doubts(doubted).found if "mia" in each.text)
        client = client_for(owner)
        card = words(client.get(reverse("dashboard", args=[doubted.pk])))
        report = words(client.get(reverse("report", args=[doubted.pk])))
        api = told(doubted, owner)
        message = Notification.objects.latest("pk").text
        quality = words(client.get(reverse("quality", args=[doubted.pk])))
        assert doubt.text in card
        assert doubt.text in quality
        assert doubt.text in api["caveats"]
        for text in (report, message):
            assert doubt.unnamed in text
            assert doubt.text not in text


class TestMachines:
    def test_outcomes_that_machines_gave_stand_first(self, owner, client_for):
        experiment = make_experiment(planned=False)
        add_member(experiment, owner, "owner")
        subscribed(experiment)
        shown(experiment, None, (0, 1), 1.0, judge="rule", via="identical")
        said = by_machines(experiment)
        assert said.startswith("1 of 1 outcomes")
        certify(experiment)
        assert Notification.objects.latest("pk").text.startswith(said)
        for name in ("dashboard", "report"):
            page = words(client_for(owner).get(reverse(name, args=[experiment.pk])))
            assert page.index(said) < page.index("Use Prompt")


class TestPairsWithoutAnAnswer:
    @pytest.fixture
    def short_of_it(self, owner) -> Experiment:
        """Policy 0 wins 24 of 28, which would do by the answers alone; 12 pairs were skipped before."""
        people = [make_user(name) for name in ("mia", "ben")]
        experiment = make_experiment(n_policies=2, planned=False, claim="good_enough", epsilon=0.05)
        add_member(experiment, owner, "owner")
        for number in range(40):
            outcome = None if number < 12 else float(number % 7 > 0)
            shown(experiment, people[number % 2], (0, 1), outcome)
        advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert experiment.state == "running"
        return experiment

    def test_card_and_api_say_what_the_answers_alone_would_say_and_how_far_that_holds(
        self, short_of_it, owner, client_for
    ):
        found = ladder(short_of_it).by_answers
        assert found.policy == 0
        assert 2.0 < found.gamma < 10.0
        assert found.text in words(client_for(owner).get(reverse("dashboard", args=[short_of_it.pk])))
        api = told(short_of_it, owner)
        assert (api["by_answers"]["gamma"], api["by_answers"]["text"]) == (found.gamma, found.text)

    def test_while_it_waits_for_the_open_pairs_alone_it_says_so(self, short_of_it, owner, client_for):
        soon = clock.now() + timedelta(minutes=5)
        held = Assignment.objects.filter(state="skipped").order_by("pk")[:3]
        Assignment.objects.filter(pk__in=held.values("pk")).update(state="open", expires_at=soon)
        Experiment.objects.filter(pk=short_of_it.pk).update(closing_since=clock.now())
        page = words(client_for(owner).get(reverse("dashboard", args=[short_of_it.pk])))
        for text in (page, told(short_of_it, owner)["sentence"]):
            assert "once the 3 open pairs are in" in text
        assert "more clicks until" not in page
