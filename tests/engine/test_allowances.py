"""Limits on the pairs that one annotator holds and takes back."""

from datetime import timedelta

import pytest
from django.utils import timezone

from engine.domain import secret_draws
from engine.domain.errors import AssignmentLostError, WrongStateError
from engine.models import Allowance, Assignment, Comparison, Experiment, Flag, Judgment, JudgmentVoid, User
from engine.selectors import admission, answers, counts, verifying
from engine.selectors.counts import pair_counts
from engine.services.judging import record_answer, void_judgment
from engine.services.planning import advance
from engine.services.serving import Ended, answer, desk, show_next, skip, take_back
from engine.services.undos_and_skips import ANSWERS_PER_UNDO, MOST_HELD, UNDOS_IN_A_ROW, hold
from tests.factories import (
    add_member,
    assign,
    assign_all,
    assign_next,
    click,
    make_experiment,
    make_user,
    write_responses,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(db) -> User:
    return make_user("bob")


@pytest.fixture
def experiment(annotator, bob, settings) -> Experiment:
    settings.BUFFER_MIN = 2 * MOST_HELD
    return make_experiment(ready=True, annotators=(annotator, bob))


def undo(experiment: Experiment, user: User) -> None:
    newest = answers.newest_answer(experiment, user)
    take_back(experiment=experiment, answer=newest, annotator=user)


def answer_on(experiment: Experiment, user: User, n: int) -> None:
    for _ in range(n):
        shown = show_next(experiment=experiment, annotator=user)
        if shown is None:
            advance(experiment_id=experiment.pk)
            write_responses()
            shown = show_next(experiment=experiment, annotator=user)
        answer(experiment_id=experiment.pk, token=shown.token, annotator=user, choice="left")


class TestUndos:
    """Judging left, reading, undoing and judging right was free."""

    def test_ten_in_a_row_then_one_for_every_five_answers(self, experiment, annotator):
        answer_on(experiment, annotator, UNDOS_IN_A_ROW + 2)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        for done in range(ANSWERS_PER_UNDO):
            with pytest.raises(WrongStateError, match=f"After {ANSWERS_PER_UNDO - done} more answer"):
                undo(experiment, annotator)
            answer_on(experiment, annotator, 1)
        undo(experiment, annotator)
        with pytest.raises(WrongStateError, match="After 5 more answers"):
            undo(experiment, annotator)
        assert JudgmentVoid.objects.count() == UNDOS_IN_A_ROW + 1

    def test_a_refused_undo_changes_nothing(self, experiment, annotator):
        answer_on(experiment, annotator, UNDOS_IN_A_ROW + 1)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        counts = pair_counts(experiment)
        with pytest.raises(WrongStateError):
            undo(experiment, annotator)
        assert pair_counts(experiment) == counts

    def test_answers_save_up_no_more_than_ten(self, experiment, annotator):
        answer_on(experiment, annotator, UNDOS_IN_A_ROW + 5)
        undo(experiment, annotator)
        answer_on(experiment, annotator, 3 * ANSWERS_PER_UNDO)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        with pytest.raises(WrongStateError):
            undo(experiment, annotator)

    def test_answering_both_ways_again_and_again_comes_to_an_end(self, experiment, annotator):
        """The attack: an answer, a look, an undo, the other answer."""
        undone = 0
        for number in range(30):
            click(experiment, annotator, ("left", "right")[number % 2])
            try:
                undo(experiment, annotator)
            except WrongStateError:
                break
            undone += 1
        assert undone == UNDOS_IN_A_ROW + 2

    def test_checks_are_answers_too_and_cannot_be_told_by_it(self, annotator, monkeypatch):
        monkeypatch.setattr(admission, "ADMISSION_ITEMS", 0)
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=40)
        answer_on(experiment, annotator, 2 * UNDOS_IN_A_ROW + 10)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        # Pairs that were taken back come first, then new ones, of which every other is a check.
        for _ in range(40):
            before = Assignment.objects.checks().exclude(state="open").count()
            answer_on(experiment, annotator, ANSWERS_PER_UNDO)
            undo(experiment, annotator)
            if Assignment.objects.checks().exclude(state="open").count() > before:
                break
        else:
            pytest.fail("no check was shown")

    def test_everybody_has_their_own_in_each_experiment_and_editors_need_none(
        self, experiment, annotator, bob, admin
    ):
        answer_on(experiment, annotator, UNDOS_IN_A_ROW + 2)
        answer_on(experiment, bob, 1)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        undo(experiment, bob)
        elsewhere = make_experiment(ready=True, annotators=(annotator,))
        click(elsewhere, annotator)
        undo(elsewhere, annotator)
        left = answers.newest_answer(experiment, annotator)
        void_judgment(judgment_id=left.pk, by=admin, reason="A slip.")
        assert JudgmentVoid.objects.count() == UNDOS_IN_A_ROW + 3


