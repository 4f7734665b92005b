"""The read side: counts, buffer, health, the evidence race."""

from datetime import timedelta

import numpy as np
import pytest
from django.db.models import F
from django.utils import timezone

from engine.core import Remaining
from engine.models import (
    Allowance,
    Assignment,
    Comparison,
    Experiment,
    Judgment,
    Membership,
    Response,
    WorkerPulse,
)
from engine.models.append_only import lifted
from engine.selectors import answers, counts, designs, pairs_ahead, people
from engine.selectors.queue_health import queue_health
from engine.services import undos_and_skips
from engine.services.experiments import pause, stop
from engine.services.generation import claim_responses
from engine.services.judging import record_answer, void_judgment
from engine.services.planning import advance
from tests.factories import (
    add_member,
    assign,
    click,
    click_on,
    make_experiment,
    make_user,
    write_responses,
)

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def test_a_policy_is_found_by_its_number():
    experiment = make_experiment()
    policy = experiment.policies.composable().at(1)
    assert [level.factor.name for level in policy.levels.all()] == ["System prompt"]
    assert experiment.policies.at(9) is None


class TestCounts:
    def test_wins_and_counts_are_those_of_the_judgments(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 6)
        wins = np.zeros((3, 3))
        for judgment in Judgment.objects.select_related("comparison__policy_i", "comparison__policy_j"):
            i, j = judgment.comparison.policy_i.index, judgment.comparison.policy_j.index
            wins[i, j] += judgment.outcome
            wins[j, i] += 1 - judgment.outcome
        assert np.array_equal(counts.wins_matrix(experiment), wins)
        assert wins.sum() == 6 == counts.comparison_count(experiment.pk)
        recounted = counts.counts_from_judgments(experiment)
        assert recounted == {
            pair: count for pair, count in counts.pair_counts(experiment).items() if count[1]
        }

    def test_ties_are_those_of_the_judged_comparisons(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), allow_tie=True, n_policies=2)
        for choice in ("left", "tie", "tie", "right"):
            click(experiment, annotator, choice)
        wins, ties = counts.wins_and_ties(experiment)
        assert ties.tolist() == [[0.0, 2.0], [2.0, 0.0]]
        assert np.array_equal(wins, counts.wins_matrix(experiment))

    def test_an_experiment_counts_only_its_own(self, annotator):
        experiment, other = (make_experiment(ready=True, annotators=(annotator,)) for _ in range(2))
        click(experiment, annotator)
        assert counts.comparison_count(other.pk) == 0
        assert not counts.wins_matrix(other).any()

    def test_in_flight_is_everything_whose_outcome_is_still_to_come(self, annotator, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 5
        experiment = make_experiment(annotators=(annotator,))
        assert counts.in_flight_matrix(experiment).sum() == 2 * 5  # planned
        write_responses()
        assert counts.in_flight_matrix(experiment).sum() == 2 * 5  # ready
        held = assign(experiment, annotator)
        matrix = counts.in_flight_matrix(experiment)  # one of them assigned
        assert np.array_equal(matrix, matrix.T)
        assert matrix.sum() == 2 * 5
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        assert counts.in_flight_matrix(experiment).sum() == 2 * 4
        stop(experiment_id=experiment.pk)
        assert not counts.in_flight_matrix(experiment).any()


class TestDesign:
    def test_it_starts_from_the_stored_counts_and_settings(self, annotator):
        experiment = make_experiment(
            ready=True, annotators=(annotator,), delta=0.2, epsilon=0.05, budget=50, seed=9
        )
        click_on(experiment, annotator, 4)
        experiment.refresh_from_db()
        design = designs.load(experiment).design
        assert (design.delta, design.epsilon, design.budget) == (0.2, 0.05, 50)
        assert np.array_equal(design.wins, counts.wins_matrix(experiment))
        assert design.n_comparisons == 4
        assert designs.design_seed(experiment) == [9, experiment.planned_count]


class TestBufferTarget:
    @pytest.fixture
    def experiment(self, settings, annotator):
        settings.BUFFER_MIN, settings.BUFFER_MAX = 4, 20
        return make_experiment(ready=True, annotators=(annotator,))

    def clicked(self, experiment, n_annotators: int, seconds: float, ago: float = 0.0) -> None:
        """Note one click of each of so many annotators, who took so long, so long ago."""
        then = timezone.now() - timedelta(seconds=ago)
        comparison = experiment.comparisons.first()
        Comparison.objects.filter(pk=comparison.pk).update(judged_at=then)
        for _ in range(n_annotators):
            annotator = make_user()
            undos_and_skips.locked(experiment_id=experiment.pk, annotator=annotator)
            judged = Assignment.objects.create(
                experiment=experiment,
                comparison=comparison,
                annotator=annotator,
                state=Assignment.State.JUDGED,
                granted_at=then - timedelta(seconds=seconds),
                expires_at=then,
            )
            Judgment.objects.create(
                comparison=comparison,
                judge=Judgment.Judge.HUMAN,
                via=Judgment.Via.PAGE,
                annotator=judged.annotator,
                token=judged.token,
                choice=Judgment.Choice.LEFT,
                outcome=1.0,
                shown_at=judged.granted_at,
                created_at=then,
            )

    def generation_took(self, experiment, seconds: float, queued: float = 0.0) -> None:
        now = timezone.now()
        taken = now - timedelta(seconds=seconds)
        experiment.comparisons.update(created_at=taken - timedelta(seconds=queued), ready_at=now)
        Response.objects.filter(policy__experiment=experiment).update(taken_at=taken)

    def test_when_nobody_clicks_it_is_the_least(self, experiment):
        assert pairs_ahead.buffer_target(experiment) == 4

    def test_there_is_one_more_for_everybody_who_is_looking(self, experiment, annotator):
        assign(experiment, annotator)
        other = make_user()
        add_member(experiment, other)
        assign(experiment, other)
        assert pairs_ahead.buffer_target(experiment) == 6

    def test_there_is_one_more_for_everybody_who_asked_in_vain(self, experiment, annotator):
        assign(experiment, annotator)
        others = [make_user() for _ in range(3)]
        for person in [annotator, *others]:
            undos_and_skips.locked(experiment_id=experiment.pk, annotator=person)
            assert undos_and_skips.note_waiting(experiment_id=experiment.pk, annotator=person)
        # Noted just now, so that it is no news.
        assert not undos_and_skips.note_waiting(experiment_id=experiment.pk, annotator=annotator)
        assert len(pairs_ahead.annotators_present(experiment)) == 4
        assert pairs_ahead.buffer_target(experiment) == 4 + 4
        Allowance.objects.update(waited_at=timezone.now() - timedelta(seconds=61))
        assert len(pairs_ahead.annotators_present(experiment)) == 1
        assert undos_and_skips.note_waiting(experiment_id=experiment.pk, annotator=annotator)

    def test_it_follows_the_click_rate_and_the_generation_time(self, experiment):
        self.clicked(experiment, n_annotators=2, seconds=4.0)
        self.generation_took(experiment, 5.0)
        assert pairs_ahead.click_rate(experiment, present=2) == pytest.approx(0.5)
        assert pairs_ahead.generation_seconds(experiment) == pytest.approx(5.0)
        assert pairs_ahead.buffer_target(experiment) == 4 + 5  # 0.5 per second · 5 s · safety factor 2

    def test_a_pair_that_waited_behind_another_takes_its_own_time_alone(self, experiment, annotator):
        """Else somebody whose page holds the next pair would seem half as fast as they are."""
        now = timezone.now()
        # Shown and answered, so many seconds ago: the second with the first, the third after the second.
        times = [(20, 16), (20, 11), (8, 6)]
        for comparison, (shown, answered) in zip(experiment.comparisons.order_by("pk"), times, strict=False):
            Comparison.objects.filter(pk=comparison.pk).update(judged_at=now - timedelta(seconds=answered))
            Judgment.objects.create(
                comparison=comparison,
                judge=Judgment.Judge.HUMAN,
                annotator=annotator,
                choice=Judgment.Choice.LEFT,
                outcome=1.0,
                shown_at=now - timedelta(seconds=shown),
                created_at=now - timedelta(seconds=answered),
            )
        assert pairs_ahead.click_seconds(experiment) == pytest.approx((4 + 5 + 2) / 3)

    def test_time_in_the_queue_asks_for_no_longer_queue(self, experiment):
        self.clicked(experiment, n_annotators=2, seconds=4.0)
        self.generation_took(experiment, 5.0, queued=60.0)
        assert pairs_ahead.generation_seconds(experiment) == pytest.approx(65.0)
        assert pairs_ahead.buffer_target(experiment) == 4 + 5

    @pytest.mark.parametrize(("seconds", "ahead"), [(4.0, 2), (0.5, 8), (0.01, 8)])
    def test_responses_that_were_there_before_take_a_second_to_plan(self, experiment, seconds, ahead):
        self.clicked(experiment, n_annotators=2, seconds=seconds)
        self.generation_took(experiment, 60.0)
        experiment.comparisons.update(created_at=F("ready_at"))
        assert pairs_ahead.buffer_target(experiment) == 4 + ahead

    def test_more_is_planned_where_rounds_are_far_apart(self, experiment):
        self.clicked(experiment, n_annotators=2, seconds=1.0)
        experiment.comparisons.update(created_at=F("ready_at"))
        experiment.round_seconds = 0.5
        assert pairs_ahead.buffer_target(experiment) == 4 + 4
        experiment.round_seconds = 2.5
        assert pairs_ahead.buffer_target(experiment) == 4 + 10

    def test_a_long_queue_asks_for_less_where_responses_are_still_to_be_written(self, experiment, settings):
        settings.GENERATION_BATCH_MAX = 1
        self.clicked(experiment, n_annotators=2, seconds=4.0)
        Response.objects.update(state=Response.State.WAITING)
        assert pairs_ahead.buffer_target(experiment) == 4
        experiment.responses = Experiment.Responses.IMPORTED
        assert pairs_ahead.buffer_target(experiment) == 4 + 2

    def test_it_never_exceeds_the_most(self, experiment):
        self.clicked(experiment, n_annotators=10, seconds=1.0)
        self.generation_took(experiment, 3600.0)
        assert pairs_ahead.buffer_target(experiment) == 20

    def test_who_was_here_more_than_a_minute_ago_does_not_count(self, experiment):
        self.clicked(experiment, n_annotators=5, seconds=1.0, ago=61.0)
        self.generation_took(experiment, 5.0)
        assert len(pairs_ahead.annotators_present(experiment)) == 0
        assert pairs_ahead.buffer_target(experiment) == 4

    def test_near_the_decision_it_is_what_is_still_needed(self, experiment, monkeypatch):
        self.clicked(experiment, n_annotators=10, seconds=10.0)
        self.generation_took(experiment, 5.0)
        targets = []
        for left in (None, 1000.0, 8.2, 2.0):
            remaining = left and Remaining(1.0, left, None)
            monkeypatch.setattr(pairs_ahead, "remaining_of", lambda *_, remaining=remaining: remaining)
            targets.append(pairs_ahead.buffer_target(experiment))
        # 1 per second · 5 s · safety factor 2; then what is left; then the same with a factor of 1.7.
        assert targets == [4 + 10, 4 + 10, 4 + 9, 4 + 9]

    def test_while_the_queue_is_long_it_is_the_least(self, experiment, settings):
        self.clicked(experiment, n_annotators=10, seconds=10.0)
        self.generation_took(experiment, 5.0)
        make_experiment(n_policies=4)
        settings.GENERATION_BATCH_MAX = Response.objects.filter(state="waiting").count() // 2
        assert pairs_ahead.buffer_target(experiment) == 4
        settings.GENERATION_BATCH_MAX += 1
        assert pairs_ahead.buffer_target(experiment) == 14

    def test_before_anything_was_generated_there_is_no_generation_time(self):
        assert pairs_ahead.generation_seconds(make_experiment()) is None


class TestPeople:
    def test_annotators_label_what_has_left_the_drawing_board(self, annotator):
        draft = make_experiment(running=False, annotators=(annotator,))
        running = make_experiment(annotators=(annotator,))
        paused = make_experiment(annotators=(annotator,))
        pause(experiment_id=paused.pk)
        make_experiment()  # not a member
        make_experiment(judge="rule", annotators=(annotator,))
        found = Experiment.objects.judged_by(annotator)
        assert set(found) == {running, paused}
        assert draft not in found

    def test_everybody_sees_how_much_they_judged_themselves(self, annotator):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other))
        add_member(experiment, annotator, Membership.Role.OWNER)
        click(experiment, annotator)
        click(experiment, annotator)
        click(experiment, other)

        def own_count(user) -> int:
            mine = answers.with_own_answers(Experiment.objects.judged_by(user), user)
            return mine.get().mine

        assert own_count(annotator) == 2
        assert own_count(other) == 1

    def test_an_experiment_is_found_to_label_by_those_who_judge_it(self, annotator, admin):
        draft, *others = make_experiment(running=False), make_experiment(), make_experiment(judge="rule")
        users = [make_user(), annotator, admin]
        for experiment in (draft, *others):
            add_member(experiment, annotator)
            for role in Membership.Role:
                users.append(make_user())
                add_member(experiment, users[-1], role)
        for user in users:
            judged = set(Experiment.objects.judged_by(user))
            assert {each for each in (draft, *others) if people.experiment_to_label(user, each.pk)} == judged

    def test_today_starts_at_midnight_and_leaves_out_what_was_taken_back(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        old, void, new = (click(experiment, annotator) for _ in range(3))
        midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
        with lifted():
            Judgment.objects.filter(pk=old.pk).update(created_at=midnight - timedelta(microseconds=1))
        with lifted():
            Judgment.objects.filter(pk=new.pk).update(created_at=midnight)
        void_judgment(judgment_id=void.pk, by=admin, reason="A slip.")
        assert answers.judged_today(experiment.pk, annotator) == 1
        assert answers.judged_today(experiment.pk, admin) == 0


class TestQueueHealth:
    def test_it_counts_comparisons_and_responses_by_state(self, annotator, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 4
        experiment = make_experiment(ready=True, annotators=(annotator,))
        make_experiment()
        click(experiment, annotator)
        assign(experiment, annotator)
        advance(experiment_id=experiment.pk)
        health = queue_health(experiment)
        assert health.comparisons == {"judged": 1, "assigned": 1, "ready": 2, "planned": 2}
        assert health.responses == {"done": 8, "waiting": 4}
        assert health.comparisons["discarded"] == 0
        assert health.tokens == 8
        assert health.generation_seconds is not None

    def test_the_oldest_waiting_response_says_for_how_long(self):
        experiment = make_experiment()
        Response.objects.filter(pk=Response.objects.first().pk).update(
            created_at=timezone.now() - timedelta(seconds=90)
        )
        assert queue_health(experiment).oldest_waiting_seconds == pytest.approx(90, abs=30)
        claim_responses(worker="w", limit=100)
        assert queue_health(experiment).oldest_waiting_seconds == 0.0

    def test_the_last_failure_is_told(self):
        experiment = make_experiment()
        assert queue_health(experiment).last_failure == ""
        claim = claim_responses(worker="w", limit=2)
        Response.objects.filter(claim=claim.token).update(state="failed", failure_reason="out of memory")
        assert queue_health(experiment).last_failure == "out of memory"

    def test_what_a_conclusion_called_off_is_no_failure(self):
        experiment = make_experiment()
        stop(experiment_id=experiment.pk)
        assert queue_health(experiment).last_failure == ""

    def test_it_is_healthy_with_both_workers_seen_and_nothing_waiting_long(self):
        experiment = make_experiment()
        assert not queue_health(experiment).control_alive
        WorkerPulse.objects.create(queue="control", worker="a")
        assert not queue_health(experiment).generation_alive
        WorkerPulse.objects.create(queue="generation", worker="b")
        assert queue_health(experiment).healthy
        Response.objects.update(created_at=timezone.now() - timedelta(seconds=61))
        assert not queue_health(experiment).healthy

    def test_a_worker_that_was_silent_for_longer_than_a_claim_lasts_counts_as_gone(self, settings):
        experiment = make_experiment()
        silent = settings.CLAIM_SECONDS + 3 * settings.SWEEP_SECONDS + 1
        WorkerPulse.objects.create(
            queue="control", worker="a", seen_at=timezone.now() - timedelta(seconds=silent)
        )
        assert not queue_health(experiment).control_alive
        WorkerPulse.objects.create(queue="control", worker="b")
        assert queue_health(experiment).control_alive
