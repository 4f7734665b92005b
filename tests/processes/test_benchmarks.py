"""Every benchmark still runs: at its smallest size, to the JSON of its last line.

The figures of such a run say nothing, and nobody looks at them.
"""

from __future__ import annotations

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
    "allocation_solver": "--repeats 1 --cvxpy-limit 1 --cvxpy-up-to 0",
    "annotator_latency": "--before 1 --clicks 2 --presses 0",
    "assumptions": "--runs 1 --cap 20 --worlds plain",
    "connections": "client --requests 20 --at-once 4 --rounds 1",
    "dashboard": "--judgments 100 --policies 5 --viewers 1 --annotators 1 --seconds 1 --web-processes 1",
    "decision_latency": "--clicks 1 --policies 16 32 --after 0",
    "export_scale": "--rows 100",
    "generation_backends": "--backends embedded --clicks 1",
    "generation_buffer": "--annotators 1 --warm-up 0 --budget 4 --runs 1",
    "generation_throughput": "--backend embedded --responses 1 --rounds 1",
    "live_attacks": "--acts undo void --runs 1 --budget 10",
    "many_policies": "--instances 1 --policies 4 --votes 20",
    # Fails where a click fails or is lost: the test of a migration among clicks.
    "migration": "--judgments 2000 --annotators 2",
    "missing": "attacks --runs 2 --rates 0.8 --workers 1",
    "past_votes": "--votes 40 --annotators 1 --before 0 --think 0.1",
    "sample_efficiency": "--runs 1 --cap 20",
    "scaling": "--runs 1 --cap 20 --sizes 8 --in-flight --deltas",
    "serving_load": "--annotators 1 --seconds 1 --web-processes 1",
    "text_search": "--comparisons 50 --stored 50",
}
NEEDS_POSTGRESQL = {"dashboard", "export_scale", "migration"}
# Run by a test that also looks at the figures; or for a reason of its own.
ELSEWHERE = {
    "claims": "tests/benchmarks/test_claims.py",
    "error_rate": "tests/benchmarks/test_error_rate.py",
    "lower_bounds": "tests/benchmarks/test_lower_bounds.py",
    "reproduce": "tests/benchmarks/test_reproduce.py",
    "soak": "Starts ten processes, as tests/processes/test_chaos.py does: as dear as all others together.",
    "testification": "tests/benchmarks/test_testification.py",
    "warm_start": "tests/benchmarks/test_warm_start.py",
}


def test_each_of_them_is_run_somewhere():
    modules = (ROOT / "benchmarks").glob("*.py")
    programs = {module.stem for module in modules if '__name__ == "__main__"' in module.read_text()}
    assert programs == SMALLEST.keys() | ELSEWHERE.keys()


def database_url(folder: Path) -> str:
    """A database beside that of the tests, of this process of theirs; a benchmark makes and drops it."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{folder}/benchmark.sqlite3"
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/benchmark_{process}").geturl()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.postgres] if name in NEEDS_POSTGRESQL else [])
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
