"""Handing waiting responses to workers and taking the texts back."""

import uuid
from collections import Counter
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from engine.models import Comparison, Response
from engine.services.experiments import stop
from engine.services.generation import (
    ClaimedResponses,
    Failed,
    Written,
    claim_responses,
    expire_claims,
    fair_shares,
    release_claim,
    store_outcomes,
)
from tests.factories import hopeless, make_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def written(response: Response, text: str = "", **fields: object) -> Written:
    values = {
        "model": "m",
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "finish_reason": "stop",
        "latency_seconds": 0.5,
    }
    return Written(response_id=response.pk, text=text or f"fine {response.pk}", **(values | fields))


def failed(response: Response, reason: str = "too hot") -> Failed:
    return Failed(response_id=response.pk, reason=reason)


def claim_all() -> ClaimedResponses:
    return claim_responses(worker="w", limit=1000)


def silence(claim: ClaimedResponses) -> None:
    """Make a claim look as if its worker had died."""
    long_ago = timezone.now() - timedelta(seconds=settings.CLAIM_SECONDS + 1)
    Response.objects.filter(claim=claim.token).update(claim_expires_at=long_ago)


def silence_all() -> None:
    long_ago = timezone.now() - timedelta(seconds=settings.CLAIM_SECONDS + 1)
    Response.objects.filter(state="generating").update(claim_expires_at=long_ago)


def halves_of(comparison: Comparison) -> list[Response]:
    return [comparison.response_i, comparison.response_j]


class TestClaim:
    def test_the_oldest_come_first(self):
        make_experiment()
        late = Response.objects.order_by("pk").last()
        Response.objects.filter(pk=late.pk).update(created_at=timezone.now() - timedelta(hours=1))
        ids = [response.pk for response in claim_responses(worker="w", limit=3).responses]
        assert ids == [late.pk, *Response.objects.order_by("pk").values_list("pk", flat=True)[:2]]

    def test_experiments_share_alike_in_any_order(self):
        first, second = make_experiment(), make_experiment()
        Response.objects.filter(task__experiment=second).update(
            created_at=timezone.now() - timedelta(hours=1)
        )
        claimed = claim_responses(worker="w", limit=6).responses
        assert Counter(response.task.experiment_id for response in claimed) == {first.pk: 3, second.pk: 3}

    def test_what_one_experiment_does_not_need_goes_to_the_other(self):
        first, second = make_experiment(), make_experiment()
        n = Response.objects.filter(task__experiment=second).count()
        keep = Response.objects.filter(task__experiment=first).order_by("pk")[:1]
        Response.objects.filter(task__experiment=first).exclude(pk__in=keep).update(state="done")
        claimed = claim_responses(worker="w", limit=n).responses
        assert Counter(r.task.experiment_id for r in claimed) == {first.pk: 1, second.pk: n - 1}

    @pytest.mark.parametrize(
        ("queued", "limit", "shares"),
        [
            ({}, 5, {}),
            ({1: 9}, 5, {1: 5}),
            ({1: 9, 2: 1, 3: 9}, 9, {1: 4, 2: 1, 3: 4}),
            ({1: 9, 2: 9, 3: 9}, 2, {1: 1, 2: 1, 3: 0}),
            ({1: 2, 2: 3}, 100, {1: 2, 2: 3}),
        ],
    )
    def test_each_queue_has_an_equal_share_and_a_short_one_leaves_the_rest(self, queued, limit, shares):
        assert fair_shares(queued, limit) == shares

    def test_a_claim_that_is_being_written_can_be_added_to(self):
        make_experiment()
        claim = claim_responses(worker="w", limit=2)
        more = claim_responses(worker="w", limit=3, joining=claim.token)
        assert more.token == claim.token
        assert len(more.responses) == 3
        assert Response.objects.filter(claim=claim.token, state="generating").count() == 5

    def test_two_claims_share_nothing_and_leave_nothing(self):
        make_experiment()
        n = Response.objects.count()
        first = claim_responses(worker="a", limit=3)
        second = claim_responses(worker="b", limit=1000)
        assert len(first.responses) == 3
        assert len(second.responses) == n - 3
        assert not {r.pk for r in first.responses} & {r.pk for r in second.responses}
        assert claim_all().responses == []

    def test_a_claim_says_who_writes_since_when_and_for_the_how_manieth_time(self):
        make_experiment()
        claim = claim_responses(worker="gpu-1", limit=1)
        row = Response.objects.get(pk=claim.responses[0].pk)
        assert (row.state, row.claim, row.claimed_by, row.attempts) == (
            "generating",
            claim.token,
            "gpu-1",
            1,
        )
        assert row.claim_expires_at is not None


