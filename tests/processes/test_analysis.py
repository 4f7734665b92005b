"""Real workers: planning never waits behind replays, and another worker does those that one leaves undone."""

import signal

import pytest

from engine.models import Examination, WorkerPulse
from engine.services.analysis import request_replays
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.tasks import advance, analyse, wake
from tests.factories import click_on, make_experiment, make_spec, make_user
from tests.workers import Workers, wait_until

pytestmark = pytest.mark.slow


def test_planning_goes_on_while_the_analysis_worker_hangs_and_another_replaces_it(workers: Workers):
    annotator = make_user()
    judged = make_experiment(ready=True, annotators=(annotator,))
    click_on(judged, annotator, 4)
    for name in ("control", "analysis", "beat"):
        workers.start(name)
    wait_until(WorkerPulse.objects.filter(queue="analysis").exists, 90, "the analysis worker")
    workers.processes["analysis"].send_signal(signal.SIGSTOP)
    request_replays(experiment_id=judged.pk)
    wake(analyse)

    other = create_experiment(spec=make_spec())
    start(experiment_id=other.pk)
    wake(advance, other.pk)
    wait_until(other.comparisons.exists, 60, "the other experiment to be planned")
    examination = Examination.objects.filter(experiment=judged)
    assert not examination.get().findings, "its worker hangs"

    workers.kill("analysis")
    workers.start("analysis")
    wait_until(lambda: examination.get().findings, 300, "another worker to finish them")
