"""Marks on the page Quality: answers faster than reading, and for the longer response only."""

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from engine.models import Experiment, Judgment, Response, User
from engine.models.append_only import lifted
from engine.selectors.annotators import Reading, reading_by_annotator, tallies
from engine.selectors.answers import own_summary
from engine.selectors.pace import FASTEST_READING
from engine.selectors.pairs_ahead import click_seconds
from engine.services.planning import advance
from labeling.dashboard.annotators import annotator_rows
from tests.factories import certify, click_on, make_experiment, make_user, write_responses
from tests.markup import text_of

pytestmark = pytest.mark.django_db

_LENGTH = 600
_START = datetime(2026, 11, 27, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def many_at_once(settings):
    settings.BUFFER_MIN = 20


def answered(n: int) -> Experiment:
    """One person's ``n`` answers, each on the left."""
    ann = make_user("ann")
    experiment = make_experiment(annotators=(ann,), n_tasks=50)
    while (judged := experiment.comparisons.filter(state="judged").count()) < n:
        advance(experiment_id=experiment.pk)
        write_responses()
        click_on(experiment, ann, min(n - judged, experiment.comparisons.filter(state="ready").count()))
    return experiment


def rewrite(experiment: Experiment, *, hasty: int, longer: int) -> None:
    """Make the first answers hasty, and the first ones go to the longer response."""
    with lifted():
        for place, judgment in enumerate(Judgment.objects.order_by("pk")):
            seconds = (_LENGTH / FASTEST_READING) * (0.9 if place < hasty else 1.1)
            judged_at = _START + timedelta(minutes=place)
            shown_at = judged_at - timedelta(seconds=seconds)
            Judgment.objects.filter(pk=judgment.pk).update(shown_at=shown_at, created_at=judged_at)
            for response, more in ((judgment.comparison.left, 50), (judgment.comparison.right, -50)):
                length = _LENGTH // 2 + (more if place < longer else -more)
                Response.objects.filter(pk=response.pk).update(text="x" * length)


def test_an_answer_faster_than_reading_has_the_usual_time_in_forecasts():
    experiment = answered(2)
    rewrite(experiment, hasty=1, longer=0)
    fast, slow = 0.9 * _LENGTH / FASTEST_READING, 1.1 * _LENGTH / FASTEST_READING
    assert click_seconds(experiment) == pytest.approx((fast + slow) / 2)
    # 600 characters at 250 words a minute take 24 seconds.
    assert click_seconds(experiment, reading=True) == pytest.approx((24.0 + slow) / 2)


def test_most_of_at_least_twenty_answers_have_to_say_so(admin, client_for):
    experiment = answered(20)
    for hasty, longer, marks in (
        (0, 10, ("", "")),
        (10, 18, ("", "")),
        (11, 19, ("11 of 20 faster than reading", "19 of 20 for the longer one")),
    ):
        rewrite(experiment, hasty=hasty, longer=longer)
        assert reading_by_annotator(experiment, ["ann"]) == {"ann": Reading(20, hasty, 20, longer)}
        [row] = annotator_rows(experiment, tallies(experiment), [])
        assert (row.hasty, row.always_longer) == marks
    said = text_of(client_for(admin).get(reverse("quality_charts", args=[experiment.pk])).content.decode())
    assert "11 of 20 faster than reading" in said
    assert "No figure is a proof" in said
    newest = Judgment.objects.latest("pk")
    with lifted():
        Judgment.objects.filter(pk=newest.pk).update(via="import")
    [row] = annotator_rows(experiment, tallies(experiment), [])
    assert (row.reading.timed, row.hasty, row.always_longer) == (19, "", "")


def test_holding_pairs_ahead_does_not_make_somebody_look_slow():
    """A program that took six pairs and then answered one every two seconds had taken twelve for each."""
    experiment = answered(20)
    rewrite(experiment, hasty=0, longer=10)
    with lifted():
        for place, judgment in enumerate(Judgment.objects.order_by("pk")):
            judged_at = _START + timedelta(seconds=2 * place)
            shown_at = judged_at - timedelta(seconds=12)
            Judgment.objects.filter(pk=judgment.pk).update(shown_at=shown_at, created_at=judged_at)
    # Nothing is known of what came before the first.
    assert reading_by_annotator(experiment, ["ann"])["ann"].hasty == 19
    [row] = annotator_rows(experiment, tallies(experiment), [])
    assert row.median_seconds == 2.0
    assert own_summary(experiment, User.objects.get(username="ann")).typical_seconds == 2.0


@pytest.mark.parametrize(
    ("n", "running", "doubtful"), [(6, True, False), (20, True, True), (20, False, True)]
)
def test_a_result_and_its_report_say_that_there_are_doubts(n, doubtful, running, admin, client_for):
    """Only the tab Quality said so, which somebody who reads "Use Warm" may never open. While people still
    judge, something can be done about it.
    """
    experiment = answered(n)
    rewrite(experiment, hasty=n, longer=0)
    if not running:
        certify(experiment)
    pages = [
        text_of(client_for(admin).get(reverse(name, args=[experiment.pk])).content.decode())
        for name in ("dashboard", "report")
    ]
    said = (
        "The answers of 1 of 1 person are in doubt.",
        "There are doubts about the answers of 1 of 1 person.",
    )
    assert [each in page for each, page in zip(said, pages, strict=True)] == [doubtful] * 2
