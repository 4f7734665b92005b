"""Reasons to doubt a finding: few judgments decide it, or the data contradict an assumption."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.core.contradictions import Misfit, misfit, strongest_cycle
from engine.core.robustness import fewest_flips
from engine.core.spaces import Factorial
from engine.domain.claim_settings import Rules
from engine.domain.policy_space import PolicyName
from engine.models import Experiment, Snapshot
from engine.selectors.annotators import long_solo_runs

# Low, because the test is repeated while judgments arrive; 199 simulations cannot tell less than 1 in 200.
_MISFIT_P = 0.01
_MOST_FLIPS = 512


def concerns(
    experiment: Experiment,
    factorial: Factorial | None,
    wins: npt.NDArray[np.float64],
    ties: npt.NDArray[np.float64],
    *,
    names: Sequence[PolicyName],
    snapshot: Snapshot | None,
) -> dict[str, Any]:
    """The warnings that these counts give cause for, and the figures behind them."""
    test = None if factorial is None or not wins.any() else misfit(factorial, wins, ties, level=_MISFIT_P)
    warnings = []
    cycle = strongest_cycle(wins, ties, _in_the_race(snapshot, len(names)))
    if cycle is not None:
        a, b, c = (names[index].name for index in cycle.policies)
        warnings.append(
            f"The leaders form a cycle: {a} beats {b}, {b} beats {c}, and {c} beats {a}. If this is not "
            "chance, no single policy is the best. The experiment will then say so or spend its budget."
        )
    for run in long_solo_runs(experiment)[:1]:
        warnings.append(
            f"{run.annotator} judged {run.length:,} pairs in a row, with nobody else’s judgments in between. "
            "If people differ, the result depends on who came when. Let annotators work at the same time."
        )
    if test is not None and test.contradicted:
        warnings.append(_misfit_warning(experiment, test))
    return {"warnings": warnings, "flips": _flips(experiment, wins, names, snapshot), "misfit": test}


def _in_the_race(snapshot: Snapshot | None, n_policies: int) -> npt.NDArray[np.int64]:
    """Policies not ruled out, and the last ones ruled out: at least four, which shows a cycle of the best."""
    if snapshot is None:
        return np.arange(n_policies)
    order = np.argsort(snapshot.evidence, kind="stable")
    n_open = int(np.sum(np.array(snapshot.peak_evidence) < snapshot.threshold))
    return order[: max(n_open, 4)]


def _misfit_warning(experiment: Experiment, test: Misfit) -> str:
    sentence = (
        "The effects of the levels do not add up. A model with one effect for each "
        f"level fits the data worse than chance explains (p = {test.p_value:.3f}). "
    )
    if experiment.space == Experiment.Space.FACTORIAL:
        return sentence + (
            "This experiment assumes that they add up, and its risk depends on it. Repeat it without "
            "the assumption."
        )
    return sentence + "The winner does not depend on this. The table “Effects of the levels” does."


def _flips(
    experiment: Experiment,
    wins: npt.NDArray[np.float64],
    names: Sequence[PolicyName],
    snapshot: Snapshot | None,
) -> str:
    if not wins.any():
        return ""
    found = fewest_flips(wins, epsilon=Rules.of(experiment).margin_of_best, most=_MOST_FLIPS)
    if found is None:
        return f"More than {_MOST_FLIPS} judgments would have to be reversed before another policy leads."
    leader, rival = names[found.leader].name, names[found.rival].name
    shown = experiment.winner or (snapshot.best if snapshot else None)
    if shown is not None and shown.index != found.leader:
        return (
            f"{names[shown.index].name} leads in the ranking, but the evidence against {leader} is weaker. "
            "A few judgments may change the result."
        )
    if found.n_flips == 0:
        return f"{leader} and {rival} have equal evidence against them."
    judgments = f"{found.n_flips:,} of {round(wins.sum()):,} judgments"
    if np.any(wins % 1):
        # With ties the number is not known to be the smallest.
        were = "was" if found.n_flips == 1 else "were"
        return f"If {judgments} {were} reversed, another policy ({rival}) would draw level with {leader}."
    return f"{judgments} would have to be reversed before another policy ({rival}) drew level with {leader}."
