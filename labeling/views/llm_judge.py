"""The language model as a judge: what it thinks, how far it agrees with people, and whether it may vote."""

from __future__ import annotations

from dataclasses import dataclass

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from engine.domain.errors import WrongStateError
from engine.models import Experiment, Opinion
from engine.selectors import opinions as opinions_selectors
from engine.selectors import workers
from engine.selectors.opinions import OpinionReport, experiments_with_opinions, opinion_report
from engine.selectors.rubrics import DEFAULT_RUBRIC, why_no_judge
from engine.services import opinions
from engine.tasks import give_opinions, wake
from labeling import access
from labeling.requests import AuthenticatedRequest

_ANSWERS = ("Left", "Right", "Tie")
_SAID = {
    Experiment.LLMJudge.OFF: "The language model is not asked.",
    Experiment.LLMJudge.SHADOW: "The language model gives opinions, which do not count.",
    Experiment.LLMJudge.VOTES: "The language model votes.",
}


class LLMJudgeForm(forms.Form):
    stage = forms.ChoiceField(choices=Experiment.LLMJudge.choices)
    rubric = forms.CharField(max_length=10_000, required=False)
    budget = forms.IntegerField(min_value=0, max_value=10_000_000)


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
        votes_now=opinions_selectors.votes_now(experiment),
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


@login_required
@require_POST
def change_llm_judge(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Let the language model say nothing, give opinions, or vote."""
    experiment = access.to_run(request, experiment_id)
    form = LLMJudgeForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest(
            "Choose off, shadow or votes. The budget is a number of comparisons. The rubric has at "
            "most 10,000 characters."
        )
    data = form.cleaned_data
    try:
        opinions.change_llm_judge(
            experiment_id=experiment.pk,
            stage=data["stage"],
            rubric=data["rubric"],
            budget=data["budget"],
            by=request.user,
        )
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    else:
        messages.success(request, _SAID[data["stage"]])
        if experiments_with_opinions().filter(pk=experiment.pk).exists():
            wake(give_opinions)
    return redirect("quality", experiment_id=experiment.pk)
