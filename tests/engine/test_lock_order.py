"""Rows of one table are locked by number, so that no two transactions wait for each other.

Each test moves the row of the lowest number to the end of the table, where a statement without an order finds
it last, and locks the two rows by number while the other side runs.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection, models, transaction
from django.db.models import F
from django.utils import timezone

from engine.domain import secret_draws
from engine.domain.errors import PersonError
from engine.models import Assignment, Experiment, Response, Trial, User
from engine.services import (
    assignments,
    drafts,
    experiments,
    forgetting,
    generation,
    retention,
    serving,
    trials,
)
from tests.concurrency import blocked
from tests.factories import hopeless, make_experiment, make_spec, make_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]


@pytest.fixture
def draft() -> Experiment:
    """A draft of which three responses are being tried."""
    experiment = make_experiment(running=False)
    trials.start_trial(experiment_id=experiment.pk, positions=[0], by=make_user())
    return experiment


def locks_by_number(rows: models.QuerySet[Any], call: Callable[[], Any], *, column: str = "state") -> Any:
    """Run ``call``, which locks these rows, while somebody locks the first two by number; its result."""
    first, second, *_ = rows.order_by("pk").values_list("pk", flat=True)
    rows.filter(pk=first).update(**{column: F(column)})

    def read_as_the_table_lies() -> Any:
        with connection.cursor() as cursor:
            # The database may choose such a plan at any time.
            cursor.execute("SET enable_indexscan = off")
            cursor.execute("SET enable_bitmapscan = off")
        return call()

    with transaction.atomic():
        rows.select_for_update().get(pk=first)
        other = blocked(read_as_the_table_lies)
        # If the other side held this one, neither could go on.
        rows.select_for_update().get(pk=second)
    return other.result(timeout=60)


def tried() -> models.QuerySet[Response]:
    return Response.objects.filter(trial__isnull=False)


class TestTriedResponses:
    def test_starting_the_draft(self, draft):
        locks_by_number(tried(), lambda: experiments.start(experiment_id=draft.pk))
        assert not tried().exists()

    def test_replacing_the_draft(self, draft):
        spec = make_spec(name=draft.name)
        locks_by_number(tried(), lambda: drafts.replace_draft(experiment_id=draft.pk, spec=spec))
        assert not tried().exists()

    def test_deleting_the_draft(self, draft):
        locks_by_number(tried(), lambda: drafts.delete_experiment(experiment_id=draft.pk, by=None))
        assert not tried().exists()

    def test_deleting_old_trials(self, draft):
        Trial.objects.update(asked_at=timezone.now() - Trial.KEPT_FOR - timedelta(days=1))
        locks_by_number(tried(), retention.forget_old)
        assert not Trial.objects.exists()
        assert not tried().exists()

    @pytest.mark.parametrize("deletes", ["the draft", "old trials"])
    def test_trials(self, deletes, draft):
        """With the draft, its trials lost their experiment in the order in which they were found."""
        trials.start_trial(experiment_id=draft.pk, positions=[0], by=make_user())
        Trial.objects.update(asked_at=timezone.now() - Trial.KEPT_FOR - timedelta(days=1))

        def delete() -> None:
            if deletes == "the draft":
                drafts.delete_experiment(experiment_id=draft.pk, by=None)
            else:
                retention.forget_old()

        locks_by_number(Trial.objects.all(), delete, column="n_responses")
        assert not Trial.objects.filter(experiment=draft.pk).exists()

    def test_storing_texts(self, draft):
        claim = generation.claim_responses(worker="w", limit=9)
        failed = [hopeless(each.pk) for each in claim.responses]
        locks_by_number(tried(), lambda: generation.store_outcomes(claim=claim.token, outcomes=failed))
        assert set(tried().values_list("state", flat=True)) == {"failed"}

    def test_storing_one_text_renews_the_claim_on_the_rest(self, draft):
        claim = generation.claim_responses(worker="w", limit=9)
        *_, last = claim.responses
        failed = [hopeless(last.pk)]
        locks_by_number(tried(), lambda: generation.store_outcomes(claim=claim.token, outcomes=failed))
        assert list(tried().order_by("pk").values_list("state", flat=True)) == [
            "generating",
            "generating",
            "failed",
        ]

    def test_giving_back_what_a_worker_did_not_finish(self, draft):
        claim = generation.claim_responses(worker="w", limit=9)
        locks_by_number(
            tried(), lambda: generation.release_claim(claim=claim.token, reason="It was stopped.")
        )
        assert set(tried().values_list("state", flat=True)) == {"waiting"}

    def test_taking_back_what_dead_workers_had(self, draft):
        generation.claim_responses(worker="w", limit=9)
        long_ago = timezone.now() - timedelta(seconds=django_settings.CLAIM_SECONDS + 1)
        tried().update(claim_expires_at=long_ago)
        locks_by_number(tried(), generation.expire_claims)
        assert set(tried().values_list("state", flat=True)) == {"waiting"}


def test_responses_whose_comparisons_fail_with_one_that_they_share():
    experiment = make_experiment()
    first, second = experiment.comparisons.order_by("pk")[:2]
    shared, waiting = first.response_i_id, [first.response_j_id, second.response_j_id]
    second.response_i_id = shared
    first.response_j_id, second.response_j_id = second.response_j_id, first.response_j_id
    for comparison in (first, second):
        comparison.save(update_fields=["response_i", "response_j"])
    Response.objects.filter(pk=shared).update(created_at=timezone.now() - timedelta(hours=1))
    claim = generation.claim_responses(worker="w", limit=1)
    failed = [hopeless(shared)]
    others = Response.objects.filter(pk__in=waiting)
    locks_by_number(others, lambda: generation.store_outcomes(claim=claim.token, outcomes=failed))
    assert set(others.values_list("state", "failure_reason")) == {
        ("failed", "The other response of its comparison failed.")
    }


class TestConcluding:
    def test_comparisons_that_wait(self):
        experiment = make_experiment()
        locks_by_number(experiment.comparisons.all(), lambda: experiments.stop(experiment_id=experiment.pk))
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"discarded"}

    def test_responses_that_wait(self):
        experiment = make_experiment()
        responses = Response.objects.filter(policy__experiment=experiment)
        locks_by_number(responses, lambda: experiments.stop(experiment_id=experiment.pk))
        assert set(responses.values_list("state", flat=True)) == {"failed"}


class TestChecks:
    @pytest.fixture
    def held(self, monkeypatch: pytest.MonkeyPatch) -> models.QuerySet[Assignment]:
        """Two checks on the screen of one annotator, whose page was not heard of for long."""
        monkeypatch.setattr(secret_draws, "check_draw", lambda *_: 0.0)
        annotator = make_user()
        experiment = make_experiment(ready=True, n_gold=2, gold_rate=0.5, annotators=(annotator,))
        serving.desk(experiment=experiment, annotator=annotator, n_wanted=2)
        Assignment.objects.checks().update(expires_at=timezone.now() - timedelta(seconds=1))
        return Assignment.objects.checks().filter(annotator=annotator)

    def test_a_beat(self, held):
        first = held.first()
        beat = {"experiment_id": first.experiment_id, "annotator": first.annotator}
        locks_by_number(held, lambda: assignments.stay(**beat), column="number")
        assert all(check.expires_at > timezone.now() for check in held.all())

    def test_leaving(self, held):
        annotator = held.first().annotator
        held.update(expires_at=timezone.now() + timedelta(minutes=1))
        locks_by_number(held, lambda: assignments.leave(annotator=annotator), column="number")
        assert not held.filter(expires_at__gt=timezone.now()).exists()


def test_two_superusers_who_forget_each_other_at_once_leave_one():
    first, second = make_user(is_superuser=True), make_user(is_superuser=True)

    def forget(user: User, by: User) -> bool:
        try:
            forgetting.forget_person(user_id=user.pk, by=by)
        except PersonError:
            return False
        return True

    with transaction.atomic():
        assert forget(second, first)
        late = blocked(lambda: forget(first, second))
    assert late.result(timeout=60) is False
    assert User.objects.filter(is_superuser=True, is_active=True).get() == first
