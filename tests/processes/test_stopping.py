"""A generation worker that is told to stop, and workers that serve different models."""

import threading
from collections import Counter
from typing import Any

import pytest

from engine.generation import smollm2
from engine.models import Comparison, Experiment, Response
from engine.selectors.queue_health import queue_health
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from tests.factories import connect, make_spec
from tests.generation.chat_server import MODEL, Reply, completion, serve
from tests.workers import Workers, wait_until

pytestmark = pytest.mark.slow

AT_ONCE = 4


class SlowServer:
    """Answers so many requests at once, and the others when it is told to."""

    def __init__(self, at_once: int) -> None:
        self.left = at_once
        self.waiting = 0
        self.go_on = threading.Event()
        self.lock = threading.Lock()

    def respond(self, asked: dict[str, Any]) -> Reply:
        with self.lock:
            number = self.left = self.left - 1
            patient = self.left < 0
            self.waiting += patient
        if patient:
            self.go_on.wait(120)
        # Two equal texts would be settled at once, and others planned in their place.
        return completion(f"Fine, says number {number}.")


def planned(**settings: Any) -> Experiment:
    experiment = create_experiment(spec=make_spec(**settings))
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    return experiment


def test_a_worker_told_to_stop_stores_what_is_done_gives_the_rest_back_and_ends(workers: Workers):
    experiment = planned()
    n = Response.objects.count()
    slow = SlowServer(at_once=3)
    with serve(slow.respond) as server:
        connect(MODEL, server.url, at_once=AT_ONCE)
        workers.ask(server)
        workers.start("remote")
        workers.start("beat")
        workers.start("control")
        wait_until(lambda: slow.waiting >= AT_ONCE, 300, "a batch that is stuck in the middle")
        workers.processes["remote"].terminate()
        assert workers.processes["remote"].wait(timeout=60) == 0
        done = Response.objects.filter(state="done")
        assert done.count() == 3
        rest = Response.objects.exclude(state="done")
        assert set(rest.values_list("state", "claim", "attempts", "crashes")) == {("waiting", None, 0, 0)}
        assert rest.count() == n - 3

        slow.go_on.set()
        workers.start("remote")
        wait_until(lambda: not rest.exists(), 300, "another worker to finish the work")
    assert set(experiment.comparisons.values_list("state", flat=True)) == {Comparison.State.READY}


@pytest.mark.skipif(not smollm2.installed(), reason=smollm2.INSTALL)
def test_workers_with_different_models_each_write_their_own(workers: Workers):
    """Both listen to one queue; neither may take, or keep from being taken, what is the other's."""
    theirs, small = planned(backend="remote", model="large"), planned(backend="smollm2")
    nobodys = planned(backend="vllm")
    with serve(lambda asked: completion(f"by {asked['model']}")) as server:
        connect("large", server.url)
        for name in ("control", "remote"):
            workers.start(name)
        workers.start("generation", called="smollm2")
        workers.start("beat")
        for experiment in (theirs, small):
            done = Response.objects.filter(policy__experiment=experiment, state="done")
            wait_until(done.exists, 300, f"a response of {experiment.backend}")
    written = Response.objects.filter(state="done").values_list("policy__experiment", "claimed_by", "model")
    by = Counter((experiment, worker.partition("@")[0], model) for experiment, worker, model in written)
    assert set(by) == {(theirs.pk, "remote", "large"), (small.pk, "smollm2", smollm2.MODEL_NAME)}
    health = queue_health(nobodys)
    assert "the vllm backend" in health.unserved[0]
    assert {(worker.backend, worker.alive) for worker in health.workers} == {
        ("remote", True),
        ("smollm2", True),
    }
