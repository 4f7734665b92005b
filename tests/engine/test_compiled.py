"""Compiled reads find what the ORM finds, in as many statements, and are built once."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection
from django.db.models import BigAutoField, CharField, Count, Exists, FloatField, OuterRef, QuerySet

from engine.models import Comparison, Lease, Membership, Task
from engine.selectors.compiled import Compiled, Given, GivenList, Statement
from tests.factories import click, lease, make_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def comparisons(experiment: Any, annotator: Any, states: Any) -> QuerySet[Comparison]:
    """With an annotation, related rows, JSON, moments and columns that are left out."""
    mine = Lease.objects.filter(comparison=OuterRef("pk"), annotator=annotator, state="open")
    return (
        Comparison.objects.filter(experiment=experiment, state__in=states)
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


def test_a_compiled_read_is_the_same_read(annotator, django_assert_num_queries):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click(experiment, annotator)
    lease(experiment, annotator)
    other = make_experiment(name="Other", ready=True)
    built = []

    def build() -> QuerySet[Comparison]:
        built.append(True)
        return comparisons(
            Given("experiment", BigAutoField()),
            Given("annotator", BigAutoField()),
            GivenList("states", CharField()),
        )

    read = Compiled(build)
    for asked, states in [
        (experiment, ["judged", "leased"]),
        (experiment, ["ready", "judged"]),
        (experiment, ["ready", "judged", "leased"]),
        (other, ["ready", "leased"]),
        (other, ["judged"]),
        (other, []),
    ]:
        expected = loaded(list(comparisons(asked, annotator, states)))
        with django_assert_num_queries(1):
            found = loaded(read(experiment=asked.pk, annotator=annotator.pk, states=states))
        assert found == expected
        assert bool(found) == (len(states) > 1)
    assert built == [True]
    on_screen = read(experiment=experiment.pk, annotator=annotator.pk, states=["leased"])
    assert [row.on_screen for row in on_screen] == [True]


def test_rows_of_values_are_those_of_the_orm(annotator, django_assert_num_queries):
    """With JSON, moments, an aggregate, and a union."""
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click(experiment, annotator)
    lease(experiment, annotator)
    states = ["judged", "leased", "ready"]

    def rows(states: Any) -> QuerySet[Comparison, Any]:
        found = Comparison.objects.filter(state__in=states)
        return found.order_by("pk").values_list("state", "task__prompt", "plan", "judged_at")

    def counted(experiment: Any) -> QuerySet[Comparison, Any]:
        found = Comparison.objects.filter(experiment=experiment)
        return found.values_list("state").annotate(n=Count("pk")).order_by("state")

    def people(experiment: Any) -> QuerySet[Lease, Any]:
        leases = Lease.objects.filter(comparison__experiment=experiment).values_list("annotator")
        return leases.union(Membership.objects.filter(experiment=experiment).values_list("user"))

    number = Given("experiment", BigAutoField())
    named = Compiled(lambda: rows(GivenList("states", CharField())))
    with django_assert_num_queries(1):
        found = named(states=states)
    assert found == list(rows(states)) != []
    for build in (counted, people):
        assert Compiled(lambda build=build: build(number))(experiment=experiment.pk) == list(
            build(experiment)
        )


def test_what_never_differs_is_written_into_the_statement():
    """So that a plan that is kept can use an index of these rows alone."""
    experiment = make_experiment(planned=False)
    prompt = "100% of 'it', \\n and %s"
    Task.objects.filter(pk=experiment.tasks.first().pk).update(prompt=prompt)
    read = Compiled(
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


def test_each_value_is_told_once_and_stands_in_all_its_places():
    """Beside constants, which are equal to one another or to a value."""
    told = []

    class Told(Given):
        def _told(self, value: Any, connection: Any) -> Any:
            told.append(value)
            return super()._told(value, connection)

    places = [
        Told("a", FloatField()),
        True,
        Told("b", FloatField()),
        1.0,
        Told("a", FloatField()),
        False,
        None,
    ]
    statement = Statement(DEFAULT_DB_ALIAS, "SELECT %s, %s, %s, %s, %s, %s, %s", places)
    for a, b in [(1.0, 0.0), (2.0, 2.0)]:
        parameters = statement.parameters({"a": a, "b": b}, connection)
        assert [(type(each), each) for each in parameters] == [
            (type(each), each) for each in (a, True, b, 1.0, a, False, None)
        ]
        assert [told.pop(0), told.pop(0)] == [a, b]
    assert told == []


@pytest.mark.django_db(transaction=True)
def test_it_goes_on_after_an_error_and_with_another_connection():
    read = Compiled(lambda: Lease.objects.filter(pk=Given("pk", BigAutoField())))
    nonsense = Statement(DEFAULT_DB_ALIAS, "SELECT %s FROM nowhere", [1.5])
    for _ in range(2):
        assert read(pk=1) == []
        with pytest.raises(DatabaseError), nonsense.executed({}):
            pass
        assert read(pk=1) == []
        connection.close()


@pytest.mark.parametrize("pk", [2**63, -(2**63) - 1, 10**30])
def test_a_number_that_no_row_can_have_finds_nothing(pk, django_assert_num_queries):
    read = Compiled(lambda: Lease.objects.filter(pk=Given("pk", BigAutoField())))
    with django_assert_num_queries(0):
        assert read(pk=pk) == []
