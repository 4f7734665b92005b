"""The planner: what it plans, when it stops, and what it writes down."""

from collections import Counter
from datetime import timedelta

import numpy as np
import pytest
from django.utils import timezone

from engine.core import Design, Unstructured
from engine.generation.base import GenerationFailure
from engine.models import Comparison, Experiment, Response
from engine.selectors import counts, designs, pairs_ahead
from engine.selectors.snapshots import latest_snapshot
from engine.services import evidence
from engine.services.experiments import pause, start, stop
from engine.services.judging import record_answer
from engine.services.planning import advance
from labeling.dashboard.status import status_of
from tests.backends import ScriptedBackend
from tests.factories import (
    assign,
    click,
    click_for,
    click_on,
    make_experiment,
    skip,
    write_responses,
)

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def buffered(experiment: Experiment) -> int:
    return experiment.comparisons.filter(state__in=["planned", "ready"]).count()


class TestBuffer:
    def test_it_is_filled_up_to_its_target_and_then_left_alone(self, settings):
        settings.BUFFER_MIN = 6
        experiment = make_experiment(planned=False)
        assert advance(experiment_id=experiment.pk).planned == 6
        assert advance(experiment_id=experiment.pk).planned == 0
        assert buffered(experiment) == 6

    def test_every_click_is_replaced(self, settings, annotator):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 5
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click(experiment, annotator)
        assert advance(experiment_id=experiment.pk).planned == 1
        assert buffered(experiment) == 5

    def test_the_budget_counts_judged_and_pending_comparisons(self, settings, annotator):
        settings.BUFFER_MIN = 4
        experiment = make_experiment(ready=True, annotators=(annotator,), budget=6)
        click_on(experiment, annotator, 2)
        assert buffered(experiment) == 4
        click_on(experiment, annotator, 3)
        assert Counter(experiment.comparisons.values_list("state", flat=True)) == {"judged": 5, "ready": 1}

    def test_what_was_discarded_is_planned_anew_within_the_budget(self, settings, annotator):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 4
        experiment = make_experiment(ready=True, annotators=(annotator,), budget=4)
        skip(experiment_id=experiment.pk, token=assign(experiment, annotator).token, annotator=annotator)
        assert experiment.comparisons.get(state="discarded").skips == 1
        assert advance(experiment_id=experiment.pk).planned == 1

    @pytest.mark.parametrize("change", [pause, stop])
    def test_nothing_is_planned_unless_the_experiment_runs(self, change):
        experiment = make_experiment(planned=False)
        change(experiment_id=experiment.pk)
        assert advance(experiment_id=experiment.pk) is None
        assert not experiment.comparisons.exists()
        assert not experiment.snapshots.exists()

    def test_a_draft_plans_nothing(self):
        experiment = make_experiment(running=False)
        assert advance(experiment_id=experiment.pk) is None

    def test_after_a_pause_it_goes_on(self):
        experiment = make_experiment(planned=False)
        pause(experiment_id=experiment.pk)
        start(experiment_id=experiment.pk)
        assert advance(experiment_id=experiment.pk).planned > 0


class TestBrokenGeneration:
    @pytest.fixture
    def failing(self) -> Experiment:
        """An experiment whose last twenty responses all failed."""
        experiment = make_experiment()
        backend = ScriptedBackend(lambda request: GenerationFailure(request.key, "no"))
        while not pairs_ahead.generation_is_failing(experiment):
            write_responses(backend)
            advance(experiment_id=experiment.pk)
        write_responses(backend)
        return experiment

    def test_when_everything_fails_nothing_more_is_planned_for_a_while(self, failing):
        n = failing.comparisons.count()
        assert n < 30
        for _ in range(3):
            assert advance(experiment_id=failing.pk).planned == 0
        assert failing.comparisons.count() == n

    def test_then_one_comparison_at_a_time_finds_out_whether_it_works_again(self, failing):
        long_ago = timezone.now() - timedelta(minutes=5)
        failing.comparisons.update(created_at=long_ago)
        assert advance(experiment_id=failing.pk).planned == 1
        assert advance(experiment_id=failing.pk).planned == 0

        write_responses()
        assert advance(experiment_id=failing.pk).planned > 1


