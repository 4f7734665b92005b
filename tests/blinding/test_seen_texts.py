"""Texts that come again: "the text that I saw more often is the leader's" is no better than a guess."""

import itertools
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import pytest

from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.models import Experiment
from engine.selectors.doubts import doubts
from engine.selectors.pool_claims import unproven
from engine.selectors.pools import Familiarity, shown_by_familiarity
from engine.selectors.verifying import faults_of
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from tests.factories import add_member, assign_next, click_for, make_user

pytestmark = pytest.mark.django_db

N_TASKS, POLICIES = 40, "ABCD"
LEADER = 0


class Shown(NamedTuple):
    """A pair that was shown: whether it has the leader's text, first then, and how often its annotator had
    seen the two.
    """

    has_leader: bool
    seen: tuple[int, int]


def play(
    p_leader: float, n_people: int, n_clicks: int, n_tasks: int = N_TASKS, seed: int = 0, **settings: object
) -> list[Shown]:
    """People judge ready-made responses in turns; the leader wins each pair with this chance."""
    experiment = create_experiment(
        spec=ExperimentSpec(
            name=f"A pool {seed}",
            factors=[FactorSpec("Policy", "imported", {name: {} for name in POLICIES})],
            tasks=[TaskSpec(f"Task {task}") for task in range(n_tasks)],
            settings={"responses": "imported", "seed": seed, "delta": 1e-9} | settings,
            ready_made=[
                ReadyMade(task, name, f"{name}{task}") for task in range(n_tasks) for name in POLICIES
            ],
        )
    )
    Experiment.objects.filter(pk=experiment.pk).update(secret=f"{seed:064x}")
    people = [make_user() for _ in range(n_people)]
    for person in people:
        add_member(experiment, person)
    start(experiment_id=experiment.pk)
    wins = np.random.default_rng(seed).random((n_people, n_tasks, 4, 4))
    places = {task: place for place, task in enumerate(experiment.tasks.values_list("pk", flat=True))}
    seen: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    pairs: list[Shown] = []
    for person in itertools.islice(itertools.cycle(range(n_people)), n_clicks):
        advance(experiment_id=experiment.pk)
        held = assign_next(experiment_id=experiment.pk, annotator=people[person])
        if held is None:
            # Others may have something left.
            if Experiment.objects.get(pk=experiment.pk).used_up:
                return pairs
            continue
        comparison = held.comparison
        i, j = comparison.policy_i.index, comparison.policy_j.index
        counts = seen[person, comparison.task_id]
        pairs.append(Shown(i == LEADER, (counts[i], counts[j])))
        counts.update((i, j))
        chance = p_leader if i == LEADER else 0.5
        i_wins = bool(wins[person, places[comparison.task_id], i, j] < chance)
        click_for(experiment, people[person], lambda _i, _j, i_wins=i_wins: i_wins)
    return pairs


def guesses(pairs: list[Shown]) -> list[bool]:
    """Whether the rule is right, of the pairs on which it says something."""
    return [own > other for has_leader, (own, other) in pairs if has_leader and own != other]


def test_a_person_gets_tasks_that_are_new_to_them_first():
    pairs = play(0.9, n_people=1, n_clicks=10, n_tasks=10)
    assert [pair.seen for pair in pairs] == [(0, 0)] * 10
    assert guesses(pairs) == []


@pytest.mark.parametrize("n_people", [1, 3])
def test_a_setting_ends_a_persons_pairs_before_texts_tell(n_people):
    pairs = play(0.9, n_people, n_clicks=100, n_tasks=6, equally_seen_only=True)
    assert n_people * 6 < len(pairs) < 100
    assert all(first == second for _, (first, second) in pairs)
    experiment = Experiment.objects.get()
    assert experiment.used_up
    assert list(faults_of(experiment)) == []


def test_several_people_get_what_is_new_to_each_of_them_first(settings):
    settings.BUFFER_MIN = 12
    pairs = play(0.9, n_people=3, n_clicks=15, n_tasks=10)
    assert [pair.seen for pair in pairs] == [(0, 0)] * 15


def test_quality_and_the_audit_know_the_pairs_that_tell():
    pairs = play(0.9, n_people=1, n_clicks=24, n_tasks=8)
    n_told = sum(first != second for _, (first, second) in pairs)
    assert n_told
    experiment = Experiment.objects.get()
    assert shown_by_familiarity(experiment)[Familiarity.UNEQUALLY_SEEN] == n_told
    assert [doubt.text for doubt in doubts(experiment).found if f"{n_told} of 24 pairs" in doubt.text]
    assert "two pairs of one task" in unproven(experiment)
    assert list(faults_of(experiment)) == []
    experiment.equally_seen_only = True
    assert [fault for fault in faults_of(experiment) if f"{n_told} pairs" in fault]