class TestStore:
    def test_a_text_is_stored_with_everything_known_about_it(self):
        make_experiment()
        claim = claim_all()
        response = claim.responses[0]
        store_outcomes(
            claim=claim.token,
            outcomes=[
                written(
                    response,
                    "forty-two",
                    model="tiny",
                    prompt_tokens=5,
                    completion_tokens=2,
                    finish_reason="length",
                    latency_seconds=1.5,
                    guardrail="output",
                )
            ],
        )
        response.refresh_from_db()
        assert (response.state, response.text, response.model) == ("done", "forty-two", "tiny")
        assert (response.prompt_tokens, response.completion_tokens) == (5, 2)
        assert (response.finish_reason, response.latency_seconds) == ("length", 1.5)
        assert (response.guardrail, response.claim) == ("output", None)
        assert response.done_at is not None

    def test_a_comparison_is_ready_only_when_both_of_its_responses_are_done(self):
        experiment = make_experiment()
        claim = claim_all()
        comparison = experiment.comparisons.first()
        first, second = halves_of(comparison)
        assert store_outcomes(claim=claim.token, outcomes=[written(second)]) == set()
        comparison.refresh_from_db()
        assert (comparison.state, comparison.ready_at) == ("planned", None)
        assert store_outcomes(claim=claim.token, outcomes=[written(first)]) == {experiment.pk}
        comparison.refresh_from_db()
        assert comparison.state == "ready"
        assert comparison.ready_at is not None

    def test_both_halves_may_come_in_one_go(self):
        experiment = make_experiment()
        claim = claim_all()
        outcomes = [written(response) for response in claim.responses]
        assert store_outcomes(claim=claim.token, outcomes=outcomes) == {experiment.pk}
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_an_outcome_whose_claim_was_lost_is_dropped(self):
        make_experiment()
        lost = claim_all()
        silence(lost)
        expire_claims()
        taken_over = claim_all()
        assert store_outcomes(claim=lost.token, outcomes=[written(lost.responses[0], "late")]) == set()
        row = Response.objects.get(pk=lost.responses[0].pk)
        assert (row.state, row.text, row.claim) == ("generating", "", taken_over.token)

    def test_an_outcome_that_comes_twice_is_stored_once(self):
        make_experiment()
        claim = claim_all()
        store_outcomes(claim=claim.token, outcomes=[written(claim.responses[0], "first")])
        store_outcomes(claim=claim.token, outcomes=[written(claim.responses[0], "second")])
        assert Response.objects.get(pk=claim.responses[0].pk).text == "first"

    def test_an_outcome_nobody_asked_for_is_dropped(self):
        make_experiment()
        response = Response.objects.first()
        assert store_outcomes(claim=uuid.uuid4(), outcomes=[written(response)]) == set()
        response.refresh_from_db()
        assert response.state == "waiting"

    def test_storing_a_part_renews_the_claim_on_the_rest(self):
        make_experiment()
        claim = claim_all()
        silence(claim)
        store_outcomes(claim=claim.token, outcomes=[written(claim.responses[0])])
        assert expire_claims() == set()
        rest = Response.objects.filter(claim=claim.token, state="generating").count()
        assert rest == len(claim.responses) - 1

    def test_a_text_that_comes_after_the_conclusion_is_kept_but_opens_nothing(self):
        experiment = make_experiment()
        claim = claim_all()
        stop(experiment_id=experiment.pk)
        outcomes = [written(response) for response in claim.responses]
        assert store_outcomes(claim=claim.token, outcomes=outcomes) == set()
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"discarded"}
        assert set(Response.objects.values_list("state", flat=True)) == {"done"}


class TestFailure:
    def test_a_failure_is_retried_until_the_attempts_are_used_up(self, settings):
        settings.GENERATION_ATTEMPTS = 3
        make_experiment()
        pk = Response.objects.order_by("created_at", "pk").first().pk
        seen = []
        for _ in range(3):
            claim = claim_responses(worker="w", limit=1)
            assert claim.responses[0].pk == pk
            store_outcomes(claim=claim.token, outcomes=[failed(claim.responses[0])])
            row = Response.objects.get(pk=pk)
            seen.append((row.state, row.attempts, row.failure_reason))
        assert seen == [
            ("waiting", 1, "too hot"),
            ("waiting", 2, "too hot"),
            ("failed", 3, "too hot"),
        ]

    def test_a_failure_after_the_last_attempt_is_final(self):
        make_experiment()
        claim = claim_responses(worker="w", limit=1)
        store_outcomes(claim=claim.token, outcomes=[hopeless(claim.responses[0].pk)])
        assert Response.objects.get(pk=claim.responses[0].pk).state == "failed"

    def test_it_discards_its_comparison_with_the_reason_and_closes_the_other_response(self):
        experiment = make_experiment()
        comparison = experiment.comparisons.order_by("pk").first()
        first, second = halves_of(comparison)
        Response.objects.exclude(pk=first.pk).update(created_at=timezone.now() + timedelta(hours=1))
        claim = claim_responses(worker="w", limit=1)
        touched = store_outcomes(claim=claim.token, outcomes=[hopeless(first.pk, "too long")])
        assert touched == {experiment.pk}
        comparison.refresh_from_db()
        second.refresh_from_db()
        assert comparison.state == "discarded"
        assert comparison.discard_reason == "A response could not be generated: too long"
        assert (second.state, second.failure_reason) == (
            "failed",
            "The other response of its comparison failed.",
        )
        assert second.pk not in {response.pk for response in claim_all().responses}


