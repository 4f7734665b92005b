"""The expected size of an experiment: policies, pairs, and the planner's comparisons and hours."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.core import Forecast, closed_form
from engine.core.problem import BradleyTerry
from engine.domain import limits
from engine.domain.errors import SpecError
from engine.domain.policy_space import combinations, policy_space
from engine.models import Estimate, Experiment
from engine.selectors import workers
from engine.services import estimates
from engine.tasks import analyse, wake
from labeling.forms.draft import DraftEditor

# Standard deviation of the log-odds between two policies, as the planner takes it.
SPREADS = {
    "0.2": "close together: the better of two wins 54 of 100",
    "0.4": "somewhat apart: 58 of 100",
    "0.8": "far apart: 65 of 100",
}


@dataclass(frozen=True)
class Size:
    """The figures of the page before Start. ``estimate`` is None if there is nothing to ask the planner.

    ``formula`` is the planner's first figure, which needs no simulation. ``worker_alive`` says whether
    anybody is there to simulate.
    """

    policies: int = 0
    pairs: int = 0
    dimensions: int | None = None
    fault: str = ""
    estimate: Estimate | None = None
    formula: Forecast | None = None
    worker_alive: bool = True
    hours: tuple[float, float, float] | None = None
    spread: str = ""
    overlap: int = 1
    seconds: float = 20.0
    budget: int = 0

    @property
    def pending(self) -> bool:
        return self.estimate is not None and self.estimate.state == Estimate.State.WAITING

    @property
    def percent(self) -> int:
        return round(100 * self.estimate.progress) if self.estimate else 0

    @property
    def answer(self) -> dict[str, Any] | None:
        return self.estimate.answer if self.estimate else None

    @property
    def figures(self) -> dict[str, Any] | None:
        """The simulated figures, and until there are any those of the formula."""
        return self.answer or (asdict(self.formula) if self.formula and self.pending else None)

    @property
    def cut_short(self) -> bool:
        """True if there was no time to simulate as far as the budget."""
        return self.answer is not None and self.answer["horizon"] < self.budget

    @property
    def mostly_undecided(self) -> bool:
        return self.figures is not None and self.figures["decided"] < 0.5


def size_of(editor: DraftEditor) -> Size:
    """The size of a page's experiment. It requests the estimate if there is none yet."""
    spread = editor.data.get("spread", "0.4")
    spread = spread if spread in SPREADS else "0.4"
    question = editor.question(float(spread))
    if question is None:
        return Size(fault="Give every factor a level, and fill in the risk and the budget, to see the size.")
    levels = {str(f): [str(level) for level in range(n)] for f, n in enumerate(question.levels)}
    excluded = [{str(f): str(level) for f, level in each.items()} for each in question.excluded]
    try:
        limits.check_counts(question.levels, len(excluded))
        policies = combinations(levels, excluded)
        limits.check_space(
            question.levels,
            policies=len(policies),
            factorial=question.space == Experiment.Space.FACTORIAL,
        )
    except SpecError as error:
        return Size(fault=str(error))
    try:
        space = policy_space(question.space, levels, policies)
    except ValueError as error:
        few = len(policies) < 2
        fault = (
            "There is only one policy. Give a factor a second level, or exclude fewer combinations."
            if few
            else str(error)
        )
        return Size(policies=len(policies), fault=fault)
    answer = estimates.ask(question=question)
    if answer.state == Estimate.State.WAITING:
        wake(analyse)
    known = editor.settings.cleaned_data
    people = known.get("judge") == Experiment.Judge.HUMAN
    overlap = known.get("overlap") or 1
    seconds = _seconds(editor.data.get("seconds", ""))
    plan, log_odds = estimates.plan_of(answer.question)
    size = Size(
        policies=len(policies),
        pairs=len(policies) * (len(policies) - 1) // 2,
        dimensions=space.n_features if isinstance(space, BradleyTerry) else None,
        estimate=answer,
        formula=closed_form(plan, log_odds=log_odds),
        worker_alive=workers.is_alive("analysis"),
        spread=SPREADS[spread],
        overlap=overlap,
        seconds=seconds,
        budget=question.budget,
    )
    if size.figures is None or not people:
        return size
    low, mean, high = (size.figures[name] * overlap * seconds / 3600 for name in ("low", "expected", "high"))
    return replace(size, hours=(low, mean, high))


def _seconds(given: str) -> float:
    try:
        return min(3600.0, max(1.0, float(given)))
    except ValueError:
        return 20.0
