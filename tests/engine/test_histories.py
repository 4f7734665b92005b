"""The rows that clicks and planning read of a long history, and the indexes that they write into."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import ForeignKey
from django.utils import timezone

from engine.models import Assignment, Comparison, Experiment, Judgment, PairCount, User
from engine.selectors.pairs_ahead import buffer_target
from engine.selectors.people import experiment_to_label
from engine.selectors.pools import Familiarity, KnownTexts
from tests.factories import assign, click_on, make_experiment, make_user

pytestmark = [
    pytest.mark.django_db,
    # SQLite counts no rows that it reads.
    pytest.mark.postgres_only,
]


@contextmanager
def rows_read() -> Iterator[list[int]]:
    """The rows that this transaction reads from all tables within the block."""

    def in_all() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
            )
            return int(cursor.fetchone()[0])

    read: list[int] = []
    before = in_all()
    yield read
    read.append(in_all() - before)


def judge_before(experiment: Experiment, annotator: User, n: int, first: int = 10_000) -> None:
    """Store ``n`` comparisons that the annotator judged the day before yesterday, with numbers from ``first``
    on.
    """
    then = timezone.now() - timedelta(days=2)
    pattern = Comparison.objects.filter(experiment=experiment, state="judged").first()
    rows = Comparison.objects.bulk_create(
        like(pattern, number=first + k, texts=f"{first + k:060d}", judged_at=then) for k in range(n)
    )
    theirs = {"annotator_id": annotator.pk, "created_at": then}
    moments = dict.fromkeys(("granted_at", "expires_at"), then)
    Assignment.objects.bulk_create(
        like(pattern.assignments.get(), comparison_id=row.pk, token=uuid.uuid4(), **theirs, **moments)
        for row in rows
    )
    judgment = pattern.judgments.get()
    Judgment.objects.bulk_create(
        like(judgment, comparison_id=row.pk, token=uuid.uuid4(), **theirs) for row in rows
    )
    # What earlier tests left PostgreSQL to believe of these tables decided its plans, one run in some.
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE engine_comparison, engine_judgment, engine_assignment, engine_response")


def cheap_pages() -> None:
    """Plan as for disks without a head: tables as short as these are gone through otherwise."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL random_page_cost = 1.1")


def like(row: Any, **changes: Any) -> Any:
    """A new row of the same values but for ``changes``."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    return type(row)(**values | {"id": None} | changes)


def test_the_count_of_todays_answers_reads_those_of_today_alone(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=50)
    click_on(experiment, annotator, 8)
    judge_before(experiment, annotator, 300)
    with rows_read() as read:
        found = experiment_to_label(annotator, experiment.pk)
    assert found.mine_today == 8
    # Each judgment with its comparison, the experiment, the membership and the checks.
    assert read[0] < 50


def test_planning_for_a_pool_reads_the_comparisons_of_the_asked_tasks_alone(annotator):
    """It asks in each round, of an experiment with any number of comparisons."""
    experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=50)
    click_on(experiment, annotator, 8)
    judge_before(experiment, annotator, 300)
    [task] = experiment.comparisons.filter(number__gte=10_000).values_list("task", flat=True).distinct()
    shown = experiment.comparisons.exclude(task=task).select_related("response_i", "response_j")[:4]
    halves = [(comparison.response_i, comparison.response_j) for comparison in shown]
    known = KnownTexts(experiment, annotator.pk)
    cheap_pages()
    with rows_read() as read:
        known.read(halves)
        assert Familiarity.NEW_TASK not in {known.familiarity(*each) for each in halves}
    assert read[0] < 150


def test_the_length_of_the_buffer_follows_from_the_latest_answers_alone(annotator):
    """Each round of planning asks for it."""
    experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=50)
    click_on(experiment, annotator, 8)
    judge_before(experiment, annotator, 4_000)
    cheap_pages()
    with rows_read() as read:
        assert buffer_target(experiment) > 0
    # Of the fifty latest comparisons: each with its assignment.
    assert read[0] < 400


@pytest.mark.parametrize(("n_beginners", "n_judged"), [(0, 1_000), (40, 400)])
def test_the_next_pair_is_looked_for_among_those_that_are_ready(annotator, n_beginners, n_judged):
    """Not among all that the annotator has judged. Also among people who have judged little, so that a plan
    for anybody expects little of this one.
    """
    experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=50)
    click_on(experiment, annotator, 8)
    for k in range(n_beginners):
        judge_before(experiment, make_user(f"beginner{k}"), 1, first=20_000 + k)
    judge_before(experiment, annotator, n_judged)
    n_ready = experiment.comparisons.filter(state="ready").count()
    with rows_read() as read:
        assert assign(experiment, annotator).comparison.experiment_id == experiment.pk
    # Twice each where none of them is in turn.
    assert read[0] < 100 + 2 * 10 * n_ready


def test_no_statement_of_a_click_is_planned_for_its_values(annotator):
    """PostgreSQL would go on to do so for the largest of them: it takes longer than to execute them."""
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(generic_plans) > 0, sum(custom_plans) FROM pg_prepared_statements")
        assert cursor.fetchone() == (True, 0)


@pytest.mark.parametrize("model", [Comparison, PairCount])
def test_no_click_writes_into_an_index_that_its_model_does_without(model):
    """Migrations drop them by their names, and would not notice a wrong one. SQLite's tables are made from
    the models here.
    """
    fields = [field for field in model._meta.local_fields if isinstance(field, ForeignKey)]
    without = [[field.column] for field in fields if not field.db_index]
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    assert without
    assert [name for name, each in found.items() if each["index"] and each["columns"] in without] == []