class TestHeldPairs:
    """One annotator held every ready pair, for ever."""

    def test_nobody_holds_so_many_that_others_find_none(self, experiment, annotator, bob):
        assert Comparison.objects.filter(state="ready").count() > MOST_HELD
        assert len(assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=99)) == MOST_HELD
        assert assign(experiment, bob).comparison.state == "assigned"

    def test_an_answer_makes_room_for_one_more(self, experiment, annotator):
        held = assign_all(experiment_id=experiment.pk, annotator=annotator)
        record_answer(experiment_id=experiment.pk, token=held[1].token, annotator=annotator, choice="left")
        more = assign_all(experiment_id=experiment.pk, annotator=annotator)
        assert more[:-1] == [held[0], *held[2:]]
        assert more[-1] not in held

    def test_a_check_takes_a_place_like_any_pair(self, annotator, settings, monkeypatch):
        """Else a pair handed out beyond the last place would be known for a check."""
        monkeypatch.setattr(admission, "ADMISSION_ITEMS", 0)
        settings.BUFFER_MIN = 2 * MOST_HELD
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.2, n_gold=30)
        with_checks = set()
        # The draws follow from the account's key: each kind comes in about every second round.
        for _ in range(60):
            shown = desk(experiment=experiment, annotator=annotator, n_wanted=99).pairs
            assert len(shown) == MOST_HELD
            with_checks.add(
                Assignment.objects.checks().filter(token__in=[each.token for each in shown]).exists()
            )
            for each in shown:
                answer(experiment_id=experiment.pk, token=each.token, annotator=annotator, choice="left")
            advance(experiment_id=experiment.pk)
            write_responses()
            if with_checks == {False, True}:
                break
        assert with_checks == {False, True}

    def test_an_undo_takes_nothing_that_is_held_away(self, experiment, annotator):
        judgment = click(experiment, annotator)
        held = assign_all(experiment_id=experiment.pk, annotator=annotator)
        again = take_back(experiment=experiment, answer=judgment, annotator=annotator)
        pairs = desk(experiment=experiment, annotator=annotator, n_wanted=99).pairs
        assert [each.token for each in pairs] == [again.token, *(each.token for each in held)]


class TestCap:
    """Somebody who leaves at least five pairs and more than a tenth gets no more."""

    def leave_and_answer(self, experiment: Experiment, user: User, does: str) -> None:
        for each in does:
            held = assign_next(experiment_id=experiment.pk, annotator=user)
            if held is None:
                advance(experiment_id=experiment.pk)
                write_responses()
                held = assign(experiment, user)
            if each == "s":
                skip(experiment=experiment, token=held.token, annotator=user, reason="cannot_tell")
            else:
                record_answer(experiment_id=experiment.pk, token=held.token, annotator=user, choice="left")

    def test_five_skips_and_more_than_a_tenth_end_it(self, experiment, annotator, bob):
        self.leave_and_answer(experiment, annotator, "ssss")
        assert desk(experiment=experiment, annotator=annotator, n_wanted=1).ended is Ended.NOT
        self.leave_and_answer(experiment, annotator, "s")
        ended = desk(experiment=experiment, annotator=annotator, n_wanted=1)
        assert (list(ended.pairs), ended.ended) == ([], Ended.LEFT)
        assert assign_next(experiment_id=experiment.pk, annotator=bob) is not None

    def test_five_skips_of_fifty_do_not(self, experiment, annotator):
        self.leave_and_answer(experiment, annotator, "a" * 45 + "sssss")
        assert desk(experiment=experiment, annotator=annotator, n_wanted=1).ended is Ended.NOT

    def test_pairs_that_are_left_open_count_until_they_are_answered(self, experiment, annotator):
        held = assign_all(experiment_id=experiment.pk, annotator=annotator)
        past = timezone.now() - hold() - timedelta(seconds=1)
        Assignment.objects.filter(annotator=annotator).update(created_at=past, expires_at=past)
        ended = desk(experiment=experiment, annotator=annotator, n_wanted=99)
        assert ended.ended is Ended.LEFT
        assert [each.token for each in ended.pairs] == [each.token for each in held], "they come back"
        self.leave_and_answer(experiment, annotator, "aa")
        assert desk(experiment=experiment, annotator=annotator, n_wanted=99).ended is Ended.NOT

    def test_an_answer_taken_back_and_left_counts_too(self, experiment, annotator):
        self.leave_and_answer(experiment, annotator, "ssssa")
        undo(experiment, annotator)
        past = timezone.now() - hold() - timedelta(seconds=1)
        Assignment.objects.filter(annotator=annotator).update(created_at=past, expires_at=past)
        assert desk(experiment=experiment, annotator=annotator, n_wanted=1).ended is Ended.LEFT

    def test_the_page_asks_beyond_a_twentieth_of_twenty(self, experiment, annotator):
        def asks() -> bool:
            return desk(experiment=experiment, annotator=annotator, n_wanted=0).asks_before_skip

        self.leave_and_answer(experiment, annotator, "ss" + "a" * 17)
        assert not asks()
        self.leave_and_answer(experiment, annotator, "a")
        assert asks()
        self.leave_and_answer(experiment, annotator, "a" * 20)
        assert not asks()


