"""Leases: whose they are, which one is found again, and what is left alone by what others do."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection

from engine.models import Comparison, Experiment, Judgment, Lease, Membership, PairCount, Response, clock
from engine.services import allowances
from engine.services.experiments import stop
from engine.services.judging import judge_leased, void_judgment
from engine.services.leases import (
    discard_unwanted,
    expire_leases,
    has_next,
    lease_again,
    lease_next,
    new_lease,
    renew,
    renew_leases,
    return_leases,
    skip,
)
from engine.services.planning import advance
from tests.factories import add_member, click, lease, make_experiment, make_user

pytestmark = pytest.mark.django_db

RUN_OUT = timedelta(seconds=1)


@pytest.fixture
def bob(db):
    return make_user("bob")


@pytest.fixture
def experiment(annotator, bob) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator, bob))


def another(experiment: Experiment, user, held: Lease) -> Lease:
    """A second pair for somebody who looks at one."""
    found = lease_next(experiment_id=experiment.pk, annotator=user, besides=[held.token])
    assert found is not None, "nothing is ready"
    return found


class TestTheNextPair:
    def test_beside_those_on_the_screen_it_is_found_without_reading_these(
        self, experiment, annotator, django_assert_num_queries
    ):
        held = lease(experiment, annotator)
        # The allowance, the pair that is due, and its state and the lease, which PostgreSQL writes at once.
        with django_assert_num_queries(3 if connection.vendor == "postgresql" else 4):
            found = another(experiment, annotator, held)
        assert states(held, found) == ["active", "active"]

    def test_is_the_one_that_they_hold_and_that_their_screen_lacks(self, experiment, annotator):
        first = lease(experiment, annotator)
        second = another(experiment, annotator, first)
        assert another(experiment, annotator, second) == first
        assert Lease.objects.count() == 2

    def test_tokens_that_they_do_not_hold_take_up_no_room(self, experiment, annotator):
        unknown = [uuid.uuid4() for _ in range(allowances.MOST_HELD)]
        found = lease_next(experiment_id=experiment.pk, annotator=annotator, besides=unknown)
        assert states(found) == ["active"]
        again = lease_next(experiment_id=experiment.pk, annotator=annotator, besides=unknown)
        assert again == found

    def test_is_leased_anew_where_it_is_handed_back_at_this_moment(self, experiment, annotator, monkeypatch):
        held = lease(experiment, annotator)

        def handed_back(lease: Lease) -> None:
            return_leases(annotator=annotator, tokens=[lease.token])

        monkeypatch.setattr("engine.services.leases.renew", handed_back)
        found = lease_next(experiment_id=experiment.pk, annotator=annotator)
        assert found == held
        assert states(found) == ["active"]

    @pytest.mark.skipif("connection.vendor != 'sqlite'")  # test_histories.py counts what PostgreSQL reads
    @pytest.mark.parametrize("responses", ["fresh", "reuse"])
    def test_it_is_not_looked_for_among_all_that_they_have_judged(self, annotator, responses, settings):
        """For each pair that was ready, SQLite went through all of their leases."""
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
            assert lease(experiment, annotator).comparison.experiment_id == experiment.pk
        finally:
            connection.connection.set_progress_handler(None, 0)
        # Of its virtual machine: 96 to 128 for each pair that is ready; 640 where it went through leases.
        assert steps < 250 * n_ready


def states(*held: Lease) -> list[str]:
    return [Lease.objects.get(pk=each.pk).state for each in held]


def ends(*held: Lease) -> list[object]:
    return [Lease.objects.get(pk=each.pk).expires_at for each in held]


def run_out(*held: Lease) -> None:
    Lease.objects.filter(pk__in=[each.pk for each in held]).update(expires_at=clock.now() - RUN_OUT)


class TestFoundAgain:
    """A pair that an annotator handed back and that is theirs once more."""

    def test_one_s_own_lease_goes_on_though_somebody_else_had_the_pair_since(
        self, experiment, annotator, bob
    ):
        held = lease(experiment, annotator)
        return_leases(annotator=annotator)
        theirs = lease(experiment, bob)
        assert theirs.comparison == held.comparison
        return_leases(annotator=bob)
        again = lease(experiment, annotator)
        assert (again.pk, again.annotator) == (held.pk, annotator)
        assert states(held, theirs) == ["active", "returned"]
        assert lease(experiment, annotator).token == held.token, "it is theirs in the database too"

    def test_what_was_handed_back_comes_first_where_a_check_may_take_its_place(
        self, experiment, annotator, bob
    ):
        """So that it is not the check that brings it back."""
        first = lease(experiment, bob)
        held = lease(experiment, annotator)
        return_leases(annotator=bob)
        return_leases(annotator=annotator)
        assert first.comparison.pk < held.comparison.pk
        asked = []
        found = new_lease(experiment_id=experiment.pk, annotator=annotator, instead=asked.append)
        assert isinstance(found, Lease)
        assert found.comparison == held.comparison
        assert [comparison.had_since for comparison in asked] == [held.created_at]

    def test_elsewhere_the_oldest_pair_comes_first(self, experiment, annotator, bob):
        first = lease(experiment, bob)
        lease(experiment, annotator)
        return_leases(annotator=bob)
        return_leases(annotator=annotator)
        found = new_lease(experiment_id=experiment.pk, annotator=annotator)
        assert isinstance(found, Lease)
        assert (found.comparison, found.annotator) == (first.comparison, annotator)

    def test_a_pair_that_was_taken_back_is_reserved_at_once(self, experiment, annotator, bob, admin):
        skipped = lease(experiment, bob)
        skip(experiment_id=experiment.pk, token=skipped.token, annotator=bob)
        judged = lease(experiment, annotator)
        assert judged.comparison == skipped.comparison
        judgment = judge_leased(
            experiment_id=experiment.pk, token=judged.token, annotator=annotator, choice="left"
        ).judgment
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        again = lease_again(comparison_id=judged.comparison.pk, annotator=annotator)
        assert again is not None, "that somebody else skipped it is nothing to this annotator"
        assert Comparison.objects.get(pk=judged.comparison.pk).state == "leased"
        assert lease_again(comparison_id=judged.comparison.pk, annotator=annotator) is None


class TestTurns:
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
        assert lease(experiment, annotator).comparison == alike


class TestRenewing:
    def test_one_pair_is_renewed_and_no_other(self, experiment, annotator, bob):
        kept = lease(experiment, annotator)
        mine, theirs = another(experiment, annotator, kept), lease(experiment, bob)
        run_out(kept, mine, theirs)
        before = ends(mine, theirs)
        assert renew_leases(annotator=annotator, tokens=[kept.token, theirs.token]) == 1
        assert ends(kept) > [clock.now()]
        assert ends(mine, theirs) == before
        run_out(kept)
        renewed = renew(kept)
        assert renewed is not None
        assert renewed.expires_at > clock.now()
        assert ends(mine, theirs) == before

    def test_one_that_is_over_stays_over(self, experiment, annotator):
        held = lease(experiment, annotator)
        return_leases(annotator=annotator)
        before = ends(held)
        assert renew(held) is None
        assert renew_leases(annotator=annotator, tokens=[held.token]) == 0
        assert ends(held) == before

    def test_one_that_was_held_for_too_long_is_not_renewed(self, experiment, annotator):
        held = lease(experiment, annotator)
        Lease.objects.filter(pk=held.pk).update(held_until=clock.now() - RUN_OUT)
        assert renew(held) is None
        assert renew_leases(annotator=annotator, tokens=[held.token]) == 0

    def test_nothing_is_held_beyond_its_longest_time(self, experiment, annotator):
        held = lease(experiment, annotator)
        soon = clock.now() + timedelta(seconds=settings.LEASE_SECONDS / 2)
        Lease.objects.filter(pk=held.pk).update(held_until=soon)
        assert renew_leases(annotator=annotator, tokens=[held.token]) == 1
        assert ends(held) == [soon]


class TestEnding:
    def test_who_leaves_hands_back_what_is_theirs_and_no_more(self, experiment, annotator, bob):
        given, kept = lease(experiment, annotator), lease(experiment, bob)
        mine = another(experiment, annotator, given)
        assert return_leases(annotator=annotator, tokens=[given.token, kept.token]) == {experiment.pk}
        assert states(given, mine, kept) == ["returned", "active", "active"]
        assert [Comparison.objects.get(pk=each.comparison.pk).state for each in (given, mine, kept)] == [
            "ready",
            "leased",
            "leased",
        ]

    def test_who_leaves_hands_back_each_pair(self, experiment, annotator):
        first = lease(experiment, annotator)
        second = another(experiment, annotator, first)
        return_leases(annotator=annotator)
        assert states(first, second) == ["returned", "returned"]
        assert {Comparison.objects.get(pk=each.comparison.pk).state for each in (first, second)} == {"ready"}

    def test_the_sweep_ends_what_ran_out_and_no_more(self, experiment, annotator, bob):
        gone, kept = lease(experiment, annotator), lease(experiment, bob)
        run_out(gone)
        assert expire_leases() == {experiment.pk}
        assert states(gone, kept) == ["expired", "active"]

    def test_an_experiment_that_concluded_discards_its_own_pairs_alone(self, experiment, annotator, bob):
        other = make_experiment(ready=True, annotators=(annotator, bob))
        stop(experiment_id=other.pk)
        held = lease(experiment, annotator)
        return_leases(annotator=annotator)
        assert Comparison.objects.get(pk=held.comparison.pk).state == "ready"


class TestDiscarding:
    """`discard_unwanted` looks for what nobody is left to see."""

    def test_what_was_taken_back_by_one_who_watches_is_left_to_the_others(
        self, experiment, annotator, bob, admin
    ):
        judgment = click(experiment, annotator)
        click(experiment, bob)  # an answer that stands, to another pair
        waiting = experiment.comparisons.filter(state="ready").order_by("pk").first()
        Membership.objects.filter(user=annotator).delete()
        add_member(experiment, annotator, Membership.Role.VIEWER)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="They may see the policies.")
        assert discard_unwanted(experiment_id=experiment.pk) == 0
        Membership.objects.filter(user=bob).delete()
        add_member(experiment, make_user("cat"))
        assert discard_unwanted(experiment_id=experiment.pk) == 0, "a newcomer is left"
        Membership.objects.filter(role=Membership.Role.ANNOTATOR).delete()
        add_member(experiment, annotator)
        assert discard_unwanted(experiment_id=experiment.pk) == 1
        judgment.comparison.refresh_from_db()
        waiting.refresh_from_db()
        assert (judgment.comparison.state, waiting.state) == ("discarded", "ready")
        assert judgment.comparison.discard_reason == (
            "The answer was taken back by somebody who may see policies; no other annotator is left."
        )
        assert waiting.discard_reason == ""

    def test_nothing_is_discarded_for_having_been_looked_at(self, annotator, bob):
        """While nobody annotates, nobody is left to see anything. Somebody may come."""
        experiment = make_experiment(ready=True, overlap=2, annotators=(annotator, bob))
        half_judged = click(experiment, annotator).comparison
        handed_back = lease(experiment, annotator)
        return_leases(annotator=annotator)
        assert half_judged.pk != handed_back.comparison.pk
        Membership.objects.all().delete()
        assert discard_unwanted(experiment_id=experiment.pk) == 0

    def test_what_was_taken_back_takes_nothing_else_with_it(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        add_member(experiment, annotator, Membership.Role.VIEWER)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="They may see the policies.")
        Membership.objects.filter(role=Membership.Role.ANNOTATOR).delete()
        assert discard_unwanted(experiment_id=experiment.pk) == 1
        assert experiment.comparisons.filter(state="ready").exists()

    def test_what_somebody_skipped_takes_nothing_else_with_it(self, experiment, annotator):
        held = lease(experiment, annotator)
        skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
        Membership.objects.all().delete()
        assert discard_unwanted(experiment_id=experiment.pk) == 1
        assert experiment.comparisons.filter(state="ready").exists()


class TestTakingBack:
    def test_it_concerns_the_lease_of_who_judged_and_the_evidence(self, annotator, bob, admin):
        experiment = make_experiment(ready=True, overlap=2, annotators=(annotator, bob))
        judgment = click(experiment, annotator)
        assert click(experiment, bob).comparison == judgment.comparison
        advance(experiment_id=experiment.pk)
        Lease.objects.filter(token=judgment.token).update(held_until=clock.now() - RUN_OUT)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        mine, theirs = (judgment.comparison.leases.get(annotator=each) for each in (annotator, bob))
        assert (mine.state, theirs.state) == ("returned", "judged")
        assert lease(experiment, annotator).comparison == judgment.comparison, "nobody's turn is over"
        experiment.refresh_from_db()
        assert experiment.evidence_stale

    def test_a_past_vote_with_one_text_to_show_is_not_judged_anew(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        Comparison.objects.filter(pk=judgment.comparison.pk).update(plan={"past": True})
        Response.objects.filter(pk=judgment.comparison.response_j.pk).update(
            state="failed", failure_reason="None was given."
        )
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        judgment.comparison.refresh_from_db()
        assert judgment.comparison.state == "discarded"


def test_an_answer_after_one_s_lease_ran_out_is_late(experiment, annotator):
    held = lease(experiment, annotator)
    in_time = judge_leased(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
    assert (in_time.created, in_time.late) == (True, False)
    late = lease(experiment, annotator)
    return_leases(annotator=annotator)
    after = judge_leased(experiment_id=experiment.pk, token=late.token, annotator=annotator, choice="left")
    assert (after.created, after.late) == (True, True)
    again = judge_leased(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="right")
    assert (again.judgment, again.created, again.late) == (in_time.judgment, False, True)


def test_a_late_answer_is_kept_where_somebody_else_s_stands(annotator, bob):
    """With two answers asked for, another person's answer is no reason against one's own."""
    experiment = make_experiment(ready=True, overlap=2, annotators=(annotator, bob))
    held = lease(experiment, annotator)
    return_leases(annotator=annotator)
    assert click(experiment, bob).comparison == held.comparison
    late = judge_leased(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
    assert late.created
    assert Judgment.objects.filter(comparison=held.comparison, standing=True).count() == 2
    assert sum(PairCount.objects.filter(experiment=experiment).values_list("comparisons", flat=True)) == 1


def test_a_turn_is_as_long_as_the_longest_lease(experiment, annotator, bob):
    """A pair that ran out goes to others for as long as it was held, and may then come back."""
    held = lease(experiment, annotator)
    Lease.objects.filter(pk=held.pk).update(held_until=clock.now() - RUN_OUT)
    run_out(held)
    expire_leases()
    assert lease(experiment, annotator).comparison != held.comparison
    return_leases(annotator=annotator)
    Lease.objects.filter(pk=held.pk).update(held_until=clock.now() - allowances.hold() - RUN_OUT)
    assert lease(experiment, annotator).comparison == held.comparison


def test_others_have_their_turn_whatever_else_was_judged(experiment, annotator, bob):
    click(experiment, bob)
    held = lease(experiment, annotator)
    Lease.objects.filter(pk=held.pk).update(held_until=clock.now() - RUN_OUT)
    run_out(held)
    expire_leases()
    assert lease(experiment, annotator).comparison != held.comparison


class TestHasNext:
    def test_there_is_a_pair_until_all_are_judged(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        assert has_next(experiment_id=experiment.pk, annotator=annotator)
        for _ in range(experiment.comparisons.count()):
            click(experiment, annotator)
        assert not has_next(experiment_id=experiment.pk, annotator=annotator)

    def test_there_is_one_that_is_held_already(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = lease(experiment, annotator)
        experiment.comparisons.exclude(pk=held.comparison.pk).update(state="discarded")
        assert has_next(experiment_id=experiment.pk, annotator=annotator)

    def test_there_is_none_while_others_have_their_turn(self, experiment, annotator):
        held = lease(experiment, annotator)
        experiment.comparisons.exclude(pk=held.comparison.pk).update(state="discarded")
        Lease.objects.filter(pk=held.pk).update(held_until=clock.now() - RUN_OUT)
        run_out(held)
        expire_leases()
        assert not has_next(experiment_id=experiment.pk, annotator=annotator)
        Lease.objects.filter(pk=held.pk).update(held_until=clock.now() - allowances.hold() - RUN_OUT)
        assert has_next(experiment_id=experiment.pk, annotator=annotator)
