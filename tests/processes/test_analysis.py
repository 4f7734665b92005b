"""Real workers: planning never waits behind a forecast, and a forecast outlives the worker that began it."""

from __future__ import annotations

import signal

import pytest

from engine.models import Examination
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.tasks import advance, wake
from tests.factories import make_spec
from tests.workers import Workers, wait_until

pytestmark = pytest.mark.slow


def test_planning_goes_on_while_a_forecast_runs_and_a_killed_worker_is_replaced(workers: Workers):
    """The forecast takes as long as the test likes: its worker is held in the middle of it."""
    forecast = create_experiment(spec=make_spec(n_policies=24, budget=2000))
    start(experiment_id=forecast.pk)
    for name in ("control", "analysis", "beat"):
        workers.start(name)
    under_way = Examination.objects.filter(experiment=forecast, claim__isnull=False, forecast={})
    wait_until(under_way.exists, 90, "the forecast to begin")
    workers.processes["analysis"].send_signal(signal.SIGSTOP)
    claim = Examination.objects.get(experiment=forecast).claim

    other = create_experiment(spec=make_spec())
    start(experiment_id=other.pk)
    wake(advance, other.pk)
    wait_until(other.comparisons.exists, 60, "the other experiment to be planned")
    examination = Examination.objects.get(experiment=forecast)
    assert (examination.claim, examination.forecast) == (claim, {}), "it is still under way"

    workers.kill("analysis")
    workers.start("analysis")
    wait_until(
        lambda: Examination.objects.get(experiment=forecast).forecast, 300, "another worker to finish it"
    )
    assert Examination.objects.get(experiment=forecast).claim is None
