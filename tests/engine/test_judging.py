"""Assignments, clicks, skips, and judgments taken back."""

from datetime import timedelta

import numpy as np
import pytest
from django.conf import settings
from django.db import IntegrityError, transaction

from engine.domain.errors import AssignmentLostError, UnknownTokenError, WrongStateError
from engine.models import (
    Assignment,
    Comparison,
    Experiment,
    Flag,
    Judgment,
    JudgmentVoid,
    PairCount,
    Response,
)
from engine.selectors.counts import comparison_count, pair_counts, standing_judgments, wins_matrix
from engine.selectors.snapshots import latest_snapshot
from engine.services.experiments import stop
from engine.services.judging import judge_ready, rebuild_counts, record_answer, void_judgment
from engine.services.planning import advance
from engine.services.serving import take_back
from engine.services.voids import restore_judgment
from tests.factories import (
    add_member,
    assign,
    assign_next,
    click,
    click_for,
    click_on,
    make_experiment,
    make_user,
    skip,
    write_responses,
)

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def bob(db):
    return make_user("bob")


@pytest.fixture
def experiment(annotator, bob) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator, bob))


class TestAssignNext:
    def test_it_reserves_the_oldest_ready_pair_for_the_annotator(self, experiment, annotator):
        held = assign(experiment, annotator)
        assert held.comparison == experiment.comparisons.order_by("pk").first()
        assert held.comparison.state == Comparison.State.ASSIGNED
        assert (held.annotator, held.state) == (annotator, Assignment.State.OPEN)
        assert held.expires_at - held.granted_at <= timedelta(seconds=settings.ASSIGNMENT_SECONDS + 1)

    def test_two_annotators_never_see_the_same_pair(self, experiment, annotator, bob):
        assert assign(experiment, annotator).comparison != assign(experiment, bob).comparison

    def test_nobody_is_shown_a_pair_that_is_not_ready_or_over(self, annotator):
        experiment = make_experiment(annotators=(annotator,))
        assert assign_next(experiment_id=experiment.pk, annotator=annotator) is None
        write_responses()
        for _ in range(experiment.comparisons.count()):
            click(experiment, annotator)
        assert assign_next(experiment_id=experiment.pk, annotator=annotator) is None

    def test_pairs_of_another_experiment_are_not_mixed_in(self, experiment, annotator):
        other = make_experiment(ready=True, annotators=(annotator,))
        assert assign(experiment, annotator).comparison.experiment == experiment
        assert assign(other, annotator).comparison.experiment == other

    def test_a_rule_judged_experiment_is_not_shown_to_people(self, annotator):
        experiment = make_experiment(ready=True, judge="rule", annotators=(annotator,))
        assert experiment.comparisons.filter(state="ready").exists()
        assert assign_next(experiment_id=experiment.pk, annotator=annotator) is None


class TestJudge:
    @pytest.mark.parametrize("choice", ["left", "right"])
    def test_a_click_is_recorded_and_counted_for_the_policy_on_the_chosen_side(
        self, experiment, annotator, choice
    ):
        held = assign(experiment, annotator)
        comparison = held.comparison
        recorded = record_answer(
            experiment_id=experiment.pk, token=held.token, annotator=annotator, choice=choice
        )
        judgment = recorded.judgment
        i_wins = (choice == "left") == comparison.i_on_left
        assert recorded.created
        assert (judgment.choice, judgment.outcome) == (choice, 1.0 if i_wins else 0.0)
        assert (judgment.annotator, judgment.judge, judgment.token) == (annotator, "human", held.token)
        assert judgment.shown_at == held.granted_at
        i, j = comparison.policy_i.index, comparison.policy_j.index
        counts = {pair: count for pair, count in pair_counts(experiment).items() if count[1]}
        assert counts == {(i, j): (1.0 if i_wins else 0.0, 1)}
        comparison.refresh_from_db()
        held.refresh_from_db()
        assert (comparison.state, held.state) == ("judged", "judged")
        assert comparison.judged_at == judgment.created_at

    def test_the_same_click_twice_is_one_judgment_even_with_another_choice(self, experiment, annotator):
        token = assign(experiment, annotator).token
        first = record_answer(experiment_id=experiment.pk, token=token, annotator=annotator, choice="left")
        second = record_answer(experiment_id=experiment.pk, token=token, annotator=annotator, choice="right")
        assert (second.created, second.judgment) == (False, first.judgment)
        assert Judgment.objects.get().choice == "left"
        assert comparison_count(experiment.pk) == 1

    def test_the_token_of_somebody_else_is_unknown(self, experiment, annotator, bob):
        token = assign(experiment, annotator).token
        for call in (
            lambda: record_answer(experiment_id=experiment.pk, token=token, annotator=bob, choice="left"),
            lambda: skip(experiment_id=experiment.pk, token=token, annotator=bob),
        ):
            with pytest.raises(UnknownTokenError, match="was not shown to you"):
                call()
        assert not Judgment.objects.exists()
        assert Assignment.objects.get().state == "open"

    @pytest.mark.parametrize(("offered", "choice"), [("allow_tie", "both_bad"), ("allow_both_bad", "tie")])
    def test_what_the_experiment_does_not_offer_is_refused(self, offered, choice, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), **{offered: True})
        with pytest.raises(WrongStateError, match="does not offer that choice"):
            click(experiment, annotator, choice)
        assert not Judgment.objects.exists()
        assert Assignment.objects.get().state == "open"


