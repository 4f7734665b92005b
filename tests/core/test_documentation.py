"""The numbers of the worked example in docs/algorithm.md, and the program of the README."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from engine.core import Design, Unstructured
from engine.core.allocation import (
    elimination_rate,
    lower_bound,
    pairwise_allocation,
    pairwise_characteristic_time,
)
from engine.core.evidence import PairwiseEvidence
from engine.core.types import check_tally

WINS = np.array([[0, 31, 27, 36], [19, 0, 26, 30], [13, 14, 0, 22], [4, 10, 18, 0]], dtype=float)


def test_evidence_and_decision_of_the_worked_example() -> None:
    log_e = PairwiseEvidence(check_tally(WINS, None, 4), narrow=True).log_e[0]
    assert log_e[3, :3] == pytest.approx([7.014, 2.891, 0.050], abs=5e-4)
    design = Design.from_counts(Unstructured(4), WINS, claim="best_if_any")
    assert design._ledger.evidence.per_policy[0] == pytest.approx([-1.411, 0.069, 1.023, 5.932], abs=5e-4)
    decision = design.decision
    assert decision.n_comparisons == 250
    assert decision.threshold == pytest.approx(2.996, abs=5e-4)
    assert (decision.stopped, decision.best, decision.runner_up) == (False, 0, 1)


def test_allocation_of_the_worked_example() -> None:
    mu = Design.from_counts(Unstructured(4), WINS).win_rate
    np.fill_diagonal(mu, 0.5)
    rate, opponent = elimination_rate(mu)
    assert rate[1:] == pytest.approx([0.0291, 0.0626, 0.3681], abs=5e-5)
    assert opponent[1:].tolist() == [0, 0, 0]
    assert pairwise_allocation(mu)[0, 1:] == pytest.approx([0.648, 0.301, 0.051], abs=5e-4)
    characteristic_time = pairwise_characteristic_time(mu)
    assert characteristic_time == pytest.approx(53.1, abs=0.05)
    assert lower_bound(characteristic_time, 0.05) == pytest.approx(140.7, abs=0.05)


def test_the_readmes_program_runs_as_typed_to_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    random.seed(1)
    names: dict[str, object] = {}
    exec(program, names)  # noqa: S102 - our own documentation
    design = names["design"]
    assert isinstance(design, Design)
    assert design.decision.best == 0
    assert str(design.n_comparisons) in capsys.readouterr().out
