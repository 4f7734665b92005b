"""An experiment's state in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.models import Experiment, Response, Snapshot, WorkerPulse
from engine.services.controls import change_settings
from engine.services.experiments import archive, pause, stop
from engine.services.generation import claim_responses
from engine.services.planning import advance
from labeling.dashboard.status import status_of, statuses_of
from labeling.formatting import about, rough_hours
from tests.factories import click, make_experiment

pytestmark = pytest.mark.django_db


@pytest.fixture
def alive() -> None:
    for queue in ("control", "generation"):
        WorkerPulse.objects.create(queue=queue, worker="w")


def running(**spec: Any) -> Experiment:
    return make_experiment(planned=False, **spec)


def known(experiment: Experiment, *, best: int | None = 1, comparisons: int = 40, **fields: Any) -> None:
    """Write down what the engine knows, in the snapshot's own terms."""
    policies = list(experiment.policies.all())
    Snapshot.objects.create(
        experiment=experiment,
        comparisons=comparisons,
        evidence=[0.0] * len(policies),
        peak_evidence=[0.0] * len(policies),
        threshold=3.0,
        best=None if best is None else policies[best],
        **({"open_rivals": 2} | fields),
    )


def conclude(experiment: Experiment, conclusion: str, winner: int | None = None) -> None:
    experiment.state = Experiment.State.CONCLUDED
    experiment.conclusion = conclusion
    experiment.winner = None if winner is None else experiment.policies.get(index=winner)
    experiment.finding = "What is claimed."
    experiment.save()


def test_a_draft_has_not_started():
    status = status_of(make_experiment(running=False))
    assert (status.kind, status.badge, status.sentence) == ("draft", "Draft", "Not started yet.")


class TestRunning:
    def test_before_the_first_judgment(self, alive):
        experiment = running()
        known(experiment, comparisons=0, best=None)
        status = status_of(experiment)
        assert (status.kind, status.badge) == ("running", "Running")
        assert status.sentence == "No judgments yet."

    def test_who_leads_how_surely_and_how_much_is_left(self, alive):
        experiment = running(budget=1000)
        known(experiment, expected_left=123.4)
        status = status_of(experiment)
        assert status.badge == "Running"
        assert status.sentence == (
            "Prompt 1 leads; 2 rivals still to exclude. About 120 comparisons remaining."
        )

    def test_when_the_budget_may_not_be_enough_it_says_so(self, alive):
        experiment = running(budget=1000)
        known(experiment, expected_left=961.0)
        status = status_of(experiment)
        assert status.badge == "Running"
        assert status.sentence.endswith("The budget of 1,000 may not be enough.")


