"""How far the finding can be trusted: what hangs on few judgments, and what the data say against an assumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.core.contradictions import Misfit, misfit, strongest_cycle
from engine.core.problem import Factorial
from engine.core.robustness import fewest_flips
from engine.models import Experiment, Snapshot
from labeling.dashboard.status import PolicyName

# Low, because the test is repeated while judgments arrive; 199 simulations cannot tell less than 1 in 200.
_MISFIT_P = 0.01
_MOST_FLIPS = 512


@dataclass(frozen=True)
class Concerns:
    """Warnings, and the figures behind them."""

    warnings: list[str]
    flips: str
    misfit: Misfit | None


def concerns(
    experiment: Experiment,
    factorial: Factorial | None,
    wins: npt.NDArray[np.float64],
    ties: npt.NDArray[np.float64],
    *,
    names: Sequence[PolicyName],
    snapshot: Snapshot | None,
) -> Concerns:
    """What there is to warn of in these counts."""
    test = None if factorial is None or not wins.any() else misfit(factorial, wins, ties, level=_MISFIT_P)
    warnings = []
    cycle = strongest_cycle(wins, ties, _in_the_race(snapshot, len(names)))
    if cycle is not None:
        a, b, c = (names[index].short for index in cycle.policies)
        warnings.append(
            f"The leaders go round in a circle: {a} beats {b}, {b} beats {c}, and {c} beats {a}. If that is more than "
            "chance, no policy is the single best one, and the experiment will say so or spend its budget."
        )
    if test is not None and test.contradicted:
        warnings.append(_misfit_warning(experiment, test))
    return Concerns(warnings=warnings, flips=_flips(experiment, wins, names), misfit=test)


def _in_the_race(snapshot: Snapshot | None, n_policies: int) -> npt.NDArray[np.int64]:
    """Policies not ruled out, and beside them the last ruled out, so that a cycle of the very best shows."""
    if snapshot is None:
        return np.arange(n_policies)
    order = np.argsort(snapshot.evidence, kind="stable")
    n_open = int(np.sum(np.array(snapshot.peak_evidence) < snapshot.threshold))
    return order[: max(n_open, 4)]


def _misfit_warning(experiment: Experiment, test: Misfit) -> str:
    sentence = (
        "The levels do not simply add up: win rates that go by each level's own worth fit the data worse than "
        f"chance would (deviance {test.deviance:.0f} on {test.freedom} degrees of freedom, p = {test.p_value:.3f}). "
    )
    if experiment.space == Experiment.Space.FACTORIAL:
        return (
            sentence
            + "This experiment assumes that they do, and its certainty rests on it: repeat it without the assumption."
        )
    return sentence + "The decision does not assume that they do; read the effects below with care."


def _flips(experiment: Experiment, wins: npt.NDArray[np.float64], names: Sequence[PolicyName]) -> str:
    if not wins.any():
        return ""
    found = fewest_flips(wins, epsilon=experiment.epsilon, most=_MOST_FLIPS)
    if found is None:
        return f"More than {_MOST_FLIPS} judgments would have to be the other way round for another policy to lead."
    leader, rival = names[found.leader].short, names[found.rival].short
    if found.n_flips == 0:
        return f"{leader} and {rival} have equal evidence against them."
    judgments = "1 judgment" if found.n_flips == 1 else f"{found.n_flips:,} judgments"
    return (
        f"If {judgments} of {round(wins.sum()):,} were the other way round, {rival} would be level with {leader} or lead; "
        + ("ties left as they are." if np.any(wins % 1) else "no fewer would do.")
    )
