"""Compiled writes do what the ORM does, in one statement each, and break a transaction where they fail."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import BigAutoField, F, FloatField, Model

from engine.models import Comparison, Judgment, Lease, PairCount, Task, clock
from engine.selectors.compiled import Given
from engine.services.compiled_writes import Update, insert, inserting, saving, write
from tests.factories import lease, make_experiment, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def stored(row: Model) -> dict[str, Any]:
    """All cells of a row as the database has them."""
    return type(row)._default_manager.filter(pk=row.pk).values().get()


def test_an_inserted_row_is_the_one_that_the_orm_would_store(annotator, django_assert_num_queries):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    [first, second, *_] = experiment.comparisons.order_by("pk")

    def judgment(comparison: Comparison) -> Judgment:
        return Judgment(
            comparison=comparison,
            judge=Judgment.Judge.HUMAN,
            annotator=annotator,
            choice=Judgment.Choice.TIE,
            outcome=0.5,
            comment="100% 'so', %s",
            shown_at=clock.now(),
        )

    with django_assert_num_queries(1):
        found = insert(judgment(first))
    expected = judgment(second)
    expected.save()
    differ = {"id", "comparison_id", "token", "shown_at", "created_at"}
    assert {name: cell for name, cell in stored(found).items() if name not in differ} == {
        name: cell for name, cell in stored(expected).items() if name not in differ
    }
    assert stored(found) == {field.attname: getattr(found, field.attname) for field in Judgment._meta.fields}
    assert found.pk == expected.pk - 1
    assert not found._state.adding
    found.comment = "other"
    found.refresh_from_db()
    assert found.comment == "100% 'so', %s"


def test_only_the_fields_that_are_named_are_saved(annotator, django_assert_num_queries):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    held = lease(experiment, annotator)
    other = experiment.comparisons.filter(state="ready").first()
    held.state, held.token = Lease.State.SKIPPED, uuid.uuid4()
    comparison = Comparison.objects.get(pk=held.comparison_id)
    comparison.state, comparison.outcome, comparison.skips = Comparison.State.JUDGED, 0.5, 7
    comparison.judged_at = clock.now()
    with django_assert_num_queries(2):
        write(saving(held, "state"))
        write(saving(comparison, "state", "outcome", "judged_at", "discard_reason"))
    assert stored(held)["state"] == "skipped"
    assert stored(held)["token"] != held.token
    found = stored(comparison)
    assert (found["state"], found["outcome"], found["skips"]) == ("judged", 0.5, 0)
    assert found["judged_at"] == comparison.judged_at
    assert stored(other)["state"] == "ready"
    comparison.state, comparison.outcome, comparison.judged_at = Comparison.State.READY, None, None
    write(saving(comparison, "state", "outcome", "judged_at", "discard_reason"))
    assert stored(comparison)["outcome"] is None


def test_an_update_counts_its_rows_and_takes_expressions(annotator, django_assert_num_queries):
    experiment = make_experiment()
    [one, *others] = experiment.pair_counts.order_by("pk")
    add = Update(
        PairCount.objects.filter(pk=Given("row", BigAutoField())),
        wins_i=F("wins_i") + Given("won", FloatField()),
        comparisons=F("comparisons") + 1,
        last_annotator=Given("annotator", BigAutoField()),
    )
    for won, person in [(1.0, annotator.pk), (0.5, None)]:
        with django_assert_num_queries(1):
            assert add(row=one.pk, won=won, annotator=person) == 1
    assert add(row=12345, won=1.0, annotator=None) == 0
    one.refresh_from_db()
    assert (one.wins_i, one.comparisons, one.last_annotator) == (1.5, 2, None)
    assert {(row["wins_i"], row["comparisons"]) for row in map(stored, others)} == {(0.0, 0)}


def test_several_writes_are_one_statement_on_postgresql(annotator, django_assert_num_queries):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    others = make_user(), make_user()
    held = lease(experiment, annotator)
    [free] = experiment.comparisons.filter(state="ready")[:1]
    held.state, free.state = Lease.State.SKIPPED, Comparison.State.LEASED
    count = Update(
        PairCount.objects.filter(experiment=Given("experiment", BigAutoField())),
        comparisons=F("comparisons") + 1,
    )
    no_task = Update(Task.objects.filter(pk=Given("pk", BigAutoField())), prompt="").of(pk=-1)
    for comment, other in zip(("first 100%", "second"), others, strict=True):
        free.discard_reason = comment
        new = Lease(comparison=held.comparison, annotator=other, state=Lease.State.JUDGED)
        new.expires_at = clock.now()
        writes = (
            saving(held, "state"),
            inserting(new),
            count.of(experiment=experiment.pk),
            no_task,
            saving(free, "state", "discard_reason"),
        )
        with django_assert_num_queries(1 if connection.vendor == "postgresql" else len(writes)):
            numbers = write(*writes)
        assert numbers == [1, new.pk, experiment.pair_counts.count(), 0, 1]
        assert not new._state.adding
        assert stored(new) == {field.attname: getattr(new, field.attname) for field in Lease._meta.fields}
        assert stored(free)["discard_reason"] == comment
    assert (stored(held)["state"], stored(free)["state"]) == ("skipped", "leased")
    assert set(experiment.pair_counts.values_list("comparisons", flat=True)) == {2}


def test_two_updates_of_one_table_are_refused(annotator, django_assert_num_queries):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    held = lease(experiment, annotator)
    comparison = Comparison.objects.get(pk=held.comparison_id)
    with django_assert_num_queries(0), pytest.raises(ValueError, match="Two UPDATEs of Comparison"):
        write(saving(comparison, "state"), saving(held, "state"), saving(comparison, "skips"))


def test_of_several_writes_all_or_none_are_executed(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    held = lease(experiment, annotator)
    held.state = Lease.State.SKIPPED
    twice = Lease(comparison=held.comparison, annotator=annotator, token=held.token)
    twice.expires_at = held.expires_at
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            write(saving(held, "state"), inserting(twice))
        assert transaction.get_connection().needs_rollback
        transaction.set_rollback(True)
    assert stored(held)["state"] == "open"
    assert twice.pk is None


def test_what_the_database_refuses_ends_the_transaction(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    held = lease(experiment, annotator)
    held.comparison.state = "nonsense"
    for refused in (
        lambda: write(saving(held.comparison, "state")),
        lambda: insert(Lease(comparison=held.comparison, annotator=annotator, token=held.token)),
    ):
        with transaction.atomic():
            with pytest.raises(IntegrityError):
                refused()
            assert transaction.get_connection().needs_rollback
            transaction.set_rollback(True)
