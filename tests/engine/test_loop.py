"""The whole loop without a browser: plan, generate, judge, decide."""

import pytest

from engine.core import StopReason
from engine.generation.worker import write_batch
from engine.judges.rule_worker import judge_comparisons
from engine.models import Comparison, Experiment, Judgment
from engine.selectors import counts, designs
from engine.selectors.snapshots import latest_snapshot
from engine.services.judging import rebuild_counts
from engine.services.planning import advance
from tests.backends import SkilledBackend
from tests.factories import make_experiment


@pytest.mark.django_db
def test_a_rule_judged_experiment_runs_to_a_certified_winner():
    experiment = make_experiment(n_policies=3, judge="rule", budget=2000)
    backend = SkilledBackend(n_policies=3)
    while experiment.state == Experiment.State.RUNNING:
        claimed, touched = write_batch(worker="w", backend=backend)
        assert claimed
        assert touched == {experiment.pk}
        judge_comparisons(experiment.pk)
        advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()

    assert experiment.conclusion == StopReason.CERTIFIED
    assert experiment.winner.index == 2
    assert not Comparison.objects.filter(experiment=experiment, state__in=Comparison.PENDING).exists()
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    snapshot = latest_snapshot(experiment)
    assert Judgment.objects.count() == counts.comparison_count(experiment.pk)
    # The rule judges all that is ready before the planner looks, so that some come after the one that
    # decides.
    assert snapshot.comparisons <= Judgment.objects.count()
    assert designs.replay(experiment).design.n_comparisons == snapshot.comparisons
    assert snapshot.open_rivals == 0
    assert experiment.certified_claim == experiment.claim
