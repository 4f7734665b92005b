"""The ladder of claims on the dashboard, and the button that stops on one that holds."""

from __future__ import annotations

import csv
import re

import pytest
from django.urls import reverse

from engine.models import Experiment
from engine.selectors import designs
from engine.selectors.findings import ladder
from engine.services.experiments import pause
from engine.services.planning import advance
from engine.services.tokens import make_token
from tests.factories import add_member, click_for, make_experiment, make_user, write_responses
from tests.markup import text_of, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(annotator) -> Experiment:
    """It is to stop on "best"; "good enough" holds at a margin of 30 points."""
    experiment = make_experiment(
        n_policies=2, ready=True, annotators=(annotator,), claim="best", epsilon=0.3, delta=0.1
    )
    while not any(rung.holds for rung in ladder(experiment).rungs):
        click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()
    experiment.refresh_from_db()
    assert experiment.state == "running"
    return experiment


def dashboard(client, experiment: Experiment) -> str:
    return text_of(client.get(reverse("dashboard", args=[experiment.pk])).content.decode())


def stop_here(client, experiment: Experiment, **form: str):
    return client.post(reverse("stop_here", args=[experiment.pk]), form)


def test_the_dashboard_shows_what_holds_what_is_missing_and_the_risks(experiment, client_for):
    editor = make_user("editor")
    add_member(experiment, editor, "editor")
    shown = dashboard(client_for(editor), experiment)
    assert "Prompt 0 loses to no other policy by more than 30 points" in shown
    assert "Not established yet: Prompt 0 beats every other policy; 1 rival still open (Prompt 1)." in shown
    # Of the claims that do not hold, only that of the setup is in sight; Details has the others.
    rungs = (
        "✓ Good enough no other is better by more than 30 points Stop here… "
        "Best stops here to be shown: it beats every other Details"
    )
    assert rungs in shown
    assert re.search(r"Not established yet: if some policy ", shown)
    assert "Each claim is wrong with a risk of at most 10%." in shown
    picked = "If you stop on another one than “best”, the claim of the setup, the risks of all 3 add up: "
    assert f"{picked}at most 30%." in shown
    assert shown.count("Stop here…") == 1


def test_where_texts_come_again_no_page_promises_a_risk_that_is_not_proven(experiment, admin, client_for):
    Experiment.objects.filter(pk=experiment.pk).update(responses="reuse")
    client = client_for(admin)
    unproven = "The risk of 10% is proven only for “best”, if one person alone judges"
    shown = dashboard(client, experiment)
    assert unproven in shown
    nor = "nor for “good enough”, because the margin is too large"
    assert f"For “no single best” it is not, {nor}." in shown
    assert "30%" not in shown
    asked = words(stop_here(client, experiment, claim="good_enough"))
    assert "after looking at 3 claims. That is riskier than a claim chosen beforehand. Here the" in asked
    assert unproven in asked
    stop_here(client, experiment, claim="good_enough", confirmed="1")
    card = dashboard(client, experiment)
    assert "risk of a wrong pick" not in card
    assert "after looking at 3 claims. It holds on" in card
    assert card.count(unproven) == 1
    report = words(client.get(reverse("report", args=[experiment.pk])))
    assert "the risk that it is wrong is at most" not in report
    assert report.count(unproven) == 1
    assert "30%" not in card + report


def test_the_claim_of_the_setup_is_not_picked_after_looking(experiment, admin, client_for):
    """The question and the conclusion had the risk of three claims, the card that of one."""
    pause(experiment_id=experiment.pk)
    Experiment.objects.filter(pk=experiment.pk).update(claim="good_enough")
    client = client_for(admin)
    asked = words(stop_here(client, experiment, claim="good_enough"))
    assert "after looking" not in asked
    assert "the risk that it is wrong is at most 10%, whatever else you looked at." in asked
    assert "30%" not in asked
    stop_here(client, experiment, claim="good_enough", confirmed="1")
    experiment.refresh_from_db()
    held = next(rung for rung in ladder(experiment).rungs if rung.stops)
    assert experiment.finding == held.text
    shown = dashboard(client, experiment)
    assert "risk of a wrong pick at most 10%" in shown
    assert "stopped on the claim of the setup: its risk stays so, whatever anybody looked at." in shown
    assert "30%" not in shown