class TestSkip:
    def test_it_ends_the_pair_without_an_outcome_and_says_why(self, experiment, annotator):
        held = assign(experiment, annotator)
        skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
        held.refresh_from_db()
        held.comparison.refresh_from_db()
        assert held.state == "skipped"
        assert (held.comparison.state, held.comparison.skips) == ("discarded", 1)
        flag = Flag.objects.get()
        assert (flag.comparison, flag.annotator, flag.reason) == (held.comparison, annotator, "task")

    def test_skipping_twice_is_skipping_once(self, experiment, annotator):
        held = assign(experiment, annotator)
        skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
        skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
        held.comparison.refresh_from_db()
        assert held.comparison.skips == 1

    def test_it_takes_no_judgment_back(self, experiment, annotator):
        judged = click(experiment, annotator)
        skip(experiment_id=experiment.pk, token=judged.token, annotator=annotator)
        judged.comparison.refresh_from_db()
        assert judged.comparison.state == "judged"
        assert comparison_count(experiment.pk) == 1


class TestJudgeReady:
    def test_it_decides_a_ready_comparison_once(self):
        experiment = make_experiment(ready=True, judge="rule")
        comparison = experiment.comparisons.first()
        judgment = judge_ready(comparison_id=comparison.pk, verdict=lambda c: ("left", "Because."))
        assert (judgment.judge, judgment.annotator, judgment.reason) == ("rule", None, "Because.")
        assert judge_ready(comparison_id=comparison.pk, verdict=lambda c: ("right", "")) is None
        assert comparison_count(experiment.pk) == 1

    def test_a_comparison_that_is_not_ready_is_left_alone(self):
        comparison = make_experiment(judge="rule").comparisons.first()
        assert judge_ready(comparison_id=comparison.pk, verdict=lambda c: ("left", "")) is None

    def test_of_two_texts_without_a_word_none_wins_and_there_is_no_tie(self):
        experiment = make_experiment(ready=True, judge="rule")
        comparison = experiment.comparisons.first()
        Response.objects.filter(pk__in=[comparison.response_i_id, comparison.response_j_id]).update(text=" ")
        assert judge_ready(comparison_id=comparison.pk, verdict=lambda c: ("tie", "")) is None
        comparison.refresh_from_db()
        assert (comparison.state, comparison_count(experiment.pk)) == ("discarded", 0)


class TestRestore:
    def test_who_answers_again_what_an_editor_brought_back_is_told_that_it_counts_once(
        self, annotator, bob, admin
    ):
        experiment = make_experiment(ready=True, annotators=(annotator, bob), overlap=2)
        judgment = click(experiment, annotator)
        opened = take_back(experiment=experiment, answer=judgment, annotator=annotator)
        restore_judgment(judgment_id=judgment.pk, by=admin)
        with pytest.raises(AssignmentLostError):
            record_answer(experiment_id=experiment.pk, token=opened.token, annotator=annotator, choice="left")
        assert standing_judgments(experiment.pk).count() == 1


