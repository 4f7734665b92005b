"""`make reproduce` at sizes that take seconds, and the measured instance behind its real experiments."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings

from benchmarks.real_text import POLICIES, PREFER, Judged, judge_pool, read_pool, save_json
from benchmarks.tinylm.tasks import tasks_of
from engine.core.allocation import best_policy
from engine.core.samplers import SAMPLERS

pytestmark = pytest.mark.slow

TINY = ("--runs", "2", "--cap", "20", "--tasks", "2", "--samples", "2", "--jobs", "2")


def reproduce(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reproduce", *TINY, "--out", str(folder), *arguments],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("reproduction")
    return folder, reproduce(folder)


def shares(figure: dict[str, Any]) -> list[float]:
    tables = [figure["table"]] if "table" in figure else [task["table"] for task in figure["tasks"].values()]
    return [share for table in tables for row in table.values() for share in row["pcs"].values()]


def test_every_figure_has_its_pictures_and_every_design_its_row(reproduced):
    _, report = reproduced
    assert set(report["figures"]) == {"unstructured", "structured", "real"}
    for figure in report["figures"].values():
        for file in map(Path, figure["files"]):
            assert file.read_text("utf-8").rstrip().endswith("</svg>")
    designs = {f"{sampler}+heuristic" for sampler in SAMPLERS}
    for space in ("unstructured", "structured"):
        assert set(report["figures"][space]["table"]) == designs | {"balanced+certified"}
    for task in report["figures"]["real"]["tasks"].values():
        assert set(task["table"]) == designs


def test_shares_of_right_answers_are_shares(reproduced):
    _, report = reproduced
    for figure in report["figures"].values():
        assert all(0 <= share <= 1 for share in shares(figure))


def test_the_oracle_knows_a_best_policy_of_every_task(reproduced):
    _, report = reproduced
    tasks = report["figures"]["real"]["tasks"]
    assert set(tasks) == set(PREFER)
    for task in tasks.values():
        mu = np.array(task["mu"])
        np.testing.assert_allclose(mu + mu.T, 1.0, atol=2e-4)
        assert int(best_policy(mu)) in task["oracle"]


def test_an_interrupted_run_does_only_what_is_missing(reproduced):
    folder, before = reproduced
    lost_run = next((folder / "runs").glob("structured-random-*"))
    lost_run.unlink()
    texts = read_pool(folder / "responses", "sum")
    save_json(folder / "responses" / "sum.json", [[*place, text] for place, text in [*texts.items()][:10]])
    written = {path: path.stat().st_mtime_ns for path in folder.glob("r*/*.json")}

    after = reproduce(folder)

    assert read_pool(folder / "responses", "sum") == texts
    rewritten = {path for path, moment in written.items() if path.stat().st_mtime_ns != moment}
    assert rewritten == {folder / "responses" / "sum.json"}
    assert lost_run.exists()
    assert [shares(figure) for figure in after["figures"].values()] == [
        shares(figure) for figure in before["figures"].values()
    ]


def test_other_settings_do_not_take_up_old_results(reproduced):
    folder, before = reproduced
    other = reproduce(folder, "--figures", "unstructured", "--seed", "7")
    assert shares(other["figures"]["unstructured"]) != shares(before["figures"]["unstructured"])


def pool(folder: Path, answers: dict[int, str]) -> None:
    """Two responses of every policy to each of two sums: "right", "wrong", or right with its working."""
    rows = []
    for policy, task, sample in product(range(len(POLICIES)), range(2), range(2)):
        reference = tasks_of("sum", 2)[task].reference
        text = {
            "right": reference,
            "wrong": "none",
            "worked": f"First one, then the other one. Answer: {reference}",
        }
        rows.append([policy, task, sample, text[answers.get(policy, "wrong")]])
    save_json(folder / "sum.json", rows)


def test_the_judge_compares_every_two_responses(tmp_path):
    pool(tmp_path, {0: "right", 1: "worked"})
    judged = judge_pool("sum", 2, 2, tmp_path)
    assert judged.accuracy.tolist() == [1, 1, 0, 0, 0, 0]
    assert judged.mu[0].tolist() == [0.5, 0, 1, 1, 1, 1]
    assert judged.mu[1].tolist() == [1, 0.5, 1, 1, 1, 1]
    # Two wrong answers: a fair coin, which counts one half.
    assert judged.mu[2, 3:].tolist() == [0.5, 0.5, 0.5]
    assert judged.oracle.tolist() == [False, True, False, False, False, False]


def test_equally_good_policies_are_all_in_the_best_set(tmp_path):
    pool(tmp_path, {2: "right", 4: "right"})
    assert np.flatnonzero(judge_pool("sum", 2, 2, tmp_path).oracle).tolist() == [2, 4]


def test_what_is_right_follows_the_order_of_the_policies():
    strengths = np.array([0.1, 0.9, 0.3, 0.2, 0.5, 0.4])
    mu = 0.5 + (strengths[:, None] - strengths) / 4
    instance = Judged(mu, np.zeros_like(mu), np.zeros(6)).instance(50, seed=3)
    best = best_policy(instance.mu)
    assert len(set(best.tolist())) > 1
    assert np.array_equal(instance.right, best[:, None] == np.arange(6))
