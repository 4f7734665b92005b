"""Many rows at once: each gets its own key and values, and the index of texts is written out rarely."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from engine.models import Response, Task
from engine.models.full_text import responses_with
from engine.services.bulk_rows import insert, prepared
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("n", [0, 1, 100, 205])
def test_each_row_gets_its_key_and_its_values(n):
    experiment = make_experiment()
    rows = prepared(Task, [Task(experiment_id=0, position=1000 + k, prompt=f"{k}") for k in range(n)])
    with transaction.atomic():
        keys = insert(rows, {"experiment_id": [experiment.pk].__getitem__})
    stored = Task.objects.filter(experiment=experiment, position__gte=1000).order_by("pk")
    expected = [(key, 1000 + k, f"{k}") for k, key in enumerate(keys)]
    assert list(stored.values_list("pk", "position", "prompt")) == expected


def test_many_texts_take_few_statements_and_are_found():
    experiment = make_experiment()
    places = {
        "policy_id": [experiment.policies.all()[0].pk].__getitem__,
        "task_id": [experiment.tasks.all()[0].pk].__getitem__,
    }
    rows = prepared(
        Response, [Response(policy_id=0, task_id=0, seed=k, text=f"Answer <{k}>") for k in range(205)]
    )
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        keys = insert(rows, places)
    assert [each.pk for each in Response.objects.filter(responses_with("answer <204>"))] == [keys[-1]]
    if connection.vendor == "sqlite":
        stored = [query["sql"] for query in queries if "INSERT INTO" in query["sql"]]
        assert [sql.count("), (") + 1 for sql in stored] == [100, 5], "rows of each statement"