class TestSkipped:
    """A skip and then an answer under the same token counted as both."""

    def test_an_answer_after_a_skip_is_refused(self, experiment, annotator):
        held = assign(experiment, annotator)
        skip(experiment=experiment, token=held.token, annotator=annotator, reason="task")
        with pytest.raises(AssignmentLostError, match="You skipped that pair"):
            answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        assert not Judgment.objects.exists()
        held.comparison.refresh_from_db()
        assert (held.comparison.state, held.comparison.skips) == ("discarded", 1)

    def test_that_of_a_check_is_refused_alike(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), practice=1, n_gold=1)
        shown = show_next(experiment=experiment, annotator=annotator)
        skip(experiment=experiment, token=shown.token, annotator=annotator, reason="task")
        with pytest.raises(AssignmentLostError, match="You skipped that pair"):
            answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
        assert Assignment.objects.checks().get().state == "skipped"


class TestSkipTakenBack:
    """A skip by a slip of the finger."""

    @pytest.mark.parametrize("is_check", [False, True], ids=["comparison", "check"])
    def test_its_pair_comes_back_and_may_be_answered(self, annotator, monkeypatch, is_check):
        monkeypatch.setattr(admission, "ADMISSION_ITEMS", 0)
        monkeypatch.setattr(secret_draws, "check_draw", lambda *_: 0.0 if is_check else 0.9)
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=9)
        shown = show_next(experiment=experiment, annotator=annotator)
        skip(experiment=experiment, token=shown.token, annotator=annotator, reason="task")
        skipped = answers.own_answer(experiment, annotator, shown.token)
        again = take_back(experiment=experiment, answer=skipped, annotator=annotator)
        assert (again.left, again.right) == (shown.left, shown.right)
        assert again.token != shown.token
        assert show_next(experiment=experiment, annotator=annotator) == again
        allowance = Allowance.objects.get()
        assert (allowance.skipped, allowance.undo_credit) == (
            0,
            (UNDOS_IN_A_ROW - 1) * ANSWERS_PER_UNDO,
        )
        assert not Flag.objects.exists()
        assert answers.own_answer(experiment, annotator, shown.token) is None
        answer(experiment_id=experiment.pk, token=again.token, annotator=annotator, choice="left")
        assert counts.comparison_count(experiment.pk) == (not is_check)
        advance(experiment_id=experiment.pk)
        assert list(verifying.faults_of(experiment)) == []

    def test_who_may_see_policies_has_ended_the_pair(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        add_member(experiment, annotator, "viewer")
        held = assign(experiment, annotator)
        skip(experiment=experiment, token=held.token, annotator=annotator, reason="task")
        skipped = answers.own_answer(experiment, annotator, held.token)
        with pytest.raises(WrongStateError, match="not shown again"):
            take_back(experiment=experiment, answer=skipped, annotator=annotator)
        assert Allowance.objects.get().undo_credit == UNDOS_IN_A_ROW * ANSWERS_PER_UNDO
