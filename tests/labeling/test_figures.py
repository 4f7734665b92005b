"""The figures behind the dashboard's charts and tables, and the cards of the home page."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.core.cache import caches
from django.urls import reverse
from django.utils import timezone

from engine.core import Factorial, Remaining, Unstructured
from engine.domain.policy_space import PolicyName, names_of
from engine.models import Examination, Experiment, Judgment, Response, Snapshot, WorkerPulse
from engine.models.append_only import lifted
from engine.selectors import pairs_ahead, spending
from engine.selectors.agreement import shared_answers
from engine.selectors.annotators import tallies
from engine.selectors.queue_health import queue_health
from engine.selectors.remaining import remaining_of
from engine.selectors.snapshots import race_of, races_of
from engine.services import serving
from engine.services.experiments import pause, stop
from engine.services.planning import advance
from labeling.dashboard import charts
from labeling.dashboard.annotators import Sides, annotator_rows, judge_rows
from labeling.dashboard.cards import cards
from labeling.dashboard.figures import moving_figures
from labeling.dashboard.findings import without_each_annotator
from labeling.dashboard.status import status_of
from labeling.dashboard.warnings import concerns
from labeling.formatting import working_time
from tests.factories import (
    add_member,
    assign,
    click,
    click_on,
    make_experiment,
    make_user,
    pay,
    workers_alive,
    write_responses,
)
from tests.markup import text_of

pytestmark = pytest.mark.django_db


def names(n: int) -> list[PolicyName]:
    return [PolicyName(f"P{k + 1}", (f"Level {k}",), f"Level {k}") for k in range(n)]


class TestRace:
    @pytest.mark.parametrize(("n", "most"), [(5, 200), (200, 200), (950, 200), (950, 40)])
    def test_it_is_thinned_evenly_and_keeps_both_ends(self, n, most):
        experiment, other = make_experiment(planned=False), make_experiment(planned=False)
        Snapshot.objects.bulk_create(
            Snapshot(experiment=owner, comparisons=k, evidence=[0], peak_evidence=[0], threshold=3)
            for owner in (other, experiment)
            for k in range(n)
        )
        drawn = races_of([experiment, other], most)
        for race in (race_of(experiment, most=most), *drawn.values()):
            points = [point.comparisons for point in race]
            assert len(points) == min(n, most)
            assert (points[0], points[-1]) == (0, n - 1)
            assert len(set(np.diff(points))) <= 2


class TestEffects:
    SPACE = Factorial({"Strategy": ["Direct", "Step by step"]})
    NAMES = names_of(SPACE.levels, SPACE.policies)

    def test_the_level_that_is_ahead_is_named_first(self):
        ahead = charts.effect_rows(self.SPACE, np.array([[0.0, 38], [62, 0]]), 0.05, self.NAMES)[0]
        behind = charts.effect_rows(self.SPACE, np.array([[0.0, 62], [38, 0]]), 0.05, self.NAMES)[0]
        assert (ahead["better"], ahead["worse"]) == ("Step by step", "Direct")
        assert (behind["better"], behind["worse"]) == ("Direct", "Step by step")
        assert ahead["bar"] == behind["bar"]
        percent, low, high = ahead["bar"]["percents"]
        assert low < percent < high


class TestRetired:
    """A policy that is away stays in every chart, quiet and last, and takes no share of what is to come."""

    WINS = np.array([[0.0, 20, 20], [10, 0, 15], [10, 15, 0]])

    def test_its_line_is_quiet_and_its_rows_are_last_and_marked(self):
        first, second, third = names(3)
        mixed = [replace(first, present=False), second, third]
        snapshot = Snapshot(comparisons=1, evidence=[0.0, 0.0, 0.0])
        lines = charts.race([snapshot], mixed, 0.05, [1, 2, 0])["lines"]
        assert [line["quiet"] for line in lines] == [True, False, False]
        told = [each["name"].name for each in charts.rivals(self.WINS, mixed, 1)]
        assert told == ["Level 2", "Level 0"]
        shares = charts.allocation(Unstructured(3), self.WINS, mixed)["policies"]
        assert [each["name"] for each in shares] == ["Level 1", "Level 2", "Level 0 (retired)"]
        assert [each["realised"] > 0 for each in shares] == [True] * 3
        assert shares[2]["optimal"] in {None, 0.0}
        among_two = charts.allocation(
            Unstructured(2), self.WINS[1:, 1:] + np.array([[0, 5], [0, 0]]), names(2)
        )
        wins = self.WINS + np.array([[0, 0, 0], [0, 0, 5], [0, 0, 0]])
        assert [each["optimal"] for each in charts.allocation(Unstructured(3), wins, mixed)["policies"]] == [
            *(each["optimal"] for each in among_two["policies"]), 0.0
        ]  # fmt: skip

    def test_an_effect_of_a_level_that_is_away_is_last(self):
        space = Factorial({"a": ["0", "1", "2"], "b": ["x", "y"]})
        told = names_of(space.levels, space.policies)
        mixed = [replace(name, present=name.levels[0] != "1") for name in told]
        wins = np.full((6, 6), 10.0) - 10 * np.eye(6)
        rows = charts.effect_rows(space, wins, 0.05, mixed)
        assert [row["retired"] for row in rows] == [[], [], ["1"]]


class TestConcerns:
    def look(self, wins: np.ndarray, ties: np.ndarray | None = None, **settings: Any):
        experiment = Experiment(**settings)
        factorial = Factorial({"a": ["0", "1"], "b": ["0", "1"]})
        return concerns(
            experiment,
            factorial,
            wins,
            np.zeros((4, 4)) if ties is None else ties,
            names=names(4),
            snapshot=None,
        )

    def test_data_that_fit_give_no_warning(self):
        wins = np.full((4, 4), 10.0) - 10 * np.eye(4)
        assert self.look(wins)["warnings"] == []

    @pytest.mark.parametrize("space", ["unstructured", "factorial"])
    def test_levels_that_do_not_add_up_are_told_by_what_rests_on_it(self, space):
        # Policies 0 and 3 are strong, 1 and 2 weak: no sum of levels does that.
        wins = np.zeros((4, 4))
        for i, j, w in ((0, 1, 45), (0, 2, 45), (0, 3, 25), (3, 1, 45), (3, 2, 45), (1, 2, 25)):
            wins[i, j], wins[j, i] = w, 50 - w
        found = self.look(wins, space=space)
        assert len(found["warnings"]) == 1
        assert "The effects of the levels do not add up" in found["warnings"][0]
        assert ("its risk depends on it" in found["warnings"][0]) == (space == "factorial")

    def test_a_cycle_is_told_with_its_policies(self):
        wins = np.zeros((4, 4))
        for i, j in ((0, 1), (1, 2), (2, 0)):
            wins[i, j], wins[j, i] = 40, 15
        warning = self.look(wins)["warnings"][0]
        assert "Level 0 beats Level 1, Level 1 beats Level 2, and Level 2 beats Level 0" in warning

    def test_flips_name_no_other_leader_than_the_ranking(self):
        """The page named the policy with the weakest evidence against it as if it led."""
        wins = np.array([[0.0, 40, 40, 40], [20, 0, 1, 1], [20, 1, 0, 1], [20, 1, 1, 0]])
        experiment = make_experiment(n_policies=4, planned=False)
        best = experiment.policies.get(index=2)
        snapshot = Snapshot(experiment=experiment, best=best, evidence=[0] * 4, peak_evidence=[0] * 4)
        snapshot.threshold = 3
        found = concerns(experiment, None, wins, np.zeros((4, 4)), names=names(4), snapshot=snapshot)
        assert found["flips"] == (
            "Level 2 leads in the ranking, but the evidence against Level 0 is weaker. A few judgments may "
            "change the result."
        )


class TestJudges:
    def test_counts_sides_and_medians_by_annotator_and_by_kind(self):
        people = tuple(make_user(name) for name in ("anna", "bert"))
        experiment = make_experiment(ready=True, annotators=people, allow_tie=True)
        unseen = click(experiment, people[1], "tie")
        with lifted():
            Judgment.objects.filter(pk=unseen.pk).update(shown_at=None)
        for user, seconds, choices in (
            (people[0], (1, 9, 3), ("left", "left", "tie")),
            (people[1], (2, 4), ("right", "left")),
        ):
            advance(experiment_id=experiment.pk)
            write_responses()
            for taken, choice in zip(seconds, choices, strict=True):
                made = click(experiment, user, choice)
                with lifted():
                    judged_at = made.created_at + timedelta(minutes=made.pk)
                    Judgment.objects.filter(pk=made.pk).update(
                        shown_at=judged_at - timedelta(seconds=taken), created_at=judged_at
                    )
        rows = annotator_rows(experiment, tallies(experiment), shared_answers(experiment))
        assert [(r.name, r.judged, r.sides, r.median_seconds) for r in rows] == [
            ("anna", 3, Sides(2, 2), 3.0),
            ("bert", 3, Sides(1, 2), 3.0),
        ]
        (kind,) = judge_rows(tallies(experiment))
        assert kind == {"name": "People", "judged": 6, "median_seconds": 3.0, "sides": Sides(3, 4)}

    def test_who_left_too_many_is_listed(self, annotator, client_for):
        """An annotator who skips all but the pairs they like is visible."""
        other = make_user()
        experiment = make_experiment(ready=True, n_tasks=20, annotators=(annotator, other, make_user()))
        add_member(experiment, other, "viewer")
        click(experiment, annotator)
        for _ in range(5):
            advance(experiment_id=experiment.pk)
            write_responses()
            held = assign(experiment, annotator)
            serving.skip(experiment=experiment, token=held.token, annotator=annotator, reason="task")
        [row] = annotator_rows(experiment, tallies(experiment), shared_answers(experiment))
        assert (row.skips, row.judged) == (5, 1)
        page = client_for(other).get(reverse("quality", args=[experiment.pk]))
        assert f'data-ended="{annotator}"' in page.content.decode()

    @pytest.mark.parametrize(
        ("judge", "via", "name"),
        [("rule", "identical", "Rule (no person)"), ("llm", "model", "Language model")],
        ids=["rule", "llm"],
    )
    def test_several_kinds_are_added_up(self, judge, via, name):
        person = make_user()
        experiment = make_experiment(ready=True, annotators=(person,))
        first = click(experiment, person)
        click(experiment, person, "right")
        with lifted():
            Judgment.objects.filter(pk=first.pk).update(judge=judge, via=via, annotator=None, shown_at=None)
        rows = judge_rows(tallies(experiment))
        assert [(r["name"], r["judged"], r["sides"]) for r in rows] == [
            ("People", 1, Sides(0, 1)),
            (name, 1, Sides(1, 1)),
            ("All", 2, Sides(1, 2)),
        ]

    @pytest.mark.parametrize(
        ("left", "sided", "biased"), [(0, 0, False), (9, 10, False), (18, 18, True), (50, 100, False)]
    )
    def test_a_side_bias_is_called_one_when_it_is_hard_to_explain(self, left, sided, biased):
        assert Sides(left, sided).biased == biased


def test_spending_is_told_by_policy_with_its_price():
    experiment = make_experiment(ready=True)
    done = Response.objects.filter(state="done")
    done.update(prompt_tokens=10, completion_tokens=100, latency_seconds=1.5, finish_reason="stop")
    cut = done.filter(policy__index=1).first()
    Response.objects.filter(pk=cut.pk).update(finish_reason="length")
    # One that was not written in the end was not cut off.
    Response.objects.filter(state="waiting").update(finish_reason="length")
    pay(done, 210e-6)
    rows = spending.policy_spending(experiment)
    assert [(row.index, row.cut) for row in rows] == [(0, 0), (1, 1), (2, 0)]
    for row in rows:
        n = Response.objects.filter(policy__experiment=experiment, policy__index=row.index).count()
        tokens = (row.prompt_tokens, row.completion_tokens, row.tokens_each)
        assert (row.responses, row.failed) == (n, 0)
        assert tokens == (10 * n, 100 * n, 100 if n else None)
        assert row.cost == ({"USD": pytest.approx(n * 210e-6)} if n else {})


def test_responses_that_the_conclusion_dropped_have_not_failed():
    experiment = make_experiment()
    tried = Response.objects.first()
    Response.objects.filter(pk=tried.pk).update(attempts=1)
    stop(experiment_id=experiment.pk)
    assert set(Response.objects.values_list("state", flat=True)) == {"failed"}
    assert Response.objects.count() > 1
    assert queue_health(experiment).responses["failed"] == 1
    assert sum(row.failed for row in spending.policy_spending(experiment)) == 1


class TestWhatIsLeft:
    @pytest.fixture
    def experiment(self, annotator) -> Experiment:
        workers_alive()
        experiment = make_experiment(ready=True, annotators=(annotator,), overlap=2, budget=1000)
        click_on(experiment, annotator, 2)
        experiment.snapshots.update(comparisons=2, remaining={"low": 180.0, "likely": 360.0, "high": 720.0})
        return experiment

    def test_hours_follow_from_comparisons_overlap_and_the_time_of_a_click(self, experiment, monkeypatch):
        monkeypatch.setattr(pairs_ahead, "click_seconds", lambda experiment, reading: 5.0)
        figures = moving_figures(experiment)
        assert figures["remaining"] == Remaining(180.0, 360.0, 720.0)
        assert figures["hours"] == Remaining(0.5, 1.0, 2.0)
        assert working_time(figures["hours"]) == "1.0 h (0.5 to 2.0)"

    def test_before_enough_is_known_there_is_none(self, experiment):
        experiment.snapshots.update(remaining=None)
        assert remaining_of(experiment) is None
        assert moving_figures(experiment)["hours"] is None

    def test_ends_that_the_budget_leaves_no_room_for_are_open(self, experiment):
        experiment.snapshots.update(comparisons=400)
        assert remaining_of(experiment) == Remaining(180.0, 360.0, None)
        experiment.snapshots.update(comparisons=900)
        assert remaining_of(experiment) == Remaining(100.0, None, None)
        assert "The budget of 1,000 may not be enough" in status_of(experiment).sentence

    def test_a_pause_takes_no_doubt_away(self, experiment, admin, client_for):
        """The page then promised a number of comparisons that the forecast had refused."""
        experiment.snapshots.update(comparisons=900)
        pause(experiment_id=experiment.pk)
        html = client_for(admin).get(reverse("dashboard", args=[experiment.pk])).content.decode()
        assert "The budget of 1,000 may not be enough" in html
        assert "Raise the budget" in html
        assert "About 360 more" not in html

    def test_the_next_step_is_to_mend_the_cause(self, experiment, client_for):
        """More budget brings no worker back and makes no texts."""
        experiment.snapshots.update(comparisons=900)
        page = client_for(make_user(is_superuser=True))

        def next_step() -> str:
            caches["default"].clear()
            html = page.get(reverse("dashboard_live", args=[experiment.pk])).content.decode()
            [actions] = re.findall(r'<div class="actions next">(.*?)</div>', html, re.DOTALL)
            return text_of(actions)

        assert "Raise the budget" in next_step()
        Experiment.objects.update(used_up=True)
        assert "Invite another person" in next_step()
        WorkerPulse.objects.filter(queue="generation").update(seen_at=timezone.now() - timedelta(hours=1))
        assert "See the workers" in next_step()
        assert "Raise the budget" not in next_step()


class TestCards:
    def test_a_running_experiment_says_how_its_queue_does(self):
        experiment = make_experiment()
        assert cards([experiment])[0]["pulse"].endswith("to be written; no generation worker")
        WorkerPulse.objects.create(queue="generation", worker="w")
        write_responses()
        planned = experiment.comparisons.count()
        assert cards([experiment])[0]["pulse"] == f"{planned} ready, 0 to be written; 1 generation worker"

    def test_the_home_page_draws_it_without_inline_style(self, annotator, admin, client_for):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 3)
        html = client_for(admin).get(reverse("home")).content.decode()
        assert "<polyline points=" in html
        assert "Open rivals went from 2" in html
        assert "style=" not in html


class TestWithout:
    def test_asking_for_it_is_one_click_of_anybody_who_watches(self, experiment, viewer, client_for, sent):
        client = client_for(viewer)
        url = reverse("without", args=[experiment.pk])
        assert ">Compute<" in client.get(url).content.decode()
        assert client.post(url)["Location"] == reverse("quality", args=[experiment.pk]) + "#without"
        html = client.get(url).content.decode()
        assert "Computing: 0%." in html
        assert "hx-get" in html
        assert "<button" not in html

    def test_a_finding_that_differs_is_marked(self, experiment):
        Snapshot.objects.create(
            experiment=experiment, comparisons=1, evidence=[0] * 3, peak_evidence=[0] * 3, threshold=3,
            best=experiment.policies.get(index=1),
        )  # fmt: skip
        row = {"judgments": 4, "comparisons": 6, "reason": "", "text": "A claim about P3."}
        none = {"best": None, "reason": "no_single_best", "text": "No policy is best."}
        rows = [
            row | {"annotator": "a", "best": 1},
            row | {"annotator": "b", "best": 2, "reason": "certified"},
            row | {"annotator": "c"} | none,
            row | {"annotator": "d", "best": None},
        ]
        as_asked = row | {"comparisons": 5, "judged": 6, "best": 2}
        findings = {"n_judgments": 0, "at": timezone.now().isoformat(), "rows": rows, "as_asked": as_asked}
        Examination.objects.create(experiment=experiment, findings=findings)
        found = without_each_annotator(experiment)
        assert [(r["finding"], r["differs"]) for r in found["rows"]] == [
            ("Leading: Prompt 1. Not decided.", False),
            ("A claim about P3.", True),
            ("No policy is best.", True),
            ("No judgments would remain.", True),
        ]
        assert (found["percent_done"], found["n_differing"]) == (None, 3)
