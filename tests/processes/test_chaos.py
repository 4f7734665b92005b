"""A model server that errs and hangs, and workers that are killed in the middle of their work."""

import random
import threading
from typing import Any

import pytest
from django.db.models import Count, F

from engine.models import Comparison, Experiment, Judgment, Response
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.judging import rebuild_counts
from tests.factories import SECRET, connect, sums_spec
from tests.generation.chat_server import MODEL, Reply, error, serve
from tests.servers import adds_up
from tests.workers import Workers, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres_only]

# One task that no server would ever answer.
POISON = 11  # the secret draws this task for comparisons 6, 19, 20 and 25: early enough to come in every run


class FaultyServer:
    """Adds up, but 5% of the requests fail, 1% hang, and one task always fails."""

    def __init__(self, poison: str) -> None:
        self.poison = poison
        self.faults = {"error": 0, "hang": 0, "poison": 0}
        self.dice = random.Random(1)
        self.over = threading.Event()

    def respond(self, asked: dict[str, Any]) -> Reply:
        fate = self.dice.random()
        if asked["messages"][-1]["content"].startswith(self.poison):
            self.faults["poison"] += 1
            return error(400, "This model's maximum context length is 9 tokens", "context_length_exceeded")
        if fate < 0.05:
            self.faults["error"] += 1
            return error(500, "Something broke")
        if fate < 0.06:
            self.faults["hang"] += 1
            self.over.wait(60)
        return adds_up(asked)


def test_every_comparison_ends_and_the_experiment_reaches_its_decision(workers: Workers):
    experiment = create_experiment(spec=sums_spec(budget=250))
    Experiment.objects.filter(pk=experiment.pk).update(secret=SECRET)
    poison = experiment.tasks.get(position=POISON).prompt
    faulty = FaultyServer(poison)
    with serve(faulty.respond) as server:
        connect(MODEL, server.url, answer_seconds=2)
        workers.ask(server)
        start(experiment_id=experiment.pk)
        for name in ("control", "remote", "beat"):
            workers.start(name)
        judged = Judgment.objects.filter(comparison__experiment=experiment)
        generating = Response.objects.filter(state=Response.State.GENERATING)
        for n_judged, name in ((20, "remote"), (40, "control"), (60, "remote")):
            wait_until(lambda n=n_judged: judged.count() >= n, 300, f"{n_judged} comparisons to be judged")
            wait_until(generating.exists, 60, "a batch under way")
            workers.kill(name)
            workers.start(name)

        def concluded() -> bool:
            experiment.refresh_from_db()
            return experiment.state == Experiment.State.CONCLUDED

        wait_until(concluded, 240, "the experiment to conclude")
        wait_until(lambda: not generating.exists(), 60, "the last batch to end or expire")
        faulty.over.set()

    assert faulty.faults["error"] >= 5
    assert faulty.faults["hang"] >= 1
    assert faulty.faults["poison"] >= 2
    comparisons = Comparison.objects.filter(experiment=experiment)
    assert not comparisons.filter(state__in=Comparison.PENDING).exists()
    assert not comparisons.filter(state=Comparison.State.DISCARDED, discard_reason="").exists()
    assert not comparisons.annotate(n=Count("judgments")).filter(n__gt=1).exists()
    assert comparisons.filter(state=Comparison.State.JUDGED).count() == judged.count()
    assert comparisons.filter(response_i=F("response_j")).count() == 0
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    poisoned = comparisons.filter(task__prompt=poison)
    assert not poisoned.filter(state=Comparison.State.JUDGED).exists()
    assert poisoned.filter(discard_reason__contains="Neither response").exists()
