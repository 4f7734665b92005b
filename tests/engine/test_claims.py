"""The protocol by which workers take work: checked step by step against a model of it, and with real row
locks.
"""

import threading
import uuid
from collections import Counter
from datetime import datetime, timedelta
from types import SimpleNamespace
from unittest import mock

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models import Examination, Experiment, Opinion
from engine.models.worker_holds import in_time
from engine.services import worker_holds

pytestmark = pytest.mark.postgres

ROWS = range(3)
WORKERS = range(3)
SECONDS = 10


def make_rows(n: int) -> list[int]:
    experiments = [Experiment.objects.create(name=uuid.uuid4().hex) for _ in range(n)]
    return [Examination.objects.create(experiment=each).pk for each in experiments]


class Model:
    """The protocol in a few lines: who holds each row, until when, and whose result it has."""

    def __init__(self) -> None:
        self.now: datetime = timezone.now()
        self.holder: dict[int, int | None] = dict.fromkeys(ROWS)
        self.deadline = dict.fromkeys(ROWS, self.now)
        self.result: dict[int, dict] = {row: {} for row in ROWS}

    def free(self, row: int) -> bool:
        return self.holder[row] is None or self.deadline[row] < self.now

    def take(self, worker: int, row: int) -> None:
        if self.free(row):
            self.holder[row] = worker
            self.deadline[row] = self.now + timedelta(seconds=SECONDS)

    def held(self, worker: int) -> set[int]:
        return {row for row in ROWS if self.holder[row] == worker}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(WORKERS), st.sets(st.sampled_from(ROWS))),
        st.tuples(st.just("renew"), st.sampled_from(WORKERS), st.none()),
        st.tuples(st.just("finish"), st.sampled_from(WORKERS), st.sampled_from(ROWS)),
        st.tuples(st.just("expire"), st.none(), st.none()),
        st.tuples(st.just("wait"), st.none(), st.sampled_from([1, SECONDS - 1, SECONDS + 1])),
    ),
    max_size=25,
)


@pytest.mark.django_db
@settings(max_examples=60)
@given(steps=steps)
def test_whatever_happens_each_row_has_one_holder_and_only_its_result(steps):
    Examination.objects.all().delete()
    pks = make_rows(len(ROWS))
    rows = Examination.objects.filter(pk__in=pks)
    model = Model()
    claim_of: dict[int, uuid.UUID | None] = dict.fromkeys(WORKERS)
    with mock.patch("engine.models.clock.now", side_effect=lambda: model.now):
        for step, worker, what in steps:
            match step:
                case "take":
                    # Each worker has one claim at a time, to which it adds.
                    claim_of[worker] = worker_holds.take(
                        rows.filter(pk__in=[pks[row] for row in what]),
                        seconds=SECONDS,
                        by=str(worker),
                        joining=claim_of[worker],
                    )
                    for row in what:
                        model.take(worker, row)
                case "renew" if claim_of[worker] is not None:
                    n = worker_holds.renew(rows, claim_of[worker], seconds=SECONDS)
                    assert n == len(model.held(worker))
                    for row in model.held(worker):
                        model.deadline[row] = model.now + timedelta(seconds=SECONDS)
                case "finish":
                    row = rows.filter(pk=pks[what])
                    n = worker_holds.release(
                        worker_holds.held(row, claim_of[worker]), findings={"by": worker}
                    )
                    assert n == (what in model.held(worker)), "a late result is refused"
                    if n:
                        model.holder[what], model.result[what] = None, {"by": worker}
                case "expire":
                    late = {row for row in ROWS if model.holder[row] is not None and model.free(row)}
                    assert worker_holds.release(worker_holds.expired(rows)) == len(late)
                    model.holder |= dict.fromkeys(late)
                case "wait":
                    model.now += timedelta(seconds=what)
            stored = [Examination.objects.get(pk=pk) for pk in pks]
            assert [row.claim for row in stored] == [
                None if (holder := model.holder[row]) is None else claim_of[holder] for row in ROWS
            ]
            assert [row.findings for row in stored] == list(model.result.values())
            free = set(worker_holds.free(rows).values_list("pk", flat=True))
            assert free == {pks[row] for row in ROWS if model.free(row)}
            at_work = set(rows.filter(in_time()).values_list("pk", flat=True))
            assert at_work == set(pks) - free, "a row that may be taken has no holder at work"


