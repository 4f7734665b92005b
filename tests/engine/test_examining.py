"""Computations for the dashboard in slices: forecasts, and replays without each annotator."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from django.utils import timezone

from engine import tasks
from engine.core import Design, Plan, Unstructured, forecast, forecast_rest
from engine.domain.outcomes import joint_outcome
from engine.models import Examination, Experiment, User
from engine.selectors import counts, designs, judges
from engine.services import analysis
from engine.services.analysis import examine, request_replays, to_examine
from engine.services.controls import change_settings
from engine.services.experiments import pause
from engine.services.judging import void_judgment
from engine.services.planning import advance
from engine.services.review import void_annotator
from tests.factories import add_member, click_for, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db


def judged(n: int, overlap: int = 1, people: int = 2, **settings) -> Experiment:
    """``n`` rounds in which everybody judges; the first person is contrary."""
    users = tuple(make_user(f"person{k}") for k in range(people))
    experiment = make_experiment(n_policies=3, ready=True, annotators=users, overlap=overlap, **settings)
    for _ in range(n):
        for k, user in enumerate(users):
            click_for(experiment, user, lambda i, j, k=k: (i > j) == (k > 0))
            advance(experiment_id=experiment.pk)
            write_responses()
    experiment.refresh_from_db()
    return experiment


def finish(experiment: Experiment) -> Examination:
    while examine(experiment_id=experiment.pk):
        pass
    return Examination.objects.get(experiment=experiment)


class TestForecast:
    def test_before_the_first_comparison_it_is_the_planners(self):
        experiment = judged(0)
        assert to_examine() == [experiment.pk]
        finish(experiment)
        plan = Plan(
            designs.space(experiment),
            claim="best_if_any",
            streams=False,
            delta=experiment.delta,
            budget=experiment.budget,
        )
        planned = forecast(plan, n_runs=40)
        left = designs.forecast(experiment)
        assert (left.expected, left.low, left.decided) == (planned.expected, planned.low, planned.decided)
        assert to_examine() == []

    def test_it_is_made_again_after_some_comparisons(self):
        experiment = judged(9)
        Examination.objects.create(
            experiment=experiment,
            forecast={"comparisons": 0, "horizon": 2000, "expected": 9, "low": 9, "high": 9, "decided": 1.0},
        )
        assert to_examine() == []
        click_for(experiment, make_member(experiment), lambda i, j: i > j)
        write_responses()
        click_for(experiment, make_member(experiment), lambda i, j: i > j)
        advance(experiment_id=experiment.pk)
        assert to_examine() == [experiment.pk]
        assert not examine(experiment_id=experiment.pk)
        known = Examination.objects.get(experiment=experiment).forecast
        assert known["comparisons"] == 20
        assert 0 < known["low"] <= known["expected"] <= known["high"] <= experiment.budget
        assert to_examine() == []

    def test_what_has_been_judged_since_is_taken_off(self):
        experiment = judged(2)
        Examination.objects.create(
            experiment=experiment,
            forecast={
                "comparisons": 1,
                "horizon": 2000,
                "expected": 50,
                "low": 2,
                "high": 90,
                "decided": 1.0,
            },
        )
        left = designs.forecast(experiment)
        assert (left.expected, left.low, left.high, left.to_the_budget) == (47, 1, 87, True)

    def test_where_too_few_came_to_a_decision_there_is_no_upper_end(self):
        experiment = judged(1)
        Examination.objects.create(
            experiment=experiment,
            forecast={"comparisons": 2, "horizon": 900, "expected": 50, "low": 2, "high": 90, "decided": 0.8},
        )
        left = designs.forecast(experiment)
        assert (left.high, left.to_the_budget) == (None, False)

    def test_an_experiment_that_does_not_run_has_none(self):
        experiment = judged(11)
        pause(experiment_id=experiment.pk)
        assert to_examine() == []
        experiment.refresh_from_db()
        assert designs.forecast(experiment) is None


def make_member(experiment: Experiment):
    user = make_user()
    add_member(experiment, user)
    return user


class TestReplays:
    def test_they_say_what_the_others_alone_would_have_led_to(self):
        experiment = judged(12)
        request_replays(experiment_id=experiment.pk)
        findings = finish(experiment).findings
        assert findings["n_judgments"] == 24
        assert sorted(row["annotator"] for row in findings["rows"]) == ["person0", "person1"]
        for row in findings["rows"]:
            assert row["judgments"] == row["comparisons"] == 12
            others = [
                (
                    judgment.comparison.policy_i.index,
                    judgment.comparison.policy_j.index,
                    judgment.outcome,
                )
                for judgment in counts.standing_judgments(experiment.pk)
                .exclude(annotator__username=row["annotator"])
                .order_by("pk")
            ]
            decision = Design.replay(
                Unstructured(3), others, claim="best_if_any", streams=False, delta=experiment.delta
            ).decision
            assert (row["best"], row["confidence"]) == (decision.best, decision.confidence)

    def test_of_a_comparison_that_several_judged_the_others_are_heard(self):
        experiment = judged(5, overlap=3, people=3)
        without = judges.outcomes_without(
            experiment, [user.user_id for user in experiment.memberships.order_by("user_id")], 10**9
        )
        for annotator_id, outcomes in without.items():
            assert len(outcomes) == 5
            for (_, _, outcome), comparison in zip(
                outcomes, experiment.comparisons.filter(state="judged").order_by("judged_at"), strict=True
            ):
                others = comparison.judgments.exclude(annotator_id=annotator_id)
                assert outcome == joint_outcome([each.outcome for each in others], "majority")

    def test_in_slices_they_come_to_the_same(self, monkeypatch):
        experiment = judged(12)
        request_replays(experiment_id=experiment.pk)
        whole = finish(experiment).findings["rows"]
        monkeypatch.setattr(analysis, "SLICE_SECONDS", 0.0)
        request_replays(experiment_id=experiment.pk)
        steps = []
        while examine(experiment_id=experiment.pk):
            steps.append(Examination.objects.get(experiment=experiment).replays.get("step", 0))
        assert [step for step in steps if step] == list(range(1, 12))
        assert Examination.objects.get(experiment=experiment).findings["rows"] == whole

    def test_where_a_judgment_is_taken_back_meanwhile_they_begin_anew(self, monkeypatch):
        experiment = judged(6)
        monkeypatch.setattr(analysis, "SLICE_SECONDS", 0.0)
        request_replays(experiment_id=experiment.pk)
        examine(experiment_id=experiment.pk)
        examine(experiment_id=experiment.pk)
        first = counts.standing_judgments(experiment.pk).order_by("pk").first()
        void_judgment(judgment_id=first.pk, by=first.annotator, reason="a slip")
        examine(experiment_id=experiment.pk)
        state = Examination.objects.get(experiment=experiment).replays
        assert (state["step"], state["n_judgments"]) == (1, 11)
        assert finish(experiment).findings["n_judgments"] == 11

    def test_asking_twice_is_asking_once(self):
        experiment = judged(3)
        first = request_replays(experiment_id=experiment.pk).replays_wanted_at
        assert request_replays(experiment_id=experiment.pk).replays_wanted_at == first

    def test_without_any_judgment_there_is_nothing_to_find(self):
        experiment = make_experiment()
        request_replays(experiment_id=experiment.pk)
        assert finish(experiment).findings["rows"] == []


class TestOtherSettings:
    def test_a_forecast_for_another_budget_is_made_again_and_findings_stay(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        findings = finish(experiment).findings
        assert findings["rows"]
        change_settings(experiment_id=experiment.pk, by=None, budget=150)
        assert designs.forecast(experiment) is None
        assert to_examine() == [experiment.pk]
        assert finish(experiment).findings == findings
        assert Examination.objects.get().forecast["horizon"] == 150

    def test_findings_under_another_risk_are_forgotten(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        assert finish(experiment).findings["rows"]
        change_settings(experiment_id=experiment.pk, by=None, delta=0.001)
        assert Examination.objects.get().findings == {}

    def test_so_are_those_with_somebody_whose_judgments_were_all_voided(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        assert finish(experiment).findings["rows"]
        somebody = User.objects.get(username="person0")
        void_annotator(experiment_id=experiment.pk, annotator=somebody, by=somebody, reason="Asleep.")
        examination = Examination.objects.get()
        assert (examination.findings, examination.forecast) == ({}, {})

    def test_a_slice_that_was_under_way_when_they_changed_is_dropped(self, monkeypatch):
        experiment = judged(3)

        def change_meanwhile(*args, **options):
            change_settings(experiment_id=experiment.pk, by=None, delta=0.001)
            return forecast_rest(*args, **options)

        monkeypatch.setattr(analysis, "forecast_rest", change_meanwhile)
        assert examine(experiment_id=experiment.pk), "it is due again"
        assert Examination.objects.get().forecast == {}


class TestClaim:
    def test_what_another_worker_has_in_hand_is_left_to_it(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        Examination.objects.update(claimed_at=timezone.now())
        assert not examine(experiment_id=experiment.pk)
        assert Examination.objects.get(experiment=experiment).findings == {}

    def test_a_worker_that_died_holds_nothing_back(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        Examination.objects.update(claimed_at=timezone.now() - timedelta(minutes=5))
        assert finish(experiment).findings["rows"]

    def test_an_error_gives_the_slice_back(self, monkeypatch):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        monkeypatch.setattr(analysis, "forecast_rest", lambda *args, **options: np.array(1) / "x")
        with pytest.raises(TypeError):
            examine(experiment_id=experiment.pk)
        assert Examination.objects.get(experiment=experiment).claimed_at is None


def test_the_sweep_wakes_it_and_it_comes_back_for_more(monkeypatch, django_capture_on_commit_callbacks):
    experiment = judged(3)
    request_replays(experiment_id=experiment.pk)
    monkeypatch.setattr(analysis, "SLICE_SECONDS", 0.0)
    sent: list[tuple[str, tuple[int, ...]]] = []
    for name in ("examine", "judge", "generate", "advance"):
        task = getattr(tasks, name)
        monkeypatch.setattr(
            task, "apply_async", lambda args=(), name=name, **options: sent.append((name, tuple(args)))
        )
    with django_capture_on_commit_callbacks(execute=True):
        tasks.sweep()
    assert ("examine", (experiment.pk,)) in sent
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        tasks.examine(experiment.pk)
    assert sent == [("examine", (experiment.pk,))]
