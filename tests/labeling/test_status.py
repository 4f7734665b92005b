"""An experiment's state in words."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.models import Experiment, Response, Snapshot, WorkerPulse
from engine.selectors.policies import policy_names
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.standings import standing_of
from engine.services.experiments import archive, pause, stop
from engine.services.generation import claim_responses
from engine.services.planning import advance
from engine.services.setting_changes import change_settings
from labeling.dashboard.status import status_of
from labeling.formatting import rough, rough_hours
from tests.factories import click, make_experiment, workers_alive

pytestmark = pytest.mark.django_db


@pytest.fixture
def alive() -> None:
    workers_alive()


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


def conclude(experiment: Experiment, conclusion: str) -> None:
    experiment.state = Experiment.State.CONCLUDED
    experiment.conclusion = conclusion
    experiment.winner = experiment.policies.get(index=1) if conclusion == "certified" else None
    experiment.finding = "What is claimed."
    experiment.save()


def test_a_draft_has_not_started():
    status = status_of(make_experiment(running=False))
    assert (status.kind, status.sentence) == ("draft", "Not started yet.")


@pytest.mark.parametrize(
    ("snapshot", "sentence"),
    [
        ({"comparisons": 0, "best": None}, "No judgments yet."),
        (
            {"remaining": {"low": 61.0, "likely": 123.4, "high": 306.0}},
            "Leading: Prompt 1. All 2 rivals are open. About 120 more clicks, 61 to 310.",
        ),
        ({"remaining": {"low": 61.0, "likely": 123.4, "high": 961.0}}, "About 120 more clicks, at least 61;"),
        ({}, "Too early to say how many more clicks."),
        (
            {"remaining": {"low": 61.0, "likely": 961.0, "high": 2000.0}},
            "The budget of 1,000 may not be enough.",
        ),
        ({"best": None}, "No policy leads."),
        # As after an import of votes, where a claim holds before the experiment ends.
        ({"open_rivals": 1}, "Of 2 rivals, 1 is ruled out; 1 is open."),
        ({"open_rivals": 0}, "Already the best, if any is: Prompt 1. All 2 rivals are ruled out."),
    ],
)
def test_while_it_runs_it_says_who_leads_and_how_much_is_left(snapshot, sentence, alive):
    experiment = running(budget=1000)
    known(experiment, **snapshot)
    status = status_of(experiment)
    assert status.kind == "running"
    assert sentence in status.sentence


class TestUnhealthy:
    def test_a_worker_that_was_never_seen(self):
        assert status_of(running()).sentence.startswith("The control worker has never run. Start it.")
        WorkerPulse.objects.create(queue="control", worker="w")
        status = status_of(running())
        assert status.kind == "unhealthy"
        assert status.sentence.startswith("The generation worker has never run. Start it.")

    @pytest.mark.parametrize(
        ("spec", "pulse", "sentence"),
        [
            (
                {},
                {"seen_at": timezone.now() - timedelta(hours=1)},
                "was last seen 1 hour ago. Start it again.",
            ),
            (
                {"model": "qwen"},
                {"details": {"backend": "vllm", "model": "llama"}},
                "No worker serves 'qwen'.",
            ),
            ({}, {"details": {"backend": "vllm", "trouble": "No model."}}, "reports an error: No model."),
        ],
    )
    def test_a_worker_that_cannot_write(self, spec, pulse, sentence, alive):
        experiment = make_experiment(**spec)
        WorkerPulse.objects.filter(queue="generation").update(**pulse)
        status = status_of(experiment)
        assert status.kind == "unhealthy"
        assert sentence in status.sentence

    @pytest.mark.parametrize(
        ("minutes", "writing", "kind", "sentence"),
        [
            (0.5, False, "running", "No judgments yet."),
            (2, True, "running", "Responses are being written: 7 wait, the oldest for 2 minutes. "),
            (2, False, "unhealthy", "Responses have waited for more than a minute, and no worker writes. "),
            (11, True, "unhealthy", "Responses have waited for more than ten minutes"),
        ],
    )
    def test_responses_that_wait_are_trouble_where_nobody_writes_or_for_long(
        self, minutes, writing, kind, sentence, alive
    ):
        experiment = make_experiment()
        Response.objects.update(created_at=timezone.now() - timedelta(minutes=minutes))
        if writing:
            claim_responses(worker="w", limit=1)
        status = status_of(experiment)
        assert status.kind == kind
        assert sentence in status.sentence

    def test_nobody_is_away_between_two_responses(self, alive):
        experiment = make_experiment()
        last = Response.objects.latest("pk").pk
        Response.objects.update(created_at=timezone.now() - timedelta(minutes=2))
        for seconds_ago, kind in ((5, "running"), (90, "unhealthy")):
            Response.objects.filter(pk=last).update(
                state="done", text="A text.", done_at=timezone.now() - timedelta(seconds=seconds_ago)
            )
            assert status_of(experiment).kind == kind

    def test_a_worker_that_loads_a_large_model_is_not_away(self, alive):
        experiment = make_experiment()
        loads = WorkerPulse.objects.filter(queue="generation")
        loads.update(
            details={"backend": "vllm", "loading": True}, seen_at=timezone.now() - timedelta(minutes=5)
        )
        for minutes, kind in ((0, "running"), (5, "running"), (11, "unhealthy")):
            Response.objects.update(created_at=timezone.now() - timedelta(minutes=minutes))
            status = status_of(experiment)
            assert status.kind == kind
            if minutes:
                assert "is loading its model" in status.sentence
        loads.update(seen_at=timezone.now() - timedelta(minutes=16))
        assert "was last seen 16 minutes ago" in status_of(experiment).sentence

    @pytest.mark.parametrize("change", [pause, stop])
    def test_while_nothing_is_asked_of_them_workers_may_be_away(self, change):
        experiment = running()
        change(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert status_of(experiment).kind == {"pause": "paused", "stop": "stopped"}[change.__name__]


class TestConcluded:
    @pytest.mark.parametrize(
        ("conclusion", "badge", "headline", "leader"),
        [
            ("certified", "Winner found", "Use Prompt 1", "Prompt 1"),
            ("no_single_best", "No single best policy", "No policy beats every other", ""),
            ("budget", "Budget spent", "Not decided", "Prompt 1"),
            ("stopped", "Stopped by hand", "Not decided", "Prompt 1"),
        ],
    )
    def test_it_says_what_was_decided_and_by_how_many_comparisons(self, conclusion, badge, headline, leader):
        experiment = running(delta=0.07)
        conclude(experiment, conclusion)
        assert status_of(experiment).sentence, "there is no snapshot yet"
        known(experiment)
        status = status_of(experiment)
        assert status.badge == badge
        assert status.sentence.startswith(f"{headline}. ")
        assert "40 comparisons" in status.sentence
        standing = standing_of(experiment, latest_snapshot(experiment), policy_names(experiment))
        assert (standing.headline, standing.leader, standing.comparisons) == (headline, leader, 40)

    def test_no_single_best_by_a_margin_leaves_room_for_a_smaller_lead(self):
        """A policy that beats each other with 70% is no best one by a margin of 40 points."""
        experiment = running(claim="best_if_any", epsilon=0.4)
        known(experiment, best=None)
        conclude(experiment, "no_single_best")
        assert "at least 90 of 100" in status_of(experiment).sentence

    def test_one_in_the_archive_says_so(self):
        experiment = running()
        conclude(experiment, "stopped")
        archive(experiment_id=experiment.pk, by=None)
        experiment.refresh_from_db()
        assert status_of(experiment).sentence.endswith(f"In the archive since {timezone.now():%Y-%m-%d}.")


def test_while_the_evidence_is_recomputed_it_says_so(annotator, admin):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click(experiment, annotator)
    for recomputed in (False, True, False):
        if recomputed:
            change_settings(experiment_id=experiment.pk, by=admin, delta=0.01)
        else:
            advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert ("The evidence is being recomputed." in status_of(experiment).sentence) == recomputed


@pytest.mark.parametrize(
    ("said", "expected", "words"),
    [
        (rough, 0.4, "0"),
        (rough, 87.2, "87"),
        (rough, 123.4, "120"),
        (rough, 12_345.0, "12,000"),
        (rough_hours, 2.84, "2.8"),
        (rough_hours, 9.96, "10.0"),
        (rough_hours, 153.4, "150"),
        (rough_hours, 0.04, "0.1"),
    ],
)
def test_an_estimate_does_not_look_like_a_count(said, expected, words):
    assert said(expected) == words
