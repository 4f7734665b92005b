"""The figures of one annotator: for those who run the experiment, and for themselves."""

from datetime import timedelta

import pytest
from django.urls import reverse

from engine.models import Experiment, Flag, Judgment, clock
from engine.models.append_only import lifted
from engine.selectors.annotators import agreement_with_others
from engine.selectors.answers import own_summary
from tests.factories import add_member, checked, click, click_for, make_experiment, make_user
from tests.markup import words

pytestmark = pytest.mark.django_db


def test_the_page_says_how_somebody_works(admin, client_for):
    ann, bob = make_user("ann"), make_user("bob")
    experiment = make_experiment(ready=True, annotators=(ann, bob), overlap=2, n_policies=2)
    for _ in range(2):
        click_for(experiment, ann, lambda i, j: i < j)
    with lifted():
        for ago, judgment in zip((20, 10), Judgment.objects.order_by("pk"), strict=True):
            judged_at = judgment.created_at - timedelta(seconds=ago)
            shown_at = judged_at - timedelta(seconds=7)
            Judgment.objects.filter(pk=judgment.pk).update(
                shown_at=shown_at, created_at=judged_at, comment="Long."
            )
    Flag.objects.create(comparison=Judgment.objects.first().comparison, annotator=ann, reason="broken")
    click_for(experiment, bob, lambda i, j: i < j)
    assert agreement_with_others(experiment, ann) == (1, 1)
    click_for(experiment, bob, lambda i, j: i > j)
    assert agreement_with_others(experiment, ann) == agreement_with_others(experiment, bob) == (2, 1)
    said = words(client_for(admin).get(reverse("annotator", args=[experiment.pk, ann.pk])))
    assert "Judgments 2 on 1 day, 2 with a comment" in said
    assert "half of the judgments took at most 7.0 s" in said
    assert "Same answer as others 1 of 2 answers of other people" in said
    assert "Flags 1" in said
    listed = client_for(admin).get(reverse("people", args=[experiment.pk])).content.decode()
    assert f'href="{reverse("annotator", args=[experiment.pk, ann.pk])}"' in listed


def test_somebody_else_has_no_page_and_a_newcomer_an_empty_one(experiment, stranger, admin, client_for):
    address = reverse("annotator", args=[experiment.pk, stranger.pk])
    assert client_for(admin).get(address).status_code == 404
    add_member(experiment, stranger)
    assert "No judgments yet." in words(client_for(admin).get(address))


def test_annotators_see_their_own_figures_with_checks_in_them(annotator, client_for):
    experiment = make_experiment(ready=True, annotators=(annotator,), n_gold=1)
    assert own_summary(experiment, annotator) is None
    click(experiment, annotator)
    now = clock.now()
    with lifted():
        Judgment.objects.update(shown_at=now - timedelta(seconds=4), created_at=now)
    checked(
        experiment,
        annotator,
        shown_at=now + timedelta(seconds=2),
        created_at=now + timedelta(seconds=10),
    )
    summary = own_summary(experiment, annotator)
    assert (summary.answers, summary.today, round(summary.typical_seconds)) == (2, 2, 6)
    said = words(client_for(annotator).get(reverse("history", args=[experiment.pk])))
    assert "Answers: 2; today: 2. Your pace: about 6 s an answer." in said


def test_the_leaderboard_is_off_and_then_says_numbers_only(client_for):
    ann, bob = make_user("ann"), make_user("bob")
    experiment = make_experiment(ready=True, annotators=(ann, bob))
    for user, n in ((ann, 1), (bob, 2)):
        for _ in range(n):
            click(experiment, user)
    client = client_for(ann)
    address = reverse("history", args=[experiment.pk])
    Experiment.objects.update(leaderboard=True)
    assert "Answers by person" not in words(client.get(address)), "the first answers are still too new"
    with lifted():
        Judgment.objects.update(created_at=clock.now() - timedelta(hours=1))
    Experiment.objects.update(leaderboard=False)
    assert "bob" not in words(client.get(address))
    Experiment.objects.update(leaderboard=True)
    assert "Answers by person bob: 2 ann: 1 (you)" in words(client.get(address))
    click(experiment, bob)
    assert "bob: 2" in words(client.get(address)), "nobody sees an answer as it is given"
