"""Assignments: a pair stays whose it is, comes back first, and goes to nobody else."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from engine.domain.errors import AssignmentLostError
from engine.models import Assignment, Comparison, Experiment, Membership, PairCount, User, clock
from engine.selectors.missing import actively_held
from engine.services import assignments, undos_and_skips
from engine.services.assignments import discard_unwanted, has_next
from engine.services.experiments import discard_leftovers, pause, start, stop
from engine.services.judging import record_answer
from engine.services.people import remove_member
from tests.factories import (
    assign,
    assign_all,
    assign_next,
    click,
    copy_of,
    make_experiment,
    make_user,
)

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def bob(db) -> User:
    return make_user("bob")


@pytest.fixture
def experiment(annotator, bob, settings) -> Experiment:
    settings.BUFFER_MIN = settings.BUFFER_MAX = 16
    return make_experiment(ready=True, annotators=(annotator, bob))


def go_by(span: timedelta, user: User) -> None:
    """Let time pass for all that somebody holds."""
    for held in Assignment.objects.filter(annotator=user):
        held.created_at, held.granted_at = held.created_at - span, held.granted_at - span
        held.expires_at -= span
        held.save()


def leave(experiment: Experiment, user: User) -> None:
    assignments.leave(annotator=user, experiment_id=experiment.pk)


AN_HOUR = undos_and_skips.hold


class TestWhoseItIs:
    @pytest.mark.parametrize("away", ["left", "closed", "an hour"])
    def test_what_was_left_comes_back_first_in_its_order_and_goes_to_nobody_else(
        self, away, experiment, annotator, bob
    ):
        held = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=3)
        if away == "left":
            leave(experiment, annotator)
        elif away == "an hour":
            go_by(2 * undos_and_skips.hold(), annotator)
        theirs = assign_all(experiment_id=experiment.pk, annotator=bob)
        assert not {each.comparison_id for each in held} & {each.comparison_id for each in theirs}
        again = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=3)
        assert [each.token for each in again] == [each.token for each in held]
        assert all(each.expires_at > clock.now() for each in again)

    def test_asking_for_fewer_or_more_shows_the_same_first(self, experiment, annotator):
        first, second = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=2)
        assert assign(experiment, annotator) == first
        assert assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=4)[:2] == [first, second]

    def test_an_answer_ahead_of_the_order_brings_no_other_pair_instead(self, experiment, annotator):
        first, second = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=2)
        record_answer(experiment_id=experiment.pk, token=second.token, annotator=annotator, choice="left")
        assert assign(experiment, annotator) == first

    def test_who_has_many_open_gets_no_more(self, experiment, annotator):
        assert experiment.comparisons.filter(state="ready").count() > undos_and_skips.MOST_HELD
        for _ in range(3):
            assert len(assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=99)) == (
                undos_and_skips.MOST_HELD
            )

    def test_an_answer_counts_however_late_it_comes(self, experiment, annotator, bob):
        held = assign(experiment, annotator)
        go_by(timedelta(days=3), annotator)
        assign_all(experiment_id=experiment.pk, annotator=bob)
        assert record_answer(
            experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left"
        ).created

    def test_with_overlap_it_is_for_the_first_who_were_given_it(self, annotator, bob):
        cat = make_user()
        experiment = make_experiment(ready=True, overlap=2, annotators=(annotator, bob, cat))
        experiment.comparisons.exclude(pk=experiment.comparisons.first().pk).update(state="discarded")
        mine, theirs = assign(experiment, annotator), assign(experiment, bob)
        assert mine.comparison == theirs.comparison
        leave(experiment, annotator)
        assert assign_next(experiment_id=experiment.pk, annotator=cat) is None
        assert assign(experiment, annotator) == mine

    def test_a_removed_annotator_keeps_it_open_and_nobody_else_gets_it(self, experiment, annotator, bob):
        held = assign(experiment, annotator)
        member = Membership.objects.get(user=annotator, experiment=experiment)
        remove_member(membership_id=member.pk, by=None)
        assert actively_held(experiment) == []
        for each in assign_all(experiment_id=experiment.pk, annotator=bob):
            assert each.comparison != held.comparison
        held.comparison.refresh_from_db()
        assert held.comparison.state == "assigned"


class TestPresence:
    def test_only_pairs_of_people_who_are_here_are_actively_held(self, experiment, annotator, bob):
        mine, theirs = assign(experiment, annotator), assign(experiment, bob)
        assert actively_held(experiment) == sorted([mine.comparison_id, theirs.comparison_id])
        leave(experiment, annotator)
        assert actively_held(experiment) == [theirs.comparison_id]
        go_by(2 * undos_and_skips.hold(), bob)
        assert actively_held(experiment) == []
        assignments.stay(experiment_id=experiment.pk, annotator=bob)
        assert actively_held(experiment) == [theirs.comparison_id]
        click(experiment, bob)
        assert actively_held(experiment) == []

    def test_to_leave_is_to_leave_one_experiment_or_all(self, experiment, annotator):
        other = make_experiment(ready=True, annotators=(annotator,))
        assign(experiment, annotator), assign(other, annotator)
        leave(experiment, annotator)
        assert (len(actively_held(experiment)), len(actively_held(other))) == (0, 1)
        assignments.leave(annotator=annotator)
        assert actively_held(other) == []

    def test_one_s_time_on_a_pair_starts_anew_after_being_away(self, experiment, annotator):
        held = assign(experiment, annotator)
        assert assign(experiment, annotator).granted_at == held.granted_at
        go_by(timedelta(hours=1), annotator)
        again = assign(experiment, annotator)
        assert again.granted_at >= held.granted_at
        assert again.created_at < held.created_at


class TestWhenNoneAreGiven:
    def test_a_paused_experiment_shows_what_is_open_and_nothing_new(self, experiment, annotator, bob):
        held = assign(experiment, annotator)
        pause(experiment_id=experiment.pk)
        assert assign_next(experiment_id=experiment.pk, annotator=bob) is None
        assert assign(experiment, annotator) == held
        start(experiment_id=experiment.pk)
        assert assign_next(experiment_id=experiment.pk, annotator=bob) is not None

    def test_nothing_new_while_the_claim_would_hold_without_what_is_open(self, experiment, annotator, bob):
        held = assign(experiment, annotator)
        Experiment.objects.filter(pk=experiment.pk).update(closing_since=timezone.now())
        assert assign_all(experiment_id=experiment.pk, annotator=annotator) == [held]
        assert assign_next(experiment_id=experiment.pk, annotator=bob) is None
        assert not has_next(experiment=experiment, annotator=bob)
        assert click(experiment, annotator).comparison == held.comparison

    def test_what_is_open_at_the_end_may_be_answered_by_who_is_here_alone(self, experiment, annotator, bob):
        mine, theirs = assign(experiment, annotator), assign(experiment, bob)
        leave(experiment, bob)
        stop(experiment_id=experiment.pk)
        states = dict(Comparison.objects.values_list("pk", "state"))
        assert (states[mine.comparison_id], states[theirs.comparison_id]) == ("assigned", "discarded")
        with pytest.raises(AssignmentLostError, match="ended"):
            record_answer(experiment_id=experiment.pk, token=theirs.token, annotator=bob, choice="left")
        assert record_answer(
            experiment_id=experiment.pk, token=mine.token, annotator=annotator, choice="left"
        ).created

    def test_who_goes_away_after_the_end_has_ended_it(self, experiment, annotator):
        held = assign(experiment, annotator)
        stop(experiment_id=experiment.pk)
        discard_leftovers()
        held.comparison.refresh_from_db()
        assert held.comparison.state == "assigned"
        go_by(2 * undos_and_skips.hold(), annotator)
        with pytest.raises(AssignmentLostError, match="ended"):
            record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        discard_leftovers()
        held.comparison.refresh_from_db()
        assert held.comparison.state == "discarded"


class TestSearch:
    @pytest.mark.skipif("connection.vendor != 'sqlite'")  # test_histories.py counts what PostgreSQL reads
    @pytest.mark.parametrize("responses", ["fresh", "reuse"])
    def test_it_is_not_looked_for_among_all_that_they_have_judged(self, annotator, responses, settings):
        """For each pair that was ready, SQLite went through all of their assignments."""
        settings.BUFFER_MIN = settings.BUFFER_MAX = 100
        experiment = make_experiment(
            ready=True, n_tasks=50, annotators=(annotator,), responses=responses, n_policies=6
        )
        for _ in range(40):
            click(experiment, annotator)
        n_ready = experiment.comparisons.filter(state="ready").count()
        assert n_ready >= 30
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 10

        connection.connection.set_progress_handler(step, 10)
        try:
            assert assign(experiment, annotator).comparison.experiment_id == experiment.pk
        finally:
            connection.connection.set_progress_handler(None, 0)
        # Of its virtual machine: 96 to 128 for each pair that is ready, 280 in a pool, whose order asks for
        # what they saw of each task; 640 where it went through assignments.
        assert steps < 250 * n_ready

    def test_there_is_a_pair_until_all_are_judged(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        assert has_next(experiment=experiment, annotator=annotator)
        for _ in range(experiment.comparisons.count()):
            click(experiment, annotator)
        assert not has_next(experiment=experiment, annotator=annotator)

    def test_there_is_one_that_is_held_already(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = assign(experiment, annotator)
        experiment.comparisons.exclude(pk=held.comparison.pk).update(state="discarded")
        assert has_next(experiment=experiment, annotator=annotator)

    @pytest.mark.parametrize(("shared", "other"), [("policy_i", "policy_j"), ("policy_j", "policy_i")])
    def test_a_turn_is_had_on_a_pair_and_not_on_one_of_its_policies(self, annotator, shared, other):
        experiment = make_experiment(
            n_policies=4, sampler="round_robin", ready=True, annotators=(annotator, make_user("ben"))
        )
        ready = list(experiment.comparisons.filter(state="ready").order_by("pk"))
        judged, alike = next(
            (a, b)
            for a in ready
            for b in ready
            if getattr(a, shared) == getattr(b, shared) and getattr(a, other) != getattr(b, other)
        )
        experiment.comparisons.exclude(pk__in=[judged.pk, alike.pk]).update(state="discarded")
        # The pair whose turn it is not is the older one.
        rows = PairCount.objects.filter(experiment=experiment)
        if judged.pk > alike.pk:
            judged, alike = alike, judged
        rows.filter(policy_i=judged.policy_i, policy_j=judged.policy_j).update(last_annotator=annotator)
        assert assign(experiment, annotator).comparison == alike


class TestDiscarding:
    """`discard_unwanted` ends what nobody is left to see."""

    def test_what_everybody_has_seen_under_another_number_is_discarded(self, annotator):
        experiment = make_experiment(ready=True, responses="reuse", annotators=(annotator,))
        seen = click(experiment, annotator).comparison
        twin = copy_of(seen, state="ready", outcome=None, judged_at=None)
        assert discard_unwanted(experiment_id=experiment.pk) == 1
        twin.refresh_from_db()
        assert twin.state == "discarded"

    def test_what_somebody_was_given_stays_theirs(self, annotator, bob):
        experiment = make_experiment(ready=True, responses="reuse", overlap=2, annotators=(annotator, bob))
        assign(experiment, annotator)
        Membership.objects.all().delete()
        assert discard_unwanted(experiment_id=experiment.pk) == 0