class TestWhatIsPlanned:
    def test_both_responses_are_fresh_and_answer_the_same_task_for_their_policies(self):
        experiment = make_experiment()
        comparisons = list(experiment.comparisons.select_related("response_i", "response_j"))
        for comparison in comparisons:
            i, j = comparison.response_i, comparison.response_j
            assert (i.policy_id, j.policy_id) == (comparison.policy_i_id, comparison.policy_j_id)
            assert comparison.policy_i.index < comparison.policy_j.index
            assert i.task_id == j.task_id == comparison.task_id
            assert (i.state, j.state) == ("waiting", "waiting")
        assert Response.objects.count() == 2 * len(comparisons)

    def test_sides_are_fair_and_tasks_are_drawn_evenly_with_replacement(self, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = n = 400
        experiment = make_experiment(n_tasks=4)
        on_left = experiment.comparisons.filter(i_on_left=True).count()
        assert abs(on_left - n / 2) < 4 * np.sqrt(n / 4)
        drawn = Counter(experiment.comparisons.values_list("task__position", flat=True))
        assert sorted(drawn) == [0, 1, 2, 3]
        assert all(abs(k - n / 4) < 4 * np.sqrt(n * 3 / 16) for k in drawn.values())

    def test_no_two_responses_share_a_seed(self):
        make_experiment()
        seeds = list(Response.objects.values_list("seed", flat=True))
        assert len(set(seeds)) == len(seeds)

    def test_the_same_seed_picks_the_same_pairs_and_another_one_does_not(self):
        def picked(seed: int) -> list[tuple[int, int]]:
            rows = make_experiment(n_policies=5, seed=seed).comparisons.order_by("pk")
            return list(rows.values_list("policy_i__index", "policy_j__index"))

        assert picked(1) == picked(1)
        assert picked(1) != picked(2)

    @pytest.mark.parametrize("field", ["i_on_left", "task__position", "response_i__seed"])
    def test_what_an_annotator_sees_of_a_pair_follows_from_the_secret_alone(self, field):
        """From the seed, which anybody may know, they could be computed."""

        def drawn(secret: str, seed: int) -> list[object]:
            experiment = make_experiment(n_policies=5, n_tasks=20, secret=secret, seed=seed)
            return list(experiment.comparisons.order_by("pk").values_list(field, flat=True))

        one, other = "1b" * 32, "2c" * 32
        assert drawn(one, seed=1) == drawn(one, seed=2)
        assert drawn(one, seed=1) != drawn(other, seed=1)

    @pytest.mark.parametrize("sampler", ["balanced", "round_robin"])
    def test_every_pick_is_replayed_from_the_counts_of_its_time_and_its_record(self, annotator, sampler):
        experiment = make_experiment(
            n_policies=4, planned=False, annotators=(annotator,), seed=7, sampler=sampler, delta=0.1
        )
        picks = 0
        for k in range(12):
            wins = counts.wins_matrix(experiment)
            in_flight = counts.in_flight_matrix(experiment)
            progress = designs.replay(experiment).design.progress
            first = experiment.comparisons.count()
            advance(experiment_id=experiment.pk)
            made = list(experiment.comparisons.order_by("pk")[first:])
            design = None
            for draw, comparison in enumerate(made):
                plan = comparison.plan
                assert (plan["number"], plan["draw"]) == (first + draw, draw)
                assert (plan["comparisons"], plan["in_flight"]) == (k, in_flight.sum() // 2)
                if design is None:
                    design = Design.from_counts(
                        Unstructured(4),
                        wins,
                        in_flight=in_flight,
                        progress=progress,
                        delta=plan["delta"],
                        epsilon=plan["epsilon"],
                        sampler=plan["sampler"],
                        stopping=plan["stopping"],
                        claim=plan["claim"],
                        seed=plan["seed"],
                        budget=experiment.budget,
                    )
                pick = (comparison.policy_i.index, comparison.policy_j.index)
                assert tuple(sorted(design.ask())) == pick
                picks += 1
            experiment.refresh_from_db()
            write_responses()
            click_for(experiment, annotator, lambda i, j: i < j)
        assert picks >= 12


class TestConclusion:
    def run(self, annotator, beats, **settings) -> Experiment:
        experiment = make_experiment(ready=True, annotators=(annotator,), delta=0.2, **settings)
        while True:
            click_for(experiment, annotator, beats)
            done = advance(experiment_id=experiment.pk)
            write_responses()
            if done.concluded:
                experiment.refresh_from_db()
                return experiment

    def test_a_policy_that_beats_all_others_is_certified(self, annotator):
        experiment = self.run(annotator, lambda i, j: i == 1 or (j != 1 and i < j))
        assert (experiment.state, experiment.conclusion) == ("concluded", "certified")
        assert experiment.winner.index == 1
        snapshot = latest_snapshot(experiment)
        assert snapshot.reason == "certified"
        assert snapshot.best == experiment.winner
        assert snapshot.open_rivals == 0
        assert snapshot.comparisons == counts.comparison_count(experiment.pk)

    def test_a_cycle_has_no_single_best_policy(self, annotator):
        experiment = self.run(annotator, lambda i, j: (j - i) % 3 == 1)
        assert (experiment.conclusion, experiment.winner) == ("no_single_best", None)
        assert latest_snapshot(experiment).best is None

    def test_when_the_budget_is_spent_the_leader_is_not_called_a_winner(self, annotator):
        experiment = self.run(annotator, lambda i, j: i < j, budget=5)
        assert (experiment.conclusion, experiment.winner) == ("budget", None)
        assert counts.comparison_count(experiment.pk) == 5
        assert latest_snapshot(experiment).best is not None

    def test_a_concluded_experiment_does_not_move_any_more(self, annotator):
        experiment = self.run(annotator, lambda i, j: i < j, budget=3)
        snapshots = experiment.snapshots.count()
        assert advance(experiment_id=experiment.pk) is None
        assert experiment.snapshots.count() == snapshots
        assert not experiment.comparisons.filter(state__in=Comparison.PENDING).exists()

    def test_a_click_after_the_stop_is_no_part_of_the_comparisons_that_it_is_told_with(
        self, annotator, settings
    ):
        """The log said "after 59 comparisons" beside "58" on every page."""
        settings.BUFFER_MIN = 30
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), delta=0.3)
        write_responses()
        for _ in range(20):
            click_for(experiment, annotator, lambda i, j: i > j)
        advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        n = latest_snapshot(experiment).comparisons
        assert n < counts.comparison_count(experiment.pk) == 20
        told = experiment.audit_entries.get(action="conclude").sentence
        assert told.startswith(f"Concluded after {n} comparisons: ")
        assert f"{20 - n} more came later" in status_of(experiment).sentence


