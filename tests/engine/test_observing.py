"""One definition of when evidence is observed: after each comparison, in the order in which they were
completed.

A replay looked after every vote and the planner when it ran, so that the two had other
peaks.
"""

from collections.abc import Callable

import pytest

from engine.models import Evidence, Experiment, User
from engine.selectors import counts, designs
from engine.selectors.snapshots import latest_snapshot
from engine.services.judging import void_judgment
from engine.services.planning import advance
from tests.factories import click_for, click_on, make_experiment, write_responses

pytestmark = pytest.mark.django_db

GOOD_ENOUGH = {"claim": "good_enough", "epsilon": 0.2}


def judge(
    experiment: Experiment, annotator: User, beats: Callable[[int, int, int], bool], looks: list[int]
) -> None:
    """Judge pair after pair; the planner looks only after as many clicks as ``looks`` says,
    again and again.
    """
    number = 0
    for clicks in looks:
        for _ in range(clicks):
            click_for(experiment, annotator, lambda i, j, number=number: beats(i, j, number))
            number += 1
        advance(experiment_id=experiment.pk)
        write_responses()


def state(experiment: Experiment) -> object:
    return Evidence.objects.get(experiment=experiment).state


def replayed(experiment: Experiment) -> object:
    return designs.state_of(designs.replay(experiment))


@pytest.mark.parametrize("space", ["unstructured", "factorial"])
@pytest.mark.parametrize("rules", [{}, GOOD_ENOUGH, {"claim": "best", "epsilon": 0.1}])
def test_however_seldom_the_planner_looks_it_sees_what_a_replay_sees(space, rules, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), delta=1e-6, space=space, **rules)
    judge(experiment, annotator, lambda i, j, number: (i < j) == bool(number % 3), [1, 4, 2, 5, 5])
    assert state(experiment) == replayed(experiment)
    latest = latest_snapshot(experiment)
    assert latest.comparisons == 17


def test_with_several_judgments_a_comparison_the_last_one_is_the_moment(annotator):
    others = [User.objects.create_user(name) for name in ("ben", "cem")]
    people = [annotator, *others]
    experiment = make_experiment(
        ready=True, annotators=tuple(people), delta=1e-6, overlap=2, overlap_rule="mean"
    )
    for number in range(15):
        click_for(experiment, people[number % 3], lambda i, j, number=number: (i < j) == bool(number % 4))
        if number % 4 == 0:
            advance(experiment_id=experiment.pk)
            write_responses()
    advance(experiment_id=experiment.pk)
    assert state(experiment) == replayed(experiment)


@pytest.mark.parametrize("rules", [{}, GOOD_ENOUGH])
def test_it_concludes_with_the_comparison_that_decides_whenever_the_planner_looks(rules, annotator):
    """Judgments that came before the planner looked are late, as in a run in which it looks after each."""
    endings = []
    for every in (1, 4):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), delta=0.2, **rules)
        while not experiment.conclusion:
            judge(experiment, annotator, lambda i, j, _: i < j, [every])
            experiment.refresh_from_db()
        assert state(experiment) == replayed(experiment)
        snapshot = latest_snapshot(experiment)
        endings.append((experiment.conclusion, snapshot.comparisons, snapshot.peak_evidence))
        assert designs.load(experiment).design.n_comparisons == snapshot.comparisons
    assert endings[0] == endings[1]
    assert endings[0][0] == "certified"
    # Four clicks between two looks: some came after the one that decided.
    assert counts.comparison_count(experiment.pk) > endings[1][1]


def test_an_event_that_is_committed_after_one_with_a_larger_key_has_its_place(annotator, monkeypatch):
    """Two clicks at once: the keys are given when they begin, and the planner looks between their ends."""
    experiment = make_experiment(ready=True, annotators=(annotator,), delta=1e-6)
    judge(experiment, annotator, lambda i, j, _: i < j, [3])
    slow = click_for(experiment, annotator, lambda i, j: i > j)
    click_for(experiment, annotator, lambda i, j: i < j)
    every = designs.not_in_the_evidence
    with monkeypatch.context() as patch:
        patch.setattr(
            designs, "not_in_the_evidence", lambda pk: every(pk).exclude(comparison=slow.comparison)
        )
        advance(experiment_id=experiment.pk)
    assert latest_snapshot(experiment).comparisons == 4
    advance(experiment_id=experiment.pk)
    assert state(experiment) == replayed(experiment)
    assert latest_snapshot(experiment).comparisons == 5
    numbers = dict(experiment.showing_events.values_list("pk", "number"))
    assert sorted(numbers, key=numbers.__getitem__) != sorted(numbers)


def test_an_undo_between_two_looks_leaves_the_evidence_of_the_others(annotator, admin):
    experiment = make_experiment(ready=True, annotators=(annotator,), delta=1e-6, **GOOD_ENOUGH)
    judge(experiment, annotator, lambda i, j, number: (i < j) == bool(number % 4), [4])
    for _ in range(3):
        last = click_for(experiment, annotator, lambda i, j: i < j)
    void_judgment(judgment_id=last.pk, by=admin, reason="A slip.")
    advance(experiment_id=experiment.pk)
    assert state(experiment) == replayed(experiment)
    assert latest_snapshot(experiment).comparisons == 6


def test_the_planner_counts_ties_as_a_replay_does(annotator):
    experiment = make_experiment(
        ready=True, annotators=(annotator,), delta=1e-6, allow_tie=True, **GOOD_ENOUGH
    )
    click_on(experiment, annotator, 9, choice="tie")
    judge(experiment, annotator, lambda i, j, _: i < j, [2])
    assert state(experiment) == replayed(experiment)