class TestGivingBack:
    def test_a_silent_claim_expires_and_its_responses_wait_anew(self):
        make_experiment()
        claim = claim_all()
        assert expire_claims() == set()
        silence(claim)
        expire_claims()
        assert set(Response.objects.values_list("state", "claim", "failure_reason")) == {
            ("waiting", None, "The worker that was writing it disappeared.")
        }
        assert len(claim_all().responses) == len(claim.responses)

    def test_a_response_whose_workers_keep_disappearing_fails(self, settings):
        settings.GENERATION_ATTEMPTS = 2
        experiment = make_experiment()
        silence(claim_all())
        expire_claims()
        while claim := claim_all().responses:
            silence_all()
            touched = expire_claims()
            assert len(claim) == 1
        assert touched == {experiment.pk}
        assert set(Response.objects.values_list("state", flat=True)) == {"failed"}
        reasons = set(experiment.comparisons.values_list("state", "discard_reason"))
        assert reasons == {
            (
                "discarded",
                "A response could not be generated: The worker that was writing it disappeared.",
            )
        }

    def test_what_was_finished_before_a_release_stays_finished(self):
        make_experiment()
        claim = claim_all()
        store_outcomes(claim=claim.token, outcomes=[written(claim.responses[0])])
        release_claim(claim=claim.token, reason="out of memory")
        assert Response.objects.get(pk=claim.responses[0].pk).state == "done"
        rest = Response.objects.exclude(pk=claim.responses[0].pk)
        assert set(rest.values_list("state", "failure_reason")) == {("waiting", "out of memory")}

    def test_releasing_one_claim_leaves_the_others_alone(self):
        make_experiment()
        one = claim_responses(worker="a", limit=2)
        other = claim_responses(worker="b", limit=2)
        release_claim(claim=one.token, reason="gone")
        assert Response.objects.filter(claim=other.token, state="generating").count() == 2
        assert release_claim(claim=uuid.uuid4(), reason="never was") == set()

    def test_what_nobody_needs_any_more_is_not_written_again(self):
        experiment = make_experiment()
        claim = claim_all()
        stop(experiment_id=experiment.pk)
        release_claim(claim=claim.token, reason="out of memory")
        assert claim_all().responses == []


class TestSuspects:
    """Any response of a batch that ended suddenly may have caused the end."""

    def test_they_come_back_in_smaller_batches_and_at_last_one_by_one(self, settings):
        settings.GENERATION_ATTEMPTS = 3
        make_experiment()
        sizes = []
        for _ in range(3):
            claim = claim_responses(worker="w", limit=8)
            sizes.append(len(claim.responses))
            silence(claim)
            expire_claims()
        assert sizes == [8, 2, 1]

    def test_one_poisoned_response_fails_alone(self, settings):
        settings.GENERATION_ATTEMPTS = 3
        experiment = make_experiment()
        poison = Response.objects.order_by("pk")[3].pk
        while (claim := claim_responses(worker="w", limit=32)).responses:
            if poison in {response.pk for response in claim.responses}:
                silence(claim)
                expire_claims()
            else:
                store_outcomes(claim=claim.token, outcomes=map(written, claim.responses))
        partner = "The other response of its comparison failed."
        failed_ids = Response.objects.filter(state="failed").exclude(failure_reason=partner)
        assert list(failed_ids.values_list("pk", flat=True)) == [poison]
        states = Counter(experiment.comparisons.values_list("state", flat=True))
        assert states == {"ready": experiment.comparisons.count() - 1, "discarded": 1}

    def test_they_join_no_others(self):
        make_experiment()
        silence(claim_responses(worker="w", limit=2))
        silence_all()
        expire_claims()
        suspects = set(Response.objects.filter(crashes=1).values_list("pk", flat=True))
        assert len(suspects) == 2
        Response.objects.filter(pk__in=suspects).update(created_at=timezone.now() + timedelta(hours=1))
        fresh = claim_responses(worker="w", limit=3)
        more = claim_responses(worker="w", limit=1000, joining=fresh.token)
        assert not suspects & {r.pk for r in (*fresh.responses, *more.responses)}
        assert {r.pk for r in claim_all().responses} <= suspects

    def test_neither_a_stopped_worker_nor_a_failure_of_its_own_makes_a_suspect(self):
        make_experiment()
        claim = claim_all()
        store_outcomes(claim=claim.token, outcomes=[failed(claim.responses[0])])
        release_claim(claim=claim.token, reason="stopped", blameless=True)
        assert set(Response.objects.values_list("crashes", flat=True)) == {0}
        assert len(claim_all().responses) == len(claim.responses)
