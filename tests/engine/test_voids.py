"""Voids by hand: who voided what, and which policy the evidence names with and without it."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.models import Experiment, Judgment, User
from engine.selectors import designs, voids
from engine.selectors.policies import policy_names, winner_name
from engine.selectors.verifying import faults_of
from engine.selectors.voids import Named
from engine.services import evidence
from engine.services.forgetting import forget_person
from engine.services.judging import take_back_judgment
from engine.services.planning import advance
from engine.services.reports import share_report
from engine.services.tokens import make_token
from engine.services.voids import restore_judgment, void_annotator, void_one
from labeling.dashboard.voids import sentence_about
from tests.accounts import logged_in
from tests.commands import run
from tests.factories import add_member, click, click_for, make_experiment, make_user, plan_and_write
from tests.markup import words

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

RULES = {"claim": "good_enough", "epsilon": 0.1, "n_policies": 2}


@pytest.fixture
def bob(db: None) -> User:
    return make_user("bob")


@pytest.fixture
def experiment(annotator: User, bob: User) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator, bob), **RULES)


def judge(experiment: Experiment, user: User, n: int, winner: int) -> None:
    """Let a user choose this policy in each of the next comparisons."""
    for _ in range(n):
        if not experiment.comparisons.filter(state="ready").exists():
            plan_and_write(experiment)
        click_for(experiment, user, lambda i, j: i == winner)


def to_the_end(experiment: Experiment, user: User, winner: int) -> None:
    while Experiment.objects.get(pk=experiment.pk).state == "running":
        judge(experiment, user, 1, winner)
        advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()


def void_all(experiment: Experiment, annotator: User, by: User) -> int:
    return void_annotator(experiment_id=experiment.pk, annotator=annotator, by=by, reason="Spam")


def test_no_void_says_nothing(experiment, annotator):
    judge(experiment, annotator, 2, winner=0)
    take_back_judgment(judgment_id=Judgment.objects.latest("pk").pk, annotator=annotator, watches=False)
    assert voids.groups_of(experiment) == []
    assert sentence_about(experiment) == ""


def test_an_editor_who_voids_what_the_favourite_lost_gains_nothing_and_it_is_said(
    experiment, annotator, bob, admin
):
    """Without bob's answers the favourite is named. The proofs keep them, so it is still open."""
    judge(experiment, bob, 5, winner=1)
    judge(experiment, annotator, 10, winner=0)
    before = designs.load(experiment).design
    assert not before.stopped
    assert void_all(experiment, bob, admin) == 5
    evidence.catch_up(experiment_id=experiment.pk)
    assert (designs.load(experiment).design.evidence == before.evidence).all()
    best = policy_names(experiment)[0].name
    assert voids.named(experiment) == Named(given="", without=best)
    [group] = voids.groups_of(experiment)
    assert (group.by, group.of, group.judgments, group.reasons) == (admin, bob, 5, ("Spam",))
    today = f"{timezone.localdate():%Y-%m-%d}"
    both = f"With them: still open. Without them: {best}."
    said = f"Voided by hand: 5 judgments of bob, by admin on {today} (“Spam”). {both}"
    assert sentence_about(experiment) == said
    viewer = make_user()
    add_member(experiment, viewer, "viewer")
    client = logged_in(viewer)
    assert said in words(client.get(reverse("dashboard", args=[experiment.pk])))
    report = words(client.get(reverse("report", args=[experiment.pk])))
    assert said in report
    _, secret = share_report(experiment=experiment, by=admin, valid_days=7)
    link = words(Client().get(reverse("shared_report", args=[secret])))
    assert "5 judgments of one person" in link
    assert f"on {today}. {both}" in link
    assert not [name for name in ("bob", "admin", "Spam") if name in link]
    key = make_token(user=viewer, name="t", valid_days=1)[1]
    reply = client.get(f"/api/experiments/{experiment.pk}", headers={"Authorization": f"Bearer {key}"})
    assert said in reply.json()["caveats"]
    assert f"5 of bob by admin on {today}: Spam" in run("verify", experiment.pk)
    assert list(faults_of(experiment)) == []


def test_what_is_named_without_them_is_that_of_an_experiment_that_never_had_them(
    experiment, annotator, bob, admin
):
    judge(experiment, bob, 3, winner=1)
    judge(experiment, annotator, 6, winner=0)
    void_all(experiment, bob, admin)
    found = voids.design_without(experiment)
    never = designs.replay(experiment, []).design
    for judgment in Judgment.objects.filter(annotator=annotator).order_by("pk"):
        comparison = judgment.comparison
        never.tell(comparison.policy_i.index, comparison.policy_j.index, judgment.outcome)
    assert (found.evidence == never.evidence).all()
    assert found.n_comparisons == 6


def test_where_others_judged_too_their_outcome_stays(annotator, bob, admin):
    experiment = make_experiment(
        ready=True, annotators=(annotator, bob), overlap=2, overlap_rule="mean", **RULES
    )
    first = click(experiment, annotator)
    click(experiment, bob)
    comparison = first.comparison
    assert comparison.judgments.count() == 2
    void_one(judgment_id=first.pk, by=admin, reason="Spam")
    comparison.refresh_from_db()
    found = voids.design_without(experiment)
    i, j = comparison.policy_i.index, comparison.policy_j.index
    assert found.wins[i, j] == comparison.outcome
    assert found.n_comparisons == 1


def test_a_restored_judgment_is_no_void(experiment, annotator, admin):
    judge(experiment, annotator, 2, winner=0)
    judgment = Judgment.objects.earliest("pk")
    void_one(judgment_id=judgment.pk, by=admin, reason="A slip.")
    assert voids.groups_of(experiment)
    restore_judgment(judgment_id=judgment.pk, by=admin)
    assert voids.groups_of(experiment) == []
    assert sentence_about(experiment) == ""


def test_several_are_listed_and_time_may_run_out(experiment, annotator, bob, admin):
    judge(experiment, annotator, 2, winner=0)
    judge(experiment, bob, 1, winner=0)
    judge(experiment, annotator, 1, winner=0)
    other = make_user("other", is_superuser=True)
    for judgment, by in zip(Judgment.objects.order_by("pk")[:3], (admin, admin, other), strict=True):
        void_one(judgment_id=judgment.pk, by=by, reason=f"Reason {judgment.pk}")
    groups = voids.groups_of(experiment)
    assert [(str(each.by), str(each.of), each.judgments) for each in groups] == [
        ("admin", "ann", 2),
        ("other", "bob", 1),
    ]
    assert len(groups[0].reasons) == 2
    assert re.search(
        r"2 judgments of ann, by admin .*; 1 judgment of bob, by other ", sentence_about(experiment)
    )
    assert voids.named(experiment, seconds=0).without is None


def test_the_winner_of_a_concluded_experiment_is_named(experiment, annotator, bob, admin):
    judge(experiment, bob, 1, winner=1)
    void_all(experiment, bob, admin)
    to_the_end(experiment, annotator, winner=0)
    name = winner_name(experiment)
    assert name
    assert voids.named(experiment) == Named(given=name, without=name)


def test_a_person_who_is_forgotten_leaves_the_count_without_the_name(experiment, annotator, bob, admin):
    judge(experiment, bob, 3, winner=1)
    judge(experiment, annotator, 1, winner=0)
    void_all(experiment, bob, admin)
    forget_person(user_id=bob.pk, by=None)
    said = sentence_about(experiment)
    assert "bob" not in said
    assert "3 judgments of former-annotator-1, by admin" in said
    assert voids.groups_of(experiment)[0].judgments == 3
