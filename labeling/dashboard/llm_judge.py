"""The language model as a judge: its opinions, its agreement with people, and whether it may vote."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from engine.models import Experiment, Opinion
from engine.selectors import workers
from engine.selectors.opinions import OpinionReport, opinion_report, votes_now
from engine.selectors.rubrics import DEFAULT_RUBRIC, why_no_judge

_ANSWERS = ("Left", "Right", "Tie")


@dataclass(frozen=True)
class Panel:
    """The contents of the dashboard's section on the language model.

    Attributes
    ----------
    report : OpinionReport or None
        ``None`` before it was ever asked.
    trouble : str
        Error of the judging worker's backend.
    why_none : str
        Reason why no language model can judge here.
    offered : bool
        True if there is anything to change: a model that can judge, or one to switch off.
    """

    report: OpinionReport | None
    needed: int
    model: str
    default_rubric: str
    votes_now: bool
    worker_alive: bool
    trouble: str
    why_none: str
    offered: bool
    answers: tuple[str, ...] = _ANSWERS

    @property
    def table(self) -> list[tuple[str, list[int]]]:
        return [] if self.report is None else list(zip(self.answers, self.report.table, strict=True))

    @property
    def waiting(self) -> int:
        states = {} if self.report is None else self.report.states
        return states.get(Opinion.State.WAITING, 0) + states.get(Opinion.State.ASKING, 0)

    @property
    def missing(self) -> int:
        return self.needed - (0 if self.report is None else self.report.agreement.exact.n)


def panel(experiment: Experiment) -> Panel | None:
    """The section's contents; ``None`` where a language model has no part in an experiment."""
    if experiment.judge != Experiment.Judge.HUMAN:
        return None
    worker_alive, trouble = _worker() if experiment.llm_judge != Experiment.LLMJudge.OFF else (False, "")
    return Panel(
        report=opinion_report(experiment),
        needed=settings.JUDGE_CALIBRATION,
        model=settings.JUDGE_MODEL or settings.JUDGE_BACKEND,
        default_rubric=DEFAULT_RUBRIC,
        votes_now=votes_now(experiment),
        worker_alive=worker_alive,
        trouble=trouble,
        why_none=why_no_judge(),
        offered=not why_no_judge() or experiment.llm_judge != Experiment.LLMJudge.OFF,
    )


def _worker() -> tuple[bool, str]:
    """The state of the judging workers: seen lately or not, and the fault of their backend."""
    worker = workers.latest("judging")
    if worker is None or not worker.alive:
        return False, ""
    return True, worker.details.get("trouble", "")
