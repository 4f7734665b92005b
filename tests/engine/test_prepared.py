"""Prepared reads find what the ORM finds, in as many statements, and are built once."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import BigAutoField, CharField, Exists, OuterRef, QuerySet

from engine.models import Assignment, Comparison, Task
from engine.selectors.prepared_reads import Given, Prepared
from tests.factories import assign, click, make_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def comparisons(experiment: Any, annotator: Any, state: Any) -> QuerySet[Comparison]:
    """With an annotation, related rows, JSON, moments and columns that are left out."""
    mine = Assignment.objects.filter(comparison=OuterRef("pk"), annotator=annotator, state="open")
    return (
        Comparison.objects.filter(experiment=experiment, state=state)
        .annotate(on_screen=Exists(mine))
        .select_related("task", "response_i")
        .only("state", "plan", "judged_at", "i_on_left", "task__prompt", "task__messages", "response_i__text")
        .order_by("-pk")
    )


def loaded(found: list[Any]) -> list[dict[str, Any]]:
    """All that was read of each, and the names of what was not."""
    return [
        {
            **{name: value for name, value in vars(row).items() if name != "_state"},
            "prompt": row.task.prompt,
            "messages": row.task.messages,
            "text": row.response_i.text,
            "left out": row.get_deferred_fields(),
        }
        for row in found
    ]


def test_a_prepared_read_is_the_same_read(annotator, django_assert_num_queries):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click(experiment, annotator)
    assign(experiment, annotator)
    other = make_experiment(name="Other", ready=True)
    built = []

    def build() -> QuerySet[Comparison]:
        built.append(True)
        given = Given("experiment", BigAutoField()), Given("annotator", BigAutoField())
        return comparisons(*given, Given("state", CharField()))

    read = Prepared(build)
    for asked in (experiment, other):
        for state in ("judged", "assigned", "ready", "discarded"):
            expected = loaded(list(comparisons(asked, annotator, state)))
            with django_assert_num_queries(1):
                found = loaded(read(experiment=asked.pk, annotator=annotator.pk, state=state))
            assert found == expected
    assert built == [True]
    [assigned] = read(experiment=experiment.pk, annotator=annotator.pk, state="assigned")
    assert assigned.on_screen


def test_constants_are_written_into_the_statement():
    """A plan that is kept can then use an index of these rows alone."""
    experiment = make_experiment(planned=False)
    prompt = "100% of 'it', \\n and %s"
    Task.objects.filter(pk=experiment.tasks.first().pk).update(prompt=prompt)
    read = Prepared(
        lambda: Task.objects.filter(prompt=prompt, experiment=Given("experiment", BigAutoField()))[:1]
    )
    asked = []

    def note(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        asked.append(parameters)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        [task] = read(experiment=experiment.pk)
    assert task.prompt == prompt
    assert asked == [[experiment.pk]]


@pytest.mark.django_db(transaction=True)
def test_it_goes_on_with_another_connection():
    read = Prepared(lambda: Assignment.objects.filter(pk=Given("pk", BigAutoField())))
    for _ in range(2):
        assert read(pk=1) == []
        connection.close()


@pytest.mark.parametrize("pk", [2**63, -(2**63) - 1, 10**30])
def test_a_number_that_no_row_can_have_finds_nothing(pk, django_assert_num_queries):
    read = Prepared(lambda: Assignment.objects.filter(pk=Given("pk", BigAutoField())))
    with django_assert_num_queries(0):
        assert read(pk=pk) == []