class TestUnhealthy:
    def test_a_worker_that_was_never_seen(self):
        assert status_of(running()).sentence.startswith("The control worker has never run. Start it.")
        WorkerPulse.objects.create(queue="control", worker="w")
        status = status_of(running())
        assert (status.kind, status.badge) == ("unhealthy", "Unhealthy")
        assert status.sentence.startswith("The generation worker has never run. Start it.")

    def test_a_worker_that_went_away(self, alive):
        WorkerPulse.objects.filter(queue="generation").update(seen_at=timezone.now() - timedelta(hours=1))
        sentence = status_of(running()).sentence
        assert sentence.startswith("The generation worker was last seen 1 hour ago. Start it again.")

    @pytest.mark.parametrize(
        ("minutes", "writing", "badge", "sentence"),
        [
            (0.5, False, "Running", "No judgments yet."),
            (
                2,
                True,
                "Running",
                "No judgments yet. Responses are being written: 7 wait, the oldest for 2 minutes. ",
            ),
            (2, False, "Unhealthy", "Responses have waited for more than a minute, and no worker writes. "),
            (
                11,
                True,
                "Unhealthy",
                "Responses have waited for more than ten minutes: the generation worker is ",
            ),
        ],
    )
    def test_responses_that_wait_are_trouble_where_nobody_writes_or_for_long(
        self, minutes, writing, badge, sentence, alive
    ):
        experiment = make_experiment()
        Response.objects.update(created_at=timezone.now() - timedelta(minutes=minutes))
        if writing:
            claim_responses(worker="w", limit=1)
        status = status_of(experiment)
        assert status.badge == badge
        assert status.sentence.startswith(sentence)

    def test_a_model_that_no_worker_serves(self, alive):
        experiment = make_experiment(model="qwen")
        WorkerPulse.objects.filter(queue="generation").update(details={"backend": "vllm", "model": "llama"})
        status = status_of(experiment)
        assert status.kind == "unhealthy"
        assert status.sentence.startswith("No worker serves 'qwen'. Start one that does")

    def test_a_worker_that_loads_a_large_model_is_not_away(self, alive):
        experiment = make_experiment()
        WorkerPulse.objects.filter(queue="generation").update(
            details={"backend": "vllm", "loading": True}, seen_at=timezone.now() - timedelta(minutes=5)
        )
        assert status_of(experiment).kind == "running"
        Response.objects.update(created_at=timezone.now() - timedelta(minutes=5))
        status = status_of(experiment)
        assert status.kind == "running"
        assert "The generation worker is loading its model; a large model takes minutes." in status.sentence
        assert status.sentence.endswith("You need do nothing: the pairs come by themselves.")
        Response.objects.update(created_at=timezone.now() - timedelta(minutes=11))
        status = status_of(experiment)
        assert status.kind == "unhealthy"
        assert status.sentence.startswith("The generation worker is loading its model")
        WorkerPulse.objects.filter(queue="generation").update(seen_at=timezone.now() - timedelta(minutes=16))
        assert "was last seen 16 minutes ago" in status_of(experiment).sentence

    def test_a_backend_that_is_out_of_order(self, alive):
        experiment = make_experiment()
        WorkerPulse.objects.filter(queue="generation").update(
            details={"backend": "vllm", "trouble": "GENERATION_MODEL is not set."}
        )
        assert status_of(experiment).sentence.startswith(
            "The generation worker's backend reports an error: GENERATION_MODEL is not set."
        )

    @pytest.mark.parametrize("change", [pause, stop])
    def test_while_nothing_is_asked_of_them_workers_may_be_away(self, change):
        experiment = running()
        change(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert status_of(experiment).kind == {"pause": "paused", "stop": "stopped"}[change.__name__]


class TestConcluded:
    @pytest.mark.parametrize(
        ("conclusion", "winner", "badge", "sentence"),
        [
            (
                "certified",
                1,
                "Certified winner",
                "After 40 comparisons: What is claimed.",
            ),
            (
                "no_single_best",
                None,
                "No single best policy",
                "After 40 comparisons: What is claimed. Either the best policies form a cycle, or they tie.",
            ),
            (
                "budget",
                None,
                "Budget spent",
                "40 comparisons were not enough to decide. Prompt 1 leads; 2 rivals still to exclude.",
            ),
            (
                "stopped",
                None,
                "Stopped by hand",
                "Stopped after 40 comparisons, before it was decided. Prompt 1 leads; "
                "2 rivals still to exclude.",
            ),
        ],
    )
    def test_it_says_what_was_found_and_how_sure_it_is(self, conclusion, winner, badge, sentence):
        experiment = running(delta=0.07)
        known(experiment)
        conclude(experiment, conclusion, winner)
        status = status_of(experiment)
        assert (status.badge, status.sentence) == (badge, sentence)

    def test_no_single_best_by_a_margin_leaves_room_for_a_smaller_lead(self):
        """A policy that beats each other with 70% is no best one by a margin of 40 points."""
        experiment = running(claim="best_if_any", epsilon=0.4)
        known(experiment, best=None)
        conclude(experiment, "no_single_best")
        assert status_of(experiment).sentence.endswith(
            " Either the best policies form a cycle, or they tie, or none leads every other by 40 points."
        )
        assert statuses_of([experiment], in_brief=True)[0].sentence == (
            "No policy beats every other one with a win rate of at least 90%, after 40 comparisons."
        )

    @pytest.mark.parametrize("conclusion", ["budget", "stopped"])
    def test_a_list_says_first_who_leads_as_the_badge_says_how_it_ended(self, conclusion):
        experiment = running()
        conclude(experiment, conclusion)
        assert statuses_of([experiment], in_brief=True)[0].sentence == "No judgments yet."
        known(experiment)
        assert statuses_of([experiment], in_brief=True)[0].sentence == (
            "Prompt 1 leads; 2 rivals still to exclude, after 40 comparisons."
        )

    def test_one_in_the_archive_says_so_on_every_page(self):
        """Only the buttons beside it told the archive from the rest."""
        experiment = running()
        conclude(experiment, "stopped")
        archive(experiment_id=experiment.pk, by=None)
        experiment.refresh_from_db()
        assert status_of(experiment).sentence.endswith(f"In the archive since {timezone.now():%Y-%m-%d}.")


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (0.4, "0 comparisons"),
        (1.2, "1 comparison"),
        (9.7, "10 comparisons"),
        (87.2, "87 comparisons"),
        (123.4, "120 comparisons"),
        (12_345.0, "12,000 comparisons"),
    ],
)
def test_an_estimate_does_not_look_like_a_count(expected, words):
    assert about(expected) == words


def test_while_the_evidence_is_recomputed_it_says_so(annotator, admin):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click(experiment, annotator)
    advance(experiment_id=experiment.pk)
    assert "recomputed" not in status_of(experiment).sentence
    change_settings(experiment_id=experiment.pk, by=admin, delta=0.01)
    experiment.refresh_from_db()
    assert "The evidence is being recomputed." in status_of(experiment).sentence
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert "recomputed" not in status_of(experiment).sentence


@pytest.mark.parametrize(("expected", "words"), [(2.84, "2.8"), (9.96, "10.0"), (53.4, "53"), (153.4, "150")])
def test_hours_of_an_estimate_do_not_look_measured(expected, words):
    assert rough_hours(expected) == words
