"""The language model as a judge: its opinions, its agreement with people, and whether it may vote."""

from typing import Any

from django.conf import settings

from engine.models import Connection, Experiment, Opinion
from engine.selectors import workers
from engine.selectors.connection_pauses import waiting_for
from engine.selectors.opinions import opinion_report, votes_now
from engine.selectors.rubrics import DEFAULT_RUBRIC, judge_name, why_no_judge

_ANSWERS = ("Left", "Right", "Tie")


def panel(experiment: Experiment) -> dict[str, Any] | None:
    """The contents of the section; ``None`` for an experiment without a language model as a judge."""
    if experiment.judge != Experiment.Judge.HUMAN:
        return None
    is_on = experiment.llm_judge != Experiment.LLMJudge.OFF
    worker_alive, trouble = _worker(experiment) if is_on else (False, "")
    connections = {
        each.name: each for each in Connection.objects.remote().usable_by(experiment).order_by("name")
    }
    asked = connections.get(experiment.judge_model)
    # What may judge, and what it is called: names of connections, and "" for the judging worker's own model.
    own = (("", f"{settings.JUDGE_MODEL or settings.JUDGE_BACKEND} (the judging worker’s own)"),)
    judges = (*(own if settings.JUDGE_BACKEND else ()), *((name, name) for name in connections))
    report = opinion_report(experiment)
    states = report.states if report else {}
    return {
        "report": report,
        "needed": settings.JUDGE_CALIBRATION,
        "missing": settings.JUDGE_CALIBRATION - (report.agreement.exact.n if report else 0),
        "waiting": states.get(Opinion.State.WAITING, 0) + states.get(Opinion.State.ASKING, 0),
        "answers": _ANSWERS,
        "table": list(zip(_ANSWERS, report.table, strict=True)) if report else [],
        "model": judge_name(experiment),
        "default_rubric": DEFAULT_RUBRIC,
        "votes_now": votes_now(experiment),
        "worker_alive": worker_alive,
        "trouble": trouble,
        "waits": waiting_for(asked) if asked and is_on else "",
        "why_none": why_no_judge(experiment),
        "judges": judges,
        # Something to change: a model that can judge, or one to switch off.
        "offered": bool(judges) or is_on,
    }


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
