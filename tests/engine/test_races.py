"""Many at once. Real threads, each with a connection of its own, on a database that really commits.

What must hold on every database is tested on every database; what is about row locks waits on PostgreSQL
until the other side is seen to be blocked, so that the interleaving is the one that is meant.
"""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone

from engine.domain.errors import AssignmentLostError, WrongStateError
from engine.generation.worker import write_batch
from engine.models import Assignment, Comparison, Experiment, Judgment, JudgmentVoid, Response, User
from engine.selectors import counts
from engine.services import assignments
from engine.services.experiments import discard_leftovers, stop
from engine.services.generation import (
    ClaimedResponses,
    Written,
    claim_responses,
    expire_claims,
    store_outcomes,
)
from engine.services.judging import rebuild_counts, record_answer, void_judgment
from engine.services.planning import advance
from tests.backends import SkilledBackend
from tests.concurrency import at_once, blocked, with_helpers
from tests.factories import (
    assign,
    assign_all,
    assign_next,
    click,
    make_experiment,
    make_user,
    skip,
    write_responses,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def people(n: int) -> tuple[User, ...]:
    return tuple(make_user() for _ in range(n))


def assert_every_click_counts_once(experiment: Experiment, clicks: int) -> None:
    judged = Comparison.objects.filter(experiment=experiment, state="judged")
    assert Judgment.objects.count() == clicks
    assert judged.count() == clicks
    assert Judgment.objects.values("comparison").distinct().count() == clicks
    assert counts.comparison_count(experiment.pk) == clicks
    assert rebuild_counts(experiment_id=experiment.pk) == {}


class TestClicks:
    def test_twenty_annotators_at_once_never_share_a_pair_and_lose_no_click(self, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 60
        users = people(20)
        experiment = make_experiment(ready=True, annotators=users, n_policies=4)

        def label(user: User) -> list[int]:
            seen = []
            while (held := assign_next(experiment_id=experiment.pk, annotator=user)) is not None:
                seen.append(held.comparison_id)
                assert record_answer(
                    experiment_id=experiment.pk, token=held.token, annotator=user, choice="left"
                ).created
            return seen

        seen = at_once([lambda user=user: label(user) for user in users])
        shown = [comparison_id for one in seen for comparison_id in one]
        assert len(shown) == len(set(shown)) == 60
        assert Assignment.objects.count() == 60
        assert_every_click_counts_once(experiment, 60)

    def test_with_planners_workers_and_sweeps_in_between_nothing_is_lost_or_doubled(self, settings):
        settings.BUFFER_MIN = 8
        settings.GENERATION_BATCH_MAX = 4
        users = people(6)
        experiment = make_experiment(
            ready=True, annotators=users, n_policies=6, seed=3, delta=1e-9, budget=500
        )

        def label(user: User) -> int:
            clicks = 0
            while clicks < 6:
                held = assign_next(experiment_id=experiment.pk, annotator=user)
                if held is None:
                    time.sleep(0.005)
                    continue
                if held.comparison_id % 17 == 0:
                    skip(experiment_id=experiment.pk, token=held.token, annotator=user)
                    continue
                clicks += record_answer(
                    experiment_id=experiment.pk,
                    token=held.token,
                    annotator=user,
                    choice="left" if held.comparison_id % 2 else "right",
                ).created
                advance(experiment_id=experiment.pk)
            return clicks

        clicks = with_helpers(
            [lambda user=user: label(user) for user in users],
            [
                lambda: write_batch(worker="a", backend=SkilledBackend(6)),
                lambda: write_batch(worker="b", backend=SkilledBackend(6)),
                lambda: advance(experiment_id=experiment.pk),
                lambda: (expire_claims(), discard_leftovers()),
                lambda: rebuild_counts(experiment_id=experiment.pk),
            ],
        )
        assert clicks == 36
        assert_every_click_counts_once(experiment, 36)

    def test_one_pair_clicked_ten_times_at_once_is_one_judgment(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        token = assign(experiment, annotator).token
        choices = ["left", "right"] * 5
        recorded = at_once(
            [
                lambda choice=choice: record_answer(
                    experiment_id=experiment.pk, token=token, annotator=annotator, choice=choice
                )
                for choice in choices
            ]
        )
        assert sum(one.created for one in recorded) == 1
        assert {one.judgment for one in recorded} == {Judgment.objects.get()}
        assert_every_click_counts_once(experiment, 1)

    def test_a_click_and_a_skip_at_once_are_one_of_them(self, annotator):
        """A skip and then an answer under the same token counted as both."""
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other))
        held = assign(experiment, annotator)

        def judge() -> bool:
            try:
                return record_answer(
                    experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left"
                ).created
            except AssignmentLostError:
                return False

        _, judged = at_once(
            [lambda: skip(experiment_id=experiment.pk, token=held.token, annotator=annotator), judge]
        )
        held.comparison.refresh_from_db()
        assert (held.comparison.state, held.comparison.skips) == (
            ("judged", 0) if judged else ("discarded", 1)
        )
        assert_every_click_counts_once(experiment, int(judged))

    def test_a_judgment_is_taken_back_only_once(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        judgment = click(experiment, annotator)

        def take_back() -> bool:
            try:
                void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
            except WrongStateError:
                return False
            return True

        assert sorted(at_once([take_back] * 5)) == [False] * 4 + [True]
        assert JudgmentVoid.objects.count() == 1
        assert counts.comparison_count(experiment.pk) == 0
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_counts_rebuilt_while_people_click_are_never_found_wrong(self, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 30
        users = people(5)
        experiment = make_experiment(ready=True, annotators=users)

        def label(user: User) -> dict[Any, Any]:
            for _ in range(6):
                click(experiment, user)
            return {}

        def rebuild() -> dict[Any, Any]:
            differences = {}
            for _ in range(10):
                differences |= rebuild_counts(experiment_id=experiment.pk)
            return differences

        found = at_once([*[lambda user=user: label(user) for user in users], rebuild, rebuild])
        assert found == [{}] * 7
        assert_every_click_counts_once(experiment, 30)


class TestWorkers:
    def test_workers_that_claim_at_once_share_nothing_and_leave_nothing(self, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 20
        make_experiment()
        claims = at_once([lambda: claim_responses(worker="w", limit=10) for _ in range(8)])
        ids = [response.pk for claim in claims for response in claim.responses]
        assert len(ids) == len(set(ids))
        rest = claim_responses(worker="w", limit=1000).responses
        assert len(ids) + len(rest) == Response.objects.count() == 40

    def test_both_halves_of_a_pair_stored_at_once_make_it_ready(self, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 12
        experiment = make_experiment()
        firsts, seconds = claim_halves(experiment)

        def store(claim: ClaimedResponses) -> set[int]:
            touched: set[int] = set()
            for response in claim.responses:
                touched |= store_outcomes(claim=claim.token, outcomes=[written(response)])
            return touched

        touched = at_once([lambda: store(firsts), lambda: store(seconds)])
        assert set.union(*touched) == {experiment.pk}
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}


def claim_halves(experiment: Experiment) -> tuple[ClaimedResponses, ClaimedResponses]:
    """Two workers, one with every comparison's first response and one with every second."""
    seconds = experiment.comparisons.values_list("response_j", flat=True)
    Response.objects.filter(pk__in=list(seconds)).update(created_at=timezone.now() + timedelta(hours=1))
    n = experiment.comparisons.count()
    return claim_responses(worker="a", limit=n), claim_responses(worker="b", limit=n)


def written(response: Response, text: str = "") -> Written:
    return Written(
        response_id=response.pk,
        # No two are the same: identical ones are settled at once.
        text=text or f"fine {response.pk}",
        model="m",
        prompt_tokens=1,
        completion_tokens=1,
        finish_reason="stop",
        latency_seconds=0.1,
    )


class TestPlanners:
    def test_eight_at_once_plan_no_more_than_the_target_and_the_budget_allow(self, settings, annotator):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 5
        experiment = make_experiment(planned=False, annotators=(annotator,), budget=7)
        for clicks in range(7):
            at_once([lambda: advance(experiment_id=experiment.pk)] * 8)
            buffered = experiment.comparisons.filter(state__in=["planned", "ready"]).count()
            assert buffered == min(5, 7 - clicks)
            numbers = [c.plan["number"] for c in experiment.comparisons.order_by("pk")]
            assert numbers == list(range(len(numbers)))
            write_responses()
            click(experiment, annotator)
        at_once([lambda: advance(experiment_id=experiment.pk)] * 8)
        experiment.refresh_from_db()
        assert (experiment.state, experiment.conclusion) == ("concluded", "budget")
        assert experiment.snapshots.filter(comparisons=7).count() == 1
        assert experiment.comparisons.count() == 7


@pytest.mark.postgres_only
@pytest.mark.usefixtures("late_planner")
class TestRowLocks:
    def test_two_beats_lock_pairs_in_one_order(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), n_policies=4)
        first, second = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=2)
        with transaction.atomic():
            Assignment.objects.select_for_update(no_key=True).get(pk=first.pk)
            beat = blocked(lambda: assignments.stay(experiment_id=experiment.pk, annotator=annotator))
            # Another one comes to the second one. If the first held it, neither could go on.
            Assignment.objects.select_for_update(no_key=True).get(pk=second.pk)
        beat.result(timeout=60)
        assert Assignment.objects.get(pk=second.pk).expires_at > second.expires_at

    def test_a_second_planner_does_not_wait_for_the_first(self):
        experiment = make_experiment(planned=False)
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            [second] = at_once([lambda: advance(experiment_id=experiment.pk)])
        assert second is None
        assert not experiment.comparisons.exists()
        assert advance(experiment_id=experiment.pk).planned > 0

    def test_a_click_does_not_wait_for_the_planner(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            [judgment] = at_once([lambda: click(experiment, annotator)])
        assert judgment == Judgment.objects.get()

    def test_a_pair_that_somebody_is_taking_is_passed_over(self, annotator):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other))
        with transaction.atomic():
            mine = assign(experiment, annotator)
            [theirs] = at_once([lambda: assign(experiment, other)])
        assert theirs.comparison != mine.comparison

    def test_the_worker_that_stores_the_second_half_sees_the_first(self):
        experiment = make_experiment()
        firsts, seconds = claim_halves(experiment)
        comparison = experiment.comparisons.order_by("pk").first()
        first = next(r for r in firsts.responses if r.pk == comparison.response_i_id)
        second = next(r for r in seconds.responses if r.pk == comparison.response_j_id)

        with transaction.atomic():
            assert store_outcomes(claim=firsts.token, outcomes=[written(first)]) == set()
            later = blocked(lambda: store_outcomes(claim=seconds.token, outcomes=[written(second)]))
        assert later.result() == {experiment.pk}
        comparison.refresh_from_db()
        assert comparison.state == "ready"

    def test_a_slow_worker_that_stores_just_in_time_keeps_the_rest_of_its_claim(self):
        experiment = make_experiment()
        claim = claim_responses(worker="slow", limit=1000)
        long_ago = timezone.now() - timedelta(seconds=django_settings.CLAIM_SECONDS + 1)
        Response.objects.filter(claim=claim.token).update(claim_expires_at=long_ago)
        with transaction.atomic():
            store_outcomes(claim=claim.token, outcomes=[written(claim.responses[0])])
            expiry = blocked(expire_claims)
        assert expiry.result() == set()
        kept = Response.objects.filter(claim=claim.token, state="generating")
        assert kept.count() == len(claim.responses) - 1
        store_outcomes(claim=claim.token, outcomes=[written(r) for r in claim.responses[1:]])
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_counts_are_rebuilt_from_a_click_and_its_count_together(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = assign(experiment, annotator)
        with transaction.atomic():
            record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
            rebuilt = blocked(lambda: rebuild_counts(experiment_id=experiment.pk))
        assert rebuilt.result() == {}
        advance(experiment_id=experiment.pk)
        assert counts.comparison_count(experiment.pk) == 1

    def test_a_skip_in_the_moment_of_the_conclusion_leaves_nothing_pending(self, annotator):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other))
        held = assign(experiment, annotator)
        with transaction.atomic():
            skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
            stopped = blocked(lambda: stop(experiment_id=experiment.pk))
        stopped.result(timeout=60)
        discard_leftovers()
        assert not experiment.comparisons.filter(state__in=Comparison.PENDING).exists()
