"""Real workers, the real model, and kill -9 in the middle of the work."""

from __future__ import annotations

import pytest
from django.db.models import Count

from engine.models import Comparison, Experiment, Judgment, Response
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.judging import rebuild_counts
from labeling.demo import rule_spec
from tests.workers import Workers, wait_until

pytestmark = pytest.mark.slow


def test_an_experiment_survives_the_death_of_each_worker(workers: Workers):
    experiment = create_experiment(spec=rule_spec())
    Experiment.objects.filter(pk=experiment.pk).update(budget=150)
    start(experiment_id=experiment.pk)
    for name in ("control", "generation", "beat"):
        workers.start(name)

    judged = Judgment.objects.filter(comparison__experiment=experiment)
    wait_until(lambda: judged.count() >= 10, 90, "the first ten comparisons to be judged")
    for name in ("generation", "control"):
        wait_until(
            lambda: Response.objects.filter(state=Response.State.GENERATING).exists(), 30, "a batch under way"
        )
        workers.kill(name)
        before = judged.count()
        workers.start(name)
        wait_until(
            lambda before=before: judged.count() >= before + 10, 60, f"the work to go on without {name}"
        )

    def concluded() -> bool:
        experiment.refresh_from_db()
        return experiment.state == Experiment.State.CONCLUDED

    wait_until(concluded, 120, "the experiment to conclude")
    wait_until(
        lambda: not Response.objects.filter(state=Response.State.GENERATING).exists(),
        30,
        "the last batch to end or expire",
    )
    assert not Comparison.objects.filter(state__in=Comparison.PENDING).exists()
    assert not Comparison.objects.annotate(n=Count("judgments")).filter(n__gt=1).exists()
    assert Comparison.objects.filter(state=Comparison.State.JUDGED).count() == judged.count()
    assert not Response.objects.filter(state=Response.State.DONE, text="").exists()
    assert rebuild_counts(experiment_id=experiment.pk) == {}
