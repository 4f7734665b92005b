"""Improvements: a writer proposes, people choose, the best meets the original."""

import numpy as np
import pytest

from engine.models import Experiment, Improvement, Proposal
from engine.selectors import designs
from engine.selectors.improvements import picture_of, race_of, tasks_for
from engine.selectors.verifying import faults_of
from engine.services.improvements import start_improvement
from tests.improving import make_world, one_change_at_a_time, run_to_the_end

pytestmark = pytest.mark.django_db


def begun(people, n_tasks=24, clicks=400, needs_ok=False, **given) -> Improvement:
    experiment = make_world(people, n_tasks=n_tasks)
    return start_improvement(experiment_id=experiment.pk, clicks=clicks, needs_ok=needs_ok, **given)


def agree(improvement: Improvement) -> None:
    """What is stored is what a replay of the record says."""
    improvement.refresh_from_db()
    race = race_of(improvement)
    assert (race.used, race.champion) == (improvement.used, improvement.champion.index)
    stored = improvement.proposals.exclude(probability=None)
    assert {(each.policy.index, each.probability) for each in stored} == {
        (each.child, each.probability) for each in [*race.promotions, *race.dropped]
    }
    experiment = improvement.experiment
    replayed = designs.replay(experiment, designs.logged(designs.in_the_evidence(experiment)))
    assert designs.state_of(designs.stored(experiment)) == designs.state_of(replayed)
    assert list(faults_of(experiment)) == []


def test_the_whole_way(annotator):
    rng = np.random.default_rng(1)
    improvement = begun([annotator])
    experiment = improvement.experiment
    run_to_the_end(improvement, [annotator], one_change_at_a_time(rng), rng)
    assert improvement.verdict["kind"] == "certified"
    assert improvement.used <= 400
    text = improvement.champion.levels.get().value["text"]
    assert sum(each in text for each in ("short", "warm", "question")) >= 2
    experiment.refresh_from_db()
    assert experiment.state == Experiment.State.RUNNING
    judging = set(tasks_for(improvement, "certify"))
    proved = experiment.comparisons.filter(plan__phase="certify", state="judged")
    assert {each.task_id for each in proved} <= judging
    assert improvement.proposals.filter(state=Proposal.State.DROPPED, policy__retired_at=None).count() == 0
    assert picture_of(improvement).points[-1].used == improvement.used
    agree(improvement)
