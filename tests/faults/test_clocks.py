"""A machine whose clock is ten minutes off: leases, claims and signs of life go by the database's clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from engine.models import Comparison, Lease, Response, clock
from engine.selectors import workers
from engine.services import serving
from engine.services.generation import claim_responses, expire_claims
from engine.tasks import sweep
from tests.factories import click, lease, make_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

true_time = timezone.now


@pytest.fixture
def elsewhere(monkeypatch) -> Callable[[int], None]:
    """Move this process to a machine whose clock is so many minutes off, before it asks the time."""

    def move(minutes: int) -> None:
        monkeypatch.setattr(timezone, "now", lambda: true_time() + timedelta(minutes=minutes))
        monkeypatch.setattr(clock, "_seen", None)

    return move


@pytest.mark.parametrize("minutes", [-10, 10])
def test_what_one_machine_reserved_another_leaves_alone(minutes, elsewhere, annotator):
    experiment = make_experiment(n_policies=4, ready=True, annotators=(annotator,))
    held = lease(experiment, annotator)
    Response.objects.update(state=Response.State.WAITING)
    claim_responses(worker="w", limit=1)
    sweep()

    elsewhere(minutes)
    serving.hand_back_expired()
    expire_claims()
    held.refresh_from_db()
    assert held.state == Lease.State.ACTIVE
    assert Response.objects.filter(state=Response.State.GENERATING).count() == 1
    [control] = workers.seen("control")
    assert control.alive
    assert 0 <= control.seen_seconds < 60


@pytest.mark.parametrize("minutes", [-10, 10])
def test_what_it_reserves_itself_lasts_as_long_as_anywhere(minutes, elsewhere, annotator):
    elsewhere(minutes)
    experiment = make_experiment(n_policies=4, ready=True, annotators=(annotator,))
    judged = click(experiment, annotator)
    held = lease(experiment, annotator)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    # The clock of this test ran on for a moment; it is not asked how long that was.
    close = timedelta(minutes=5)
    assert abs(held.expires_at - now - timedelta(seconds=settings.LEASE_SECONDS)) < close
    for written in (judged.created_at, judged.comparison.judged_at, held.granted_at):
        assert abs(written - now) < close
    assert not Comparison.objects.filter(created_at__gt=now).exists()
