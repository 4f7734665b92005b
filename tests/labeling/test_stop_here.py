"""The ladder of claims on the dashboard, and the button that stops on one that holds."""

import csv
import re

import pytest
from django.urls import reverse

from engine.models import Experiment
from engine.selectors import designs
from engine.selectors.findings import ladder
from engine.selectors.rankings import ranking
from engine.services.experiments import pause
from engine.services.planning import advance
from tests.accounts import bearer
from tests.factories import click_for, make_experiment, make_user, write_responses
from tests.markup import text_of, words

pytestmark = pytest.mark.django_db


def goes_on(experiment: Experiment) -> None:
    """A click for the first policy, and what the workers do after it."""
    click_for(experiment, experiment.memberships.get().user, lambda i, j: i < j)
    advance(experiment_id=experiment.pk)
    write_responses()
    experiment.refresh_from_db()


@pytest.fixture(scope="class")
def made(shared_rows: None) -> int:
    """It is to stop on "best"; "good enough" holds at a margin of 30 points."""
    experiment = make_experiment(
        n_policies=2, ready=True, annotators=(make_user("ann"),), claim="best", epsilon=0.3, delta=0.1
    )
    while not any(rung.holds for rung in ladder(experiment).rungs):
        goes_on(experiment)
    assert experiment.state == "running"
    return experiment.pk


def page(client, name: str, experiment: Experiment, *more: int) -> str:
    return text_of(client.get(reverse(name, args=[experiment.pk, *more])).content.decode())


def stop_here(client, experiment: Experiment, **form: str):
    return client.post(reverse("stop_here", args=[experiment.pk]), form)


class TestStopHere:
    @pytest.fixture
    def experiment(self, made) -> Experiment:
        return Experiment.objects.get(pk=made)

    @pytest.fixture
    def client(self, admin, client_for):
        return client_for(admin)

    def test_the_dashboard_shows_what_holds_what_is_missing_and_the_risks(self, experiment, client):
        shown = page(client, "dashboard", experiment)
        for rung in ladder(experiment).rungs:
            assert rung.text in shown
        assert "Each claim is wrong with a risk of at most 10%." in shown
        assert "the risks of all 3 add up: at most 30%." in shown
        assert shown.count("Stop here…") == 1

    def test_where_texts_come_again_no_page_promises_a_risk_that_is_not_proven(self, experiment, client):
        Experiment.objects.filter(pk=experiment.pk).update(responses="reuse")
        unproven = "The risk of 10% is not proven: somebody was shown two pairs of one task"
        shown = page(client, "dashboard", experiment)
        asked = words(stop_here(client, experiment, claim="good_enough"))
        stop_here(client, experiment, claim="good_enough", confirmed="1")
        after = [page(client, name, experiment) for name in ("dashboard", "report")]
        for text in (shown, asked, *after):
            assert text.count(unproven) == 1
        assert not [text for text in (shown, *after) if "30%" in text]
        assert "risk of a wrong pick" not in after[0]

    def test_the_claim_of_the_setup_is_not_picked_after_looking(self, experiment, client):
        """The question and the conclusion had the risk of three claims, the card that of one."""
        pause(experiment_id=experiment.pk)
        Experiment.objects.filter(pk=experiment.pk).update(claim="good_enough")
        asked = words(stop_here(client, experiment, claim="good_enough"))
        stop_here(client, experiment, claim="good_enough", confirmed="1")
        experiment.refresh_from_db()
        assert experiment.finding == next(rung for rung in ladder(experiment).rungs if rung.stops).text
        for text in (asked, page(client, "dashboard", experiment)):
            assert "at most 10%" in text
            assert "30%" not in text

    def test_it_asks_first_and_says_the_joint_risk(self, experiment, client):
        asked = words(stop_here(client, experiment, claim="good_enough"))
        assert "at most 30%, instead of 10% for the claim chosen beforehand" in asked
        assert "It rests on the judgments of one person alone." in asked
        experiment.refresh_from_db()
        assert experiment.state == "running"
        response = stop_here(client, experiment, claim="good_enough", confirmed="1")
        assert response["Location"] == reverse("dashboard", args=[experiment.pk])
        experiment.refresh_from_db()
        assert (experiment.state, experiment.certified_claim) == ("concluded", "good_enough")
        shown, report = (page(client, name, experiment) for name in ("dashboard", "report"))
        # The claim excludes that the other one is much better, so it is open no more to a reader.
        for text in (shown, page(client, "policy", experiment, 2)):
            assert "perhaps as good" in text
        assert "Stop here…" not in shown
        assert shown.count(experiment.finding) == 1
        for text in (shown, report):
            assert "is at most 30%" in text
        assert "10%" not in report, "it names one risk: that of a claim chosen after looking"

    def test_somebody_who_stops_without_a_winner_reads_that_a_claim_holds(self, experiment, client):
        """The two buttons stand on one page, and one of them gives the winner away."""
        asked = client.post(reverse("change_state", args=[experiment.pk]), {"action": "stop"})
        assert "“Good enough” already holds." in words(asked)
        address = reverse("dashboard", args=[experiment.pk])
        assert f'href="{address}#verdict-title"' in asked.content.decode()

    def test_a_claim_that_does_not_hold_is_refused_without_a_question(self, experiment, client):
        response = stop_here(client, experiment, claim="best")
        assert response["Location"] == reverse("dashboard", args=[experiment.pk])
        assert "because it does not hold" in page(client, "dashboard", experiment)
        experiment.refresh_from_db()
        assert experiment.state == "running"
        assert stop_here(client, experiment, claim="nonsense").status_code == 400

    def test_while_the_evidence_is_recomputed_nothing_is_replayed(self, experiment, client, monkeypatch):
        Experiment.objects.filter(pk=experiment.pk).update(evidence_stale=True)
        monkeypatch.setattr(designs, "replay", None)
        shown = page(client, "dashboard", experiment)
        assert "The evidence is being recomputed." in shown
        assert "Stop here…" not in shown


def test_whom_the_best_policy_beats_is_not_said_to_be_as_good(annotator, admin, client_for):
    experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), claim="best", delta=0.3)
    while experiment.state == "running":
        goes_on(experiment)
    client = client_for(admin)
    for name in ("dashboard", "report"):
        assert re.search(r"Prompt 1 .{,40} beaten", page(client, name, experiment))
    file = client.get(reverse("ranking_file", args=[experiment.pk])).content.decode()
    assert [row["standing"] for row in csv.DictReader(file.splitlines())] == ["winner", "beaten"]
    headers = bearer(admin, ["read"])
    told = client.get(f"/api/experiments/{experiment.pk}/ranking", headers=headers).json()
    assert [row["standing"] for row in told] == ["winner", "beaten"]


def test_where_the_winner_beats_every_other_nobody_is_perhaps_as_good(annotator):
    """The claim to stop on follows from the stronger one."""
    experiment = make_experiment(
        n_policies=2, ready=True, annotators=(annotator,), claim="good_enough", epsilon=0.01, delta=0.2
    )
    while experiment.state == "running":
        goes_on(experiment)
    assert experiment.certified_claim == "good_enough"
    assert [each.word for each in ranking(experiment)] == ["winner", "beaten"]