class TestSnapshots:
    def test_there_is_one_for_every_number_of_comparisons_that_was_seen(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        for _ in range(3):
            click(experiment, annotator)
            advance(experiment_id=experiment.pk)
            advance(experiment_id=experiment.pk)
        assert list(experiment.snapshots.order_by("pk").values_list("comparisons", flat=True)) == [0, 1, 2, 3]

    def test_it_holds_what_the_design_says(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 6)
        experiment.refresh_from_db()
        design = designs.load(experiment).design
        snapshot = latest_snapshot(experiment)
        assert snapshot.evidence == design.evidence.tolist()
        assert snapshot.peak_evidence == design.peak_evidence.tolist()
        assert snapshot.open_rivals == len(design.decision.open)
        assert snapshot.threshold == design.decision.threshold
        assert snapshot.best.index == design.decision.best

    def test_a_peak_of_the_evidence_is_kept_when_the_evidence_falls_back(self, annotator):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,))
        for winner in [0] * 5 + [1] * 5:
            click_for(experiment, annotator, lambda i, j, winner=winner: i == winner)
            advance(experiment_id=experiment.pk)
            write_responses()
        evidence, peaks = zip(
            *experiment.snapshots.order_by("pk").values_list("evidence", "peak_evidence"), strict=True
        )
        assert np.argmax([row[1] for row in evidence]) == 5
        assert peaks[-1][1] == evidence[5][1] > evidence[-1][1]
        assert np.all(np.diff(np.array(peaks), axis=0) >= 0)

    def test_a_peak_that_lay_between_two_looks_is_observed_too(self, annotator):
        """Three clicks and one look give the peaks of three looks: when the planner runs changes nothing."""
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,))
        for winner in (0, 0, 1):
            click_for(experiment, annotator, lambda i, j, winner=winner: i == winner)
        advance(experiment_id=experiment.pk)
        snapshot = latest_snapshot(experiment)
        assert snapshot.comparisons == 3
        assert snapshot.peak_evidence[1] > max(snapshot.evidence[1], 0)
        assert snapshot.peak_evidence == designs.replay(experiment).design.peak_evidence.tolist()


class TestSeveralCallers:
    def test_a_click_that_comes_while_it_plans_is_seen_before_it_leaves(self, annotator, monkeypatch):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click(experiment, annotator)
        late = assign(experiment, annotator)
        write_snapshot = evidence.write_snapshot

        def click_meanwhile(**arguments):
            record_answer(experiment_id=experiment.pk, token=late.token, annotator=annotator, choice="left")
            return write_snapshot(**arguments)

        monkeypatch.setattr(evidence, "write_snapshot", click_meanwhile)
        assert advance(experiment_id=experiment.pk).comparisons == 2
        seen = list(experiment.snapshots.order_by("pk").values_list("comparisons", flat=True))
        assert seen == [0, 1, 2]

    def test_an_experiment_that_does_not_exist_is_nothing_to_do(self):
        assert advance(experiment_id=12345) is None
