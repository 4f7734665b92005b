"""The language model as a judge: its opinions, its agreement with people, and whether it may vote."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from engine.domain.profiles import Provider
from engine.models import Experiment, Opinion
from engine.selectors import workers
from engine.selectors.connections import usable_by
from engine.selectors.opinions import OpinionReport, opinion_report, votes_now
from engine.selectors.pauses import waiting_for
from engine.selectors.rubrics import DEFAULT_RUBRIC, judge_name, why_no_judge

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
    waits : str
        A sentence where the connection that judges pauses.
    why_none : str
        Reason why no language model can judge here.
    judges : tuple of (str, str)
        The models that may judge, and what they are called: names of connections, and "" for the judging
        worker's own.
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
    waits: str
    why_none: str
    judges: tuple[tuple[str, str], ...]
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
    """The section's contents; ``None`` for an experiment without a language model as a judge."""
    if experiment.judge != Experiment.Judge.HUMAN:
        return None
    is_on = experiment.llm_judge != Experiment.LLMJudge.OFF
    worker_alive, trouble = _worker(experiment) if is_on else (False, "")
    connections = {
        each.name: each for each in usable_by(experiment).exclude(provider=Provider.WORKER).order_by("name")
    }
    asked = connections.get(experiment.judge_model)
    own = (("", f"{settings.JUDGE_MODEL or settings.JUDGE_BACKEND} (the judging worker’s own)"),)
    judges = (*(own if settings.JUDGE_BACKEND else ()), *((name, name) for name in connections))
    return Panel(
        report=opinion_report(experiment),
        needed=settings.JUDGE_CALIBRATION,
        model=judge_name(experiment),
        default_rubric=DEFAULT_RUBRIC,
        votes_now=votes_now(experiment),
        worker_alive=worker_alive,
        trouble=trouble,
        waits=waiting_for(asked) if asked and is_on else "",
        why_none=why_no_judge(experiment),
        judges=judges,
        offered=bool(judges) or is_on,
    )


def _worker(experiment: Experiment) -> tuple[bool, str]:
    """The state of the workers that could judge it: seen lately or not, and the fault of their backend."""
    remote = Experiment.Backend.REMOTE
    seen = [
        each
        for each in workers.seen("judging")
        if (each.details.get("backend") == remote) == bool(experiment.judge_model)
    ]
    worker = workers.latest("judging", seen)
    if worker is None or not worker.alive:
        return False, ""
    return True, worker.details.get("trouble", "")
