"""Agreement of the people of an experiment: what counts for it, and what the page and the command say."""

import io

import pytest
from django.core.management import call_command
from django.urls import reverse

from engine.importing.votes import Vote, Winner
from engine.models import Judgment
from engine.selectors.agreement import agreement_of_people
from engine.services.past_votes import start_from_votes
from engine.services.voids import void_one
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def voted(task: int, by: str, winner: Winner = Winner.A) -> Vote:
    return Vote("", f"Task {task}", "P", "Q", winner, f"p{task}", f"q{task}", annotator=by)


def experiment_of(votes):
    return start_from_votes(name="Past", votes=votes, by=None)


def test_only_pairs_that_several_people_judged_count_and_each_person_once(client):
    votes = [voted(n, by, (Winner.A, Winner.B)[n % 2]) for n in range(21) for by in ("ann", "bob")]
    votes += [voted(0, "ann", Winner.B), voted(30, "ann", Winner.TIE), voted(31, "", Winner.TIE)]
    votes[1] = voted(0, "bob", Winner.BOTH_BAD)
    experiment = experiment_of(votes)
    found = agreement_of_people(experiment)
    assert (found.units, found.answers) == (21, 42)
    # Twenty of 21 pairs agree; 21, 20 and 1 of 42 answers are the first, the second and neither.
    expected = 1 - (21 * 20 + 20 * 19) / (42 * 41)
    assert found.value == pytest.approx(1 - (1 / 21) / expected)
    low, high = found.interval
    assert low < found.value <= high
    said = f"Krippendorff&#x27;s α is {found.value:.2f} ({low:.2f} to {high:.2f})"
    client.force_login(make_user(is_superuser=True))
    assert said in client.get(reverse("quality", args=[experiment.pk])).content.decode()
    out = io.StringIO()
    call_command("ranking", str(experiment.pk), stdout=out)
    assert said.replace("&#x27;", "'") in out.getvalue()
    for judgment in Judgment.objects.filter(comparison__task__prompt="Task 0"):
        void_one(judgment_id=judgment.pk, by=make_user(), reason="A test.")
    found = agreement_of_people(experiment)
    assert (found.units, found.answers, found.value) == (20, 40, 1.0)


@pytest.mark.parametrize(
    ("votes", "words"),
    [
        (
            [voted(0, "ann"), voted(1, "bob")],
            "No two people are known to have judged the same two",
        ),
        (
            [voted(0, "ann"), voted(0, "bob"), voted(1, "ann", Winner.B), voted(1, "bob")],
            "too few to say. At least two people judged 2 pairs of responses; 20 are needed.",
        ),
        ([voted(n, by) for n in range(2) for by in "ab"], "All 4 judgments of the 2 pairs of responses"),
    ],
)
def test_too_few_is_said_plainly(votes, words):
    out = io.StringIO()
    call_command("ranking", str(experiment_of(votes).pk), stdout=out)
    assert words in out.getvalue()
