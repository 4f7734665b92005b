"""Many rows at once: each gets its own key and values, and the index of texts is written out rarely."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from engine.models import Judgment, Response, Task
from engine.models.full_text import responses_with
from engine.services import bulk_rows
from engine.services.bulk_rows import Prepared, insert, prepared, staged
from tests.factories import click, make_experiment, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture(autouse=True, params=[True, False], ids=["few", "many"])
def few(request, monkeypatch):
    """Few rows are inserted one by one, and SQLite stages many: the same comes of both."""
    if not request.param:
        monkeypatch.setattr(bulk_rows, "_FEW", 0)
    return request.param


@pytest.mark.parametrize("n", [0, 1, 100, 205])
def test_each_row_gets_its_key_and_its_values(n):
    experiment = make_experiment()
    rows = prepared(Task, [Task(experiment_id=0, position=1000 + k, prompt=f"{k}") for k in range(n)])
    with transaction.atomic():
        keys = insert(rows, {"experiment_id": [experiment.pk]})
    stored = Task.objects.filter(experiment=experiment, position__gte=1000).order_by("pk")
    expected = [(key, 1000 + k, f"{k}") for k, key in enumerate(keys)]
    assert list(stored.values_list("pk", "position", "prompt")) == expected


def test_staged_rows_are_stored_alike_and_leave_nothing_behind():
    experiment = make_experiment()
    rows = prepared(
        Task,
        [Task(experiment_id=0, position=k, prompt=f"{k}", tags=["it's", "“so”"]) for k in range(1000, 1003)],
    )
    with staged(rows), transaction.atomic():
        insert(rows, {"experiment_id": [experiment.pk], "position": range(70, 9999)})
    stored = Task.objects.filter(experiment=experiment, position__gte=1000).order_by("pk")
    assert [(each.position, each.tags) for each in stored] == [
        (k, ["it's", "“so”"]) for k in (1070, 1071, 1072)
    ]
    with pytest.raises(IntegrityError), staged(rows):
        _insert_for_nobody(rows)
    assert Task.objects.filter(position__gte=1000).count() == 3
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_temp_master")
            assert cursor.fetchall() == []


def test_few_rows_make_no_temporary_table(few):
    """SQLite would compile every statement of the connection anew, also those of the next clicks."""
    with CaptureQueriesContext(connection) as queries:
        make_experiment(running=False)
    made = any("CREATE TEMPORARY" in each["sql"] for each in queries)
    assert made == (connection.vendor == "sqlite" and not few)


def _insert_for_nobody(rows: Prepared) -> None:
    with transaction.atomic():
        insert(rows, {"experiment_id": [-1]})
        connection.check_constraints()


def test_a_column_may_be_given_in_the_place_of_the_rows_own():
    first = click(make_experiment(ready=True, annotators=(ann := make_user("ann"),)), ann)
    rows = prepared(
        Judgment,
        [Judgment(comparison_id=0, judge="rule", via="rule", choice="tie", outcome=0.5) for _ in range(3)],
    )
    tokens = [uuid4() for _ in range(3)]
    with staged(rows), transaction.atomic():
        keys = insert(rows, {"comparison_id": [first.comparison_id]}, values={"token": tokens})
    assert [Judgment.objects.get(pk=key).token for key in keys] == tokens


def test_a_number_may_stand_for_another_of_the_rows_or_for_none():
    first = click(make_experiment(ready=True, annotators=(ann := make_user("ann"),)), ann)
    rows = prepared(
        Judgment,
        [
            Judgment(comparison_id=0, judge="human", via="import", token=uuid4(), choice="left", outcome=1.0,
                     annotator_id=who, standing=False, restores_id=restores)
            for who, restores in ((0, None), (None, 0))
        ],
    )  # fmt: skip
    with transaction.atomic():
        keys = insert(
            rows, {"comparison_id": [first.comparison_id], "annotator_id": [ann.pk]}, own="restores_id"
        )
    stored = Judgment.objects.filter(pk__in=keys).order_by("pk").values_list("annotator", "restores")
    assert list(stored) == [(ann.pk, None), (None, keys[0])]


def test_many_texts_take_few_statements_and_are_found():
    experiment = make_experiment()
    places = {
        "policy_id": [experiment.policies.all()[0].pk],
        "task_id": [experiment.tasks.all()[0].pk],
    }
    rows = prepared(
        Response, [Response(policy_id=0, task_id=0, seed=k, text=f"Answer <{k}>") for k in range(205)]
    )
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        keys = insert(rows, places)
    assert [each.pk for each in Response.objects.filter(responses_with("answer <204>"))] == [keys[-1]]
    if connection.vendor == "sqlite":
        assert sum('INSERT INTO "engine_response"' in query["sql"] for query in queries) == 1


def test_a_text_may_begin_with_the_key_of_its_row():
    experiment = make_experiment()
    task, other = (experiment.tasks.create(position=1000 + n, prompt=f"{n}") for n in range(2))
    rows = prepared(
        Response, [Response(policy_id=0, task_id=n, seed=n, model=model) for n, model in enumerate(("m", ""))]
    )
    places = {"policy_id": [experiment.policies.all()[0].pk], "task_id": [task.pk, other.pk]}
    with transaction.atomic():
        keys = insert(rows, places, prefixes={"model": "task_id"})
    stored = Response.objects.filter(pk__in=keys).order_by("seed").values_list("task", "model")
    assert list(stored) == [(task.pk, f"{task.pk}:m"), (other.pk, "")]