def test_whom_the_best_policy_beats_is_not_said_to_be_as_good(annotator, admin, client_for):
    experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), claim="best", delta=0.1)
    while experiment.state == "running":
        click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
    client = client_for(admin)
    for page in ("dashboard", "report"):
        shown = words(client.get(reverse(page, args=[experiment.pk])))
        assert re.search(r"Prompt 1 .{,40} beaten", shown)
    file = client.get(reverse("ranking_file", args=[experiment.pk])).content.decode()
    assert [row["standing"] for row in csv.DictReader(file.splitlines())] == ["winner", "beaten"]
    _, secret = make_token(user=admin, name="test", valid_days=1, scopes=["read"])
    told = client.get(
        f"/api/experiments/{experiment.pk}/ranking", headers={"Authorization": f"Bearer {secret}"}
    ).json()
    assert [row["standing"] for row in told] == ["winner", "beaten"]


def test_it_asks_first_and_says_the_joint_risk(experiment, admin, client_for):
    client = client_for(admin)
    asked = words(stop_here(client, experiment, claim="good_enough"))
    assert "Stop on the claim “good enough”?" in asked
    assert "at most 30%, instead of 10% for the claim chosen beforehand" in asked
    assert "It rests on the judgments of one person alone." in asked
    experiment.refresh_from_db()
    assert experiment.state == "running"
    response = stop_here(client, experiment, claim="good_enough", confirmed="1")
    assert response["Location"] == reverse("dashboard", args=[experiment.pk])
    experiment.refresh_from_db()
    assert (experiment.state, experiment.certified_claim) == ("concluded", "good_enough")
    shown = dashboard(client, experiment)
    assert "Certified winner" in shown
    # The claim excludes that the other one is much better, so it is open no more to a reader.
    for page in (shown, words(client.get(reverse("policy", args=[experiment.pk, 2])))):
        assert "may be as good" in page
    assert "is at most 30%." in shown
    assert "Stop here…" not in shown
    # The finding has the place of its claim in the list.
    assert shown.count(experiment.finding) == 1
    assert "numbers of comparisons" not in shown
    # The report names one risk: that of a claim chosen after looking.
    report = words(client.get(reverse("report", args=[experiment.pk])))
    assert "the risk that it is wrong is at most 30%, however often somebody looked" in report
    assert "10%" not in report


def test_somebody_who_stops_without_a_winner_reads_that_a_claim_holds(experiment, admin, client_for):
    """The two buttons stand on one page, and one of them gives the winner away."""
    client = client_for(admin)
    asked = client.post(reverse("change_state", args=[experiment.pk]), {"action": "stop"})
    assert "“Good enough” already holds. To end with a certified winner, use “Stop here…” on" in words(asked)
    assert f'href="{reverse("dashboard", args=[experiment.pk])}#verdict-title"' in asked.content.decode()


def test_a_claim_that_does_not_hold_is_refused_without_a_question(experiment, admin, client_for):
    client = client_for(admin)
    response = stop_here(client, experiment, claim="best")
    assert response["Location"] == reverse("dashboard", args=[experiment.pk])
    assert "because it does not hold" in dashboard(client, experiment)
    experiment.refresh_from_db()
    assert experiment.state == "running"
    assert stop_here(client, experiment, claim="nonsense").status_code == 400


def test_while_the_evidence_is_recomputed_nothing_is_replayed_for_a_page(
    experiment, admin, client_for, monkeypatch
):
    Experiment.objects.filter(pk=experiment.pk).update(evidence_stale=True)
    monkeypatch.setattr(designs, "replayed", None)
    client = client_for(admin)
    shown = dashboard(client, experiment)
    assert "The evidence is being recomputed." in shown
    assert "Stop here…" not in shown
