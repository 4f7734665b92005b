"""Every benchmark still runs: at its smallest size, to the JSON of its last line.

The figures of such a run say nothing, and nobody looks at them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from tests.workers import ROOT

pytestmark = pytest.mark.slow

# The options of the shortest run that goes through all of a benchmark.
SMALLEST = {
    "assumptions": "--runs 1 --cap 20 --worlds plain",
    "claims": "--instances random3 --runs 2 --cap 50",
    "dashboard": "--judgments 100 --policies 5 --viewers 1 --annotators 1 --seconds 1 --web-processes 1",
    "decision_latency": "--clicks 1 --policies 16 32 --after 0",
    "error_rate": "--runs 1 --sizes 3 --in-flight 0 --ties 0 --kinds close --claims best",
    "export_scale": "--rows 100",
    "improvement": "--runs 1 --clicks 20 --rows 0",
    "missing": "cost --sizes 2 --runs 1 --workers 1",
    "past_votes": "--votes 40 --annotators 1 --before 0 --think 0.1",
    "serving_load": "--annotators 1 --seconds 1 --web-processes 1",
}
NEEDS_POSTGRESQL = {"dashboard", "export_scale"}
# reproduce has a file of its own; connections and soak kill workers for minutes, as test_chaos.py does.


def database_url(folder: Path) -> str:
    """A database beside that of the tests, of this process of theirs; a benchmark makes and drops it."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{folder}/benchmark.sqlite3"
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/benchmark_{process}").geturl()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.postgres_only] if name in NEEDS_POSTGRESQL else [])
        for name in SMALLEST
    ],
)
def test_it_runs_to_its_last_line(name, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *SMALLEST[name].split()],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": database_url(tmp_path),
            "CELERY_BROKER_URL": "filesystem://localhost",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert json.loads(run.stdout.splitlines()[-1])
