"""Marks of bad faith that show across answers, and the result without somebody's judgments."""

import random
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from engine.core.agreement import p_as_alike, p_of_fall
from engine.importing.votes import Vote, Winner
from engine.models import Judgment, User
from engine.models.append_only import lifted
from engine.selectors.agreement import shared_answers
from engine.selectors.alike_and_drift import Alike, Drift, habits
from engine.services.past_votes import start_from_votes
from tests.factories import make_user
from tests.markup import text_of

pytestmark = pytest.mark.django_db

A, B = Winner.A, Winner.B


def voted(by: str, winners: list[Winner]) -> list[Vote]:
    """One person's votes on the same tasks in their order, P against Q."""
    return [
        Vote("", f"Task {n}", "P", "Q", winner, f"p{n}", f"q{n}", annotator=by)
        for n, winner in enumerate(winners)
    ]


def three_of_four(rng: random.Random) -> list[Winner]:
    return [A if rng.random() < 0.75 else B for _ in range(60)]


@pytest.fixture
def experiment():
    """Three honest people, one who copies ann but for two answers, and one who becomes tired."""
    rng = random.Random(5)
    ann = three_of_four(rng)
    copy = [*(B if each is A else A for each in ann[:2]), *ann[2:]]
    tired = [A] * 30 + [B] * 30
    people = {"ann": ann, "bob": three_of_four(rng), "cleo": three_of_four(rng), "copy": copy, "tired": tired}
    votes = [vote for by, winners in people.items() for vote in voted(by, winners)]
    experiment = start_from_votes(name="Past", votes=votes, by=None)
    for user in User.objects.filter(username__contains="@"):
        User.objects.filter(pk=user.pk).update(username=user.username.split("@")[0])
    # Votes of files came at one moment; these came an hour after another.
    with lifted():
        for judgment in Judgment.objects.select_related("comparison__task"):
            hours = int(judgment.comparison.task.prompt.split()[1])
            at = timezone.now() - timedelta(days=9) + timedelta(hours=hours)
            Judgment.objects.filter(pk=judgment.pk).update(created_at=at)
    return experiment


def test_only_the_copy_and_the_tired_one_are_marked_with_figures(experiment, client):
    found = habits(experiment, shared_answers(experiment))
    assert set(found.alike) == {"ann", "copy"}
    [alike] = found.alike["copy"]
    assert isinstance(alike, Alike)
    assert (alike.other, alike.same, alike.shared) == ("ann", 58, 60)
    assert 0.4 < alike.usual < 0.8
    assert set(found.drift) == {"tired"}
    drift = found.drift["tired"]
    assert isinstance(drift, Drift)
    assert drift.after[0] < drift.before[0]
    client.force_login(make_user(is_superuser=True))
    page = text_of(client.get(reverse("quality", args=[experiment.pk])).content.decode())
    assert "same answers as ann: 58 of 60 pairs" in page
    assert f"right in {drift.after[0]} of the latest" in page
    tired = User.objects.get(username="tired")
    page = text_of(client.get(reverse("annotator", args=[experiment.pk, tired.pk])).content.decode())
    assert "drifting" in page


def test_chances_by_hand():
    assert p_as_alike(0, 3, 0.5) == 1.0
    assert p_as_alike(3, 3, 0.5) == pytest.approx(1 / 8)
    assert p_as_alike(2, 3, 0.5) == pytest.approx(1 / 2)
    # Four answers, two right: both in the earlier half by chance in one of six ways.
    assert p_of_fall((2, 2), (0, 2)) == pytest.approx(1 / 6)
    assert p_of_fall((0, 2), (2, 2)) == pytest.approx(1.0)
