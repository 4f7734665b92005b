"""Changing what the language model may do as a judge."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from engine.domain.errors import WrongStateError
from engine.models import Experiment
from engine.selectors.opinions import experiments_with_opinions
from engine.services import opinions
from engine.tasks import wake_judges
from labeling import access
from labeling.requests import AuthenticatedRequest

_SAID = {
    Experiment.LLMJudge.OFF: "The language model is not asked.",
    Experiment.LLMJudge.SHADOW: "The language model gives opinions, which do not count.",
    Experiment.LLMJudge.VOTES: "The language model votes.",
}


class LLMJudgeForm(forms.Form):
    stage = forms.ChoiceField(choices=Experiment.LLMJudge.choices)
    rubric = forms.CharField(max_length=10_000, required=False)
    budget = forms.IntegerField(min_value=0, max_value=10_000_000)
    judge_model = forms.CharField(max_length=100, required=False)


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
            # A page without a choice leaves it as it is.
            judge_model=data["judge_model"] if "judge_model" in request.POST else None,
            by=request.user,
        )
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    else:
        messages.success(request, _SAID[data["stage"]])
        if experiments_with_opinions().filter(pk=experiment.pk).exists():
            wake_judges()
    return redirect("quality", experiment_id=experiment.pk)