class TestVoid:
    def test_counts_are_as_if_it_had_never_been_and_the_proofs_keep_it(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        beats = {0: True, 1: True, 2: False}
        for k in range(8):
            click_for(experiment, annotator, lambda i, j, k=k: beats.get(k, i < j))
            advance(experiment_id=experiment.pk)
            write_responses()
        before = wins_matrix(experiment)
        extra = click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        with_it = latest_snapshot(experiment)
        void_judgment(judgment_id=extra.pk, by=admin, reason="A slip.")
        advance(experiment_id=experiment.pk)

        assert np.array_equal(wins_matrix(experiment), before)
        assert comparison_count(experiment.pk) == 8
        snapshot = latest_snapshot(experiment)
        assert (with_it.comparisons, snapshot.comparisons) == (9, 8)
        assert snapshot.evidence == with_it.evidence
        assert snapshot.peak_evidence == with_it.peak_evidence
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_its_pair_is_judged_by_nobody_anew(self, experiment, annotator, bob, admin):
        judgment = click(experiment, annotator)
        void = void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        assert (void.by, void.reason) == (admin, "A slip.")
        judgment.comparison.refresh_from_db()
        assert (judgment.comparison.state, judgment.comparison.judged_at) == ("discarded", None)
        for user in (annotator, bob):
            assert assign(experiment, user).comparison != judgment.comparison
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_the_click_itself_is_kept_and_sending_it_again_does_not_revive_it(
        self, experiment, annotator, admin
    ):
        judgment = click(experiment, annotator)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        again = record_answer(
            experiment_id=experiment.pk, token=judgment.token, annotator=annotator, choice="left"
        )
        assert (again.created, again.judgment) == (False, judgment)
        assert comparison_count(experiment.pk) == 0

    def test_it_cannot_be_taken_back_twice(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        with pytest.raises(WrongStateError, match="taken back already"):
            void_judgment(judgment_id=judgment.pk, by=admin, reason="Again.")
        assert JudgmentVoid.objects.count() == 1
        assert comparison_count(experiment.pk) == 0

    def test_after_the_conclusion_it_is_final(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        stop(experiment_id=experiment.pk)
        with pytest.raises(WrongStateError, match="concluded; its judgments are final"):
            void_judgment(judgment_id=judgment.pk, by=admin, reason="Too late.")
        assert comparison_count(experiment.pk) == 1


class TestRebuildCounts:
    def test_right_counts_are_left_as_they_are(self, experiment, annotator):
        click_on(experiment, annotator, 5)
        before = pair_counts(experiment)
        assert rebuild_counts(experiment_id=experiment.pk) == {}
        assert pair_counts(experiment) == before

    def test_wrong_counts_are_named_and_mended(self, experiment, annotator):
        judgment = click(experiment, annotator)
        true = pair_counts(experiment)
        pair = (judgment.comparison.policy_i.index, judgment.comparison.policy_j.index)
        other = next(p for p in true if p != pair)
        PairCount.objects.filter(
            experiment=experiment, policy_i__index=pair[0], policy_j__index=pair[1]
        ).update(wins_i=0.5, comparisons=3)
        PairCount.objects.filter(
            experiment=experiment, policy_i__index=other[0], policy_j__index=other[1]
        ).update(wins_i=1.0, comparisons=1)
        assert rebuild_counts(experiment_id=experiment.pk) == {
            pair: ((0.5, 3), true[pair]),
            other: ((1.0, 1), (0.0, 0)),
        }
        assert pair_counts(experiment) == true
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_another_experiment_is_left_alone(self, experiment, annotator):
        other = make_experiment()
        PairCount.objects.filter(experiment=other).update(comparisons=9)
        assert rebuild_counts(experiment_id=experiment.pk) == {}
        assert comparison_count(other.pk) == 27


def test_a_click_on_a_pair_without_a_count_is_not_swallowed(annotator):
    experiment = make_experiment(ready=True)
    add_member(experiment, annotator)
    held = assign(experiment, annotator)
    PairCount.objects.all().delete()
    with pytest.raises(RuntimeError, match="rebuild_counts"):
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")


@pytest.mark.parametrize(
    ("judge", "via"),
    [("human", "rule"), ("human", "model"), ("rule", "page"), ("llm", "api"), ("human", "")],
)
def test_the_database_refuses_a_way_in_that_does_not_fit_the_judge(judge, via, annotator):
    judgment = click(make_experiment(ready=True, annotators=(annotator,)), annotator)
    with pytest.raises(IntegrityError), transaction.atomic():
        Judgment.objects.filter(pk=judgment.pk).update(judge=judge, via=via)
