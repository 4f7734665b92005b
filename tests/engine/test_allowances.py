"""Limits on the pairs that one annotator holds and takes back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from django.utils.translation import override

from engine.domain.errors import LeaseLostError, WrongStateError
from engine.models import Check, Comparison, Experiment, Judgment, JudgmentVoid, Lease, User
from engine.selectors import answers
from engine.selectors.counts import pair_counts
from engine.services.allowances import ANSWERS_PER_UNDO, MOST_HELD, UNDOS_IN_A_ROW, hold
from engine.services.judging import judge_leased, void_judgment
from engine.services.leases import expire_leases, lease_next, renew_leases, return_leases
from engine.services.planning import advance
from engine.services.serving import answer, show_next, skip, take_back
from tests.factories import click, lease, make_experiment, make_user, write_responses

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
        return_leases(annotator=annotator)
        counts = pair_counts(experiment)
        with pytest.raises(WrongStateError):
            undo(experiment, annotator)
        assert pair_counts(experiment) == counts
        assert not Lease.objects.filter(state="active").exists()

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

    def test_checks_are_answers_too_and_cannot_be_told_by_it(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=40)
        answer_on(experiment, annotator, 2 * UNDOS_IN_A_ROW + 10)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        # Pairs that were taken back come first, then new ones, of which every other is a check.
        for _ in range(40):
            return_leases(annotator=annotator)
            before = Check.objects.exclude(choice="").count()
            answer_on(experiment, annotator, ANSWERS_PER_UNDO)
            undo(experiment, annotator)
            if Check.objects.exclude(choice="").count() > before:
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
        left = answers.own_judgments(experiment, annotator).first()
        void_judgment(judgment_id=left.pk, by=admin, reason="A slip.")
        assert JudgmentVoid.objects.count() == UNDOS_IN_A_ROW + 3

    def test_it_is_told_in_german(self, experiment, annotator):
        answer_on(experiment, annotator, UNDOS_IN_A_ROW + 1)
        for _ in range(UNDOS_IN_A_ROW):
            undo(experiment, annotator)
        with override("de"), pytest.raises(WrongStateError, match="Nach 5 weiteren Urteilen"):
            undo(experiment, annotator)


class TestHeldPairs:
    """One annotator held every ready pair, for ever."""

    def grab(self, experiment: Experiment, user: User) -> list[Lease]:
        held: list[Lease] = []
        while (more := lease_next(
            experiment_id=experiment.pk, annotator=user, besides=[each.token for each in held]
        )) is not None:  # fmt: skip
            held.append(more)
        return held

    def test_nobody_holds_so_many_that_others_find_none(self, experiment, annotator, bob):
        assert Comparison.objects.filter(state="ready").count() > MOST_HELD
        assert len(self.grab(experiment, annotator)) == MOST_HELD
        assert lease(experiment, bob).comparison.state == "leased"

    def test_an_answer_makes_room_for_one_more(self, experiment, annotator):
        held = self.grab(experiment, annotator)
        judge_leased(experiment_id=experiment.pk, token=held[1].token, annotator=annotator, choice="left")
        more = lease_next(
            experiment_id=experiment.pk,
            annotator=annotator,
            besides=[each.token for each in held if each != held[1]],
        )
        assert more.comparison_id not in {each.comparison_id for each in held}

    def test_a_check_takes_a_place_like_any_pair(self, annotator, settings):
        """Else a pair handed out beyond the last place would be known for a check."""
        settings.BUFFER_MIN = 2 * MOST_HELD
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.2, n_gold=30)
        with_checks = set()
        # The draws follow from the account's key: each kind comes in about every second round.
        for _ in range(60):
            shown = []
            while (more := show_next(
                experiment=experiment, annotator=annotator, besides=[each.token for each in shown]
            )) is not None:  # fmt: skip
                shown.append(more)
            assert len(shown) == MOST_HELD
            with_checks.add(Check.objects.filter(token__in=[each.token for each in shown]).exists())
            for each in shown:
                answer(experiment_id=experiment.pk, token=each.token, annotator=annotator, choice="left")
            advance(experiment_id=experiment.pk)
            write_responses()
            if with_checks == {False, True}:
                break
        assert with_checks == {False, True}

    def test_an_undo_keeps_the_pair_on_show_and_hands_back_the_one_that_waits_longest(
        self, experiment, annotator
    ):
        judgment = click(experiment, annotator)
        on_show, *waiting = self.grab(experiment, annotator)
        again = take_back(
            experiment=experiment,
            answer=judgment,
            annotator=annotator,
            besides=[each.token for each in waiting],
        )
        active = set(Lease.objects.filter(state="active").values_list("token", flat=True))
        assert active == {again.token, on_show.token, *(each.token for each in waiting[:-1])}
        waiting[-1].comparison.refresh_from_db()
        assert waiting[-1].comparison.state == "ready"

    def go_by(self, span: timedelta) -> None:
        for held in Lease.objects.all():
            held.granted_at, held.expires_at = held.granted_at - span, held.expires_at - span
            held.held_until -= span
            held.save()

    def test_a_pair_is_renewed_up_to_an_hour_and_then_goes_to_others(self, experiment, annotator, bob):
        held = lease(experiment, annotator)
        self.go_by(hold() - timedelta(seconds=1))
        assert renew_leases(annotator=annotator, tokens=[held.token]) == 1
        held.refresh_from_db()
        assert held.expires_at == held.held_until
        self.go_by(timedelta(seconds=2))
        expire_leases()
        assert renew_leases(annotator=annotator, tokens=[held.token]) == 0
        # Neither a reload nor handing it back and asking again starts another hour.
        assert lease(experiment, annotator).comparison_id != held.comparison_id
        return_leases(annotator=annotator)
        assert lease(experiment, annotator).comparison_id != held.comparison_id
        assert lease(experiment, bob).comparison_id == held.comparison_id

    def test_a_pair_handed_back_before_its_end_has_only_the_rest_of_its_hour(self, experiment, annotator):
        held = lease(experiment, annotator)
        until = held.held_until
        return_leases(annotator=annotator)
        again = lease(experiment, annotator)
        assert (again.pk, again.held_until) == (held.pk, until)

    def test_who_is_alone_gets_the_pair_again_after_the_others_turn(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = lease(experiment, annotator)
        self.go_by(hold() + timedelta(seconds=1))
        expire_leases()
        self.go_by(hold())
        again = lease(experiment, annotator)
        assert again.comparison_id == held.comparison_id
        assert again.held_until > timezone.now() + hold() / 2

    def test_a_late_answer_still_counts_while_nobody_else_has_the_pair(self, experiment, annotator, bob):
        held = lease(experiment, annotator)
        self.go_by(hold() + timedelta(seconds=1))
        expire_leases()
        assert judge_leased(
            experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left"
        ).created


class TestSkipped:
    """A skip and then an answer under the same token counted as both."""

    def test_an_answer_after_a_skip_is_refused(self, experiment, annotator):
        held = lease(experiment, annotator)
        skip(experiment=experiment, token=held.token, annotator=annotator)
        with pytest.raises(LeaseLostError, match="You skipped that pair"):
            answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        assert not Judgment.objects.exists()
        held.comparison.refresh_from_db()
        assert (held.comparison.state, held.comparison.skips) == ("ready", 1)

    def test_that_of_a_check_is_refused_alike(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), practice=1, n_gold=1)
        shown = show_next(experiment=experiment, annotator=annotator)
        skip(experiment=experiment, token=shown.token, annotator=annotator)
        with pytest.raises(LeaseLostError, match="You skipped that pair"):
            answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
        assert Check.objects.get().choice == Check.SKIPPED


def test_an_undo_is_filled_up_only_where_there_are_checks_to_hide(
    experiment, annotator, django_assert_num_queries
):
    click(experiment, annotator)
    newest = answers.newest_answer(experiment, annotator)
    with django_assert_num_queries(20 if connection.vendor == "postgresql" else 21):
        take_back(experiment=experiment, answer=newest, annotator=annotator)