@pytest.mark.django_db
class TestRules:
    def test_no_claim_holds_nothing(self):
        make_rows(2)
        assert not worker_holds.held(Examination.objects.all(), None).exists()

    @pytest.mark.parametrize("field", ["comparison__state", "comparison__experiment__state"])
    def test_what_is_filtered_by_another_table_is_not_claimed(self, field):
        """The database would not look at the other table again once it has the row."""
        with pytest.raises(ValueError, match="pk__in"):
            worker_holds.take(Opinion.objects.filter(**{field: "running"}), seconds=1)

    def test_a_claim_carries_its_holders_name_and_the_changes_with_it(self):
        [pk] = make_rows(1)
        row = Examination.objects.filter(pk=pk)
        claim = worker_holds.take(row, seconds=60, by="worker 7", findings={"tried": 1})
        assert (row.get().claim, row.get().claimed_by) == (claim, "worker 7")
        assert row.get().findings == {"tried": 1}

    def test_a_keeper_renews_every_now_and_then(self):
        [pk] = make_rows(1)
        row = Examination.objects.filter(pk=pk)
        claim = worker_holds.take(row, seconds=1)
        first = row.get().claim_expires_at
        clock, ticks = SimpleNamespace(now=100.0), []
        with mock.patch("engine.services.worker_holds.time", SimpleNamespace(monotonic=lambda: clock.now)):
            keep = worker_holds.keeper(row, claim, seconds=60, tick=lambda: ticks.append(clock.now))
            clock.now += 0.5
            keep()
            assert row.get().claim_expires_at == first
            clock.now += 0.5
            keep()
            assert row.get().claim_expires_at > first
        assert ticks == [100.5, 101.0]

    def test_it_ends_what_is_lost(self, monkeypatch):
        monkeypatch.setattr(worker_holds, "_KEEP_SECONDS", 0.0)
        [pk] = make_rows(1)
        row = Examination.objects.filter(pk=pk)
        claim = worker_holds.take(row, seconds=60)
        keep = worker_holds.keeper(row, claim, seconds=60)
        keep()
        worker_holds.release(row)
        with pytest.raises(worker_holds.ClaimLostError):
            keep()


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_of_many_workers_that_reach_for_the_same_rows_each_row_has_one():
    """Also where what they reach for has just been given back by one who died."""
    pks = make_rows(30)
    worker_holds.take(Examination.objects.all(), seconds=-1, by="dead")
    begin = threading.Barrier(8)
    won: dict[str, set[int]] = {}

    def reach(worker: str) -> None:
        try:
            begin.wait(30)
            rows = Examination.objects.filter(pk__in=pks)
            claim = worker_holds.take(rows, seconds=60, by=worker, findings={})
            won[worker] = set(worker_holds.held(rows, claim).values_list("pk", flat=True))
        finally:
            connection.close()

    threads = [threading.Thread(target=reach, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 8
    assert Counter(pk for mine in won.values() for pk in mine) == Counter(pks)
    assert {row.pk: row.claimed_by for row in Examination.objects.all()} == {
        pk: worker for worker, mine in won.items() for pk in mine
    }


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_a_result_that_races_with_an_expiry_counts_once_or_not_at_all():
    """Whichever comes first: the holder's result, or another worker's claim on what is past its deadline."""
    for _ in range(20):
        [pk] = make_rows(1)
        row = Examination.objects.filter(pk=pk)
        late = worker_holds.take(row, seconds=-1, by="late")
        begin = threading.Barrier(2)
        stored: list[int] = []

        def finish(row=row, late=late, begin=begin, stored=stored) -> None:
            try:
                begin.wait(30)
                stored.append(worker_holds.release(worker_holds.held(row, late), findings={"done": 1}))
            finally:
                connection.close()

        thread = threading.Thread(target=finish)
        thread.start()
        begin.wait(30)
        another = worker_holds.take(row.filter(findings={}), seconds=60, by="another")
        taken = worker_holds.held(row, another).count()
        thread.join(60)
        assert stored[0] + taken == 1
        assert row.get().findings == ({"done": 1} if stored[0] else {})
