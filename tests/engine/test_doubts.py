"""Doubts about a result: what has no outcome, whose responses fail, and who differs."""

from typing import Any

import pytest

from engine.models import (
    Assignment,
    Browser,
    Comparison,
    Experiment,
    Judgment,
    Policy,
    Response,
    ShowingEvent,
    Task,
    User,
    clock,
)
from engine.selectors.doubts import doubts
from engine.selectors.missing import hold
from engine.services.showings import begin, settle
from tests.factories import make_experiment, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> list[User]:
    return [make_user(name) for name in ("ann", "ben", "cem")]


def shown(
    experiment: Experiment, person: User | None, pair: tuple[int, int], outcome: float | None, **fields: Any
) -> None:
    """Give a person, or a machine, a pair of policies; they answer, or let it go."""
    policies = list(experiment.policies.order_by("index"))
    task = experiment.tasks.first()
    responses = [
        Response.objects.create(policy=policies[k], task=task, seed=0, state="done", text=f"{k}")
        for k in pair
    ]
    answered = outcome is not None
    comparison = Comparison.objects.create(
        experiment=experiment, number=1000 + Comparison.objects.count(), task=task,
        policy_i=policies[pair[0]], policy_j=policies[pair[1]],
        response_i=responses[0], response_j=responses[1], i_on_left=True,
        state="assigned",
    )  # fmt: skip
    ShowingEvent.objects.bulk_create(begin(comparison))
    if person is not None:
        state = "judged" if answered else "skipped"
        Assignment.objects.create(
            experiment=comparison.experiment,
            comparison=comparison,
            annotator=person,
            state=state,
            expires_at=clock.now(),
        )
    if answered:
        given = {"judge": "human", "choice": "left" if outcome else "right", "outcome": outcome} | fields
        Judgment.objects.create(comparison=comparison, annotator=person, **given)
    settle(experiment, [comparison])


def judged(experiment: Experiment, people: list[User], n: int = 120, leaves: User | None = None) -> None:
    """Policy 0 wins two of three. ``leaves``: a person who lets go what policy 0 would lose."""
    pairs = [(0, 1), (1, 2), (0, 2)]
    for number in range(n):
        pair, person = pairs[number % 7 % 3], people[number % 5 % len(people)]
        outcome = float(number % 3 > 0)
        gone = person == leaves and 0 in pair and outcome == 0.0
        shown(experiment, person, pair, None if gone else outcome)


def test_honest_answers_give_no_doubt(people):
    experiment = make_experiment(planned=False, annotators=tuple(people))
    judged(experiment, people)
    found = doubts(experiment)
    assert (found.found, found.n_missing) == ([], 0)
    assert found.n_tests > 5
    assert [pairs.shown for pairs in found.people.values()] == [48, 48, 24]


def test_a_person_who_lets_pairs_of_one_policy_go_is_named_to_those_who_run_it(people):
    experiment = make_experiment(planned=False, annotators=tuple(people))
    judged(experiment, people, n=300, leaves=people[0])
    found = doubts(experiment)
    [doubt] = [each for each in found.found if "ann" in each.text]
    assert "Prompt 0" in doubt.text
    assert doubt.place == "missing-title"
    assert "ann" not in doubt.unnamed
    assert found.people["ann"].skipped == found.n_missing > 20
    assert [pairs.skipped for name, pairs in found.people.items() if name != "ann"] == [0, 0]


def test_a_pair_is_left_once_it_was_open_for_long(people):
    experiment = make_experiment(planned=False, annotators=tuple(people))
    shown(experiment, people[0], (0, 1), None)
    Assignment.objects.update(state="open")
    assert doubts(experiment).n_missing == 0
    Assignment.objects.update(created_at=clock.now() - 2 * hold())
    assert doubts(experiment).reasons == [("Left open", 1)]


def test_a_policy_whose_responses_fail_is_told_with_the_tasks_that_lack_them():
    experiment = make_experiment(planned=False, n_tasks=10)
    policies, tasks = list(Policy.objects.order_by("index")), list(Task.objects.order_by("pk"))
    for number in range(90):
        policy, task = policies[number % 3], tasks[number // 3 % 10]
        failed = number % 3 == 1 and number // 3 % 10 > 0
        Response.objects.create(
            policy=policy, task=task, seed=number, attempts=1, state="failed" if failed else "done"
        )
    found = doubts(experiment)
    [doubt] = found.found
    assert "27 of 30" in doubt.text
    assert "Prompt 1" in doubt.text
    assert "9 of 10 tasks" in doubt.text
    assert [(row.failed, row.n_tasks, row.tasks) for row in found.policies] == [
        (0, 0, 10),
        (27, 9, 10),
        (0, 0, 10),
    ]


def test_answers_of_people_who_may_see_policies_are_told(people):
    experiment = make_experiment(planned=False, annotators=tuple(people))
    for number in range(10):
        shown(experiment, people[number % 3], (0, 1), 1.0, annotator_could_see_policies=number < 4)
    [doubt] = doubts(experiment).found
    assert doubt.text.startswith("4 of 10 votes")


def test_votes_of_several_accounts_of_one_browser_are_counted(people):
    experiment = make_experiment(planned=False, annotators=tuple(people))
    for number in range(9):
        shown(experiment, people[number % 3], (0, 1), 1.0)
    for person in people[:2]:
        Browser.objects.create(user=person, hash="h")
    [doubt] = doubts(experiment).found
    assert "(ann, ben)" in doubt.text
    assert "6 of 9 votes" in doubt.unnamed
    assert "ann" not in doubt.unnamed
