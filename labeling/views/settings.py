"""The page of an experiment's settings: its forms, the changes that they make, copies and notifications; and
changing what the language model may do as a judge.
"""

from copy import copy
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from engine.domain.claim_settings import LARGEST_BUDGET, LARGEST_MARGIN, LARGEST_RISK, SMALLEST_RISK
from engine.domain.errors import EngineError, SpecError, SubscriptionError, WrongStateError
from engine.domain.mail_state import why_no_mail
from engine.models import Experiment, Subscription
from engine.selectors import experiment_log
from engine.selectors.experiments import free_name
from engine.selectors.opinions import experiments_with_opinions
from engine.selectors.policies import winner_name
from engine.services import drafts, notifications, opinions, setting_changes
from engine.tasks import deliver, wake, wake_judges, wake_planner
from labeling import access
from labeling.dashboard.status import status_of
from labeling.forms.fields import say_bounds
from labeling.forms.settings import LABELS
from labeling.requests import AuthenticatedRequest


class ChangeSettingsForm(forms.Form):
    """The settings that may change after the start."""

    claim = forms.ChoiceField(
        choices=Experiment.CLAIMS,
        label="Claim to stop on",
        help_text="What the experiment has to establish before it names a winner.",
    )
    budget = forms.IntegerField(
        min_value=1,
        max_value=LARGEST_BUDGET,
        help_text="Maximum number of comparisons, with or without a winner.",
    )
    delta = forms.FloatField(
        min_value=SMALLEST_RISK,
        max_value=LARGEST_RISK,
        label=LABELS["delta"],
    )
    epsilon = forms.FloatField(
        min_value=0,
        max_value=LARGEST_MARGIN,
        label=LABELS["epsilon"],
        help_text=(
            "Good enough: no other policy is better by more. Best, if there is a best: "
            "the winner must win that much more than half of the time. Best: this claim has no margin."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("delta", "epsilon"):
            self.fields[name].widget.attrs["step"] = "any"
        for field in self.fields.values():
            say_bounds(field, field.validators)


class DisplayForm(forms.ModelForm):  # type: ignore[type-arg]  # ModelForm takes no argument at run time
    """Values on which the evidence does not depend."""

    class Meta:
        model = Experiment
        fields = ("name", "guidelines", "further_questions", "tags", "money_limit", "leaderboard")
        widgets = {  # noqa: RUF012 - never changed
            "guidelines": forms.Textarea(attrs={"rows": 5}),
            "further_questions": forms.Textarea(attrs={"rows": 3}),
        }
        help_texts = {  # noqa: RUF012 - never changed
            "guidelines": (
                "Correct what is unclear. Another meaning would make answers before and after mean different "
                "things: make a copy for that."
            )
        }
        labels = {  # noqa: RUF012 - never changed
            "guidelines": LABELS["guidelines"],
            "further_questions": LABELS["further_questions"],
            "leaderboard": "Show annotators a leaderboard",
            "money_limit": LABELS["money_limit"],
        }


class CloneForm(forms.Form):
    name = forms.CharField(max_length=200)


class SubscriptionForm(forms.Form):
    kind = forms.ChoiceField(choices=Subscription.Kind.choices, label="By")
    target = forms.CharField(
        max_length=500,
        label="To",
        help_text=(
            "An e-mail address, the https:// address of a webhook, of Slack or Teams too; or of a "
            "repository, whose commits the gate compares: https://github.com/owner/name."
        ),
    )
    token = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        label="Token, for a repository",
        help_text="It may write commit statuses, and needs no other right. Nobody sees it again.",
    )
    events = forms.MultipleChoiceField(
        required=False,
        choices=Subscription.Event.choices,
        initial=list(Subscription.Event),
        widget=forms.CheckboxSelectMultiple,
        label="When",
    )

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        if given.get("kind") in Subscription.FORGES:
            if not given.get("token"):
                self.add_error("token", "Give a token that may write commit statuses.")
        elif not given.get("events"):
            self.add_error("events", "Tick at least one.")
        return given


@require_safe
def experiment_settings(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The page of settings, notifications and copying."""
    return settings_page(request, access.to_run(request, experiment_id))


def settings_page(
    request: AuthenticatedRequest, experiment: Experiment, *, status: int = 200, **context: Any
) -> HttpResponse:
    """The page, with a faulty form in place of the fresh one."""
    current = {name: getattr(experiment, name) for name in ChangeSettingsForm.base_fields}
    defaults = {
        "experiment": experiment,
        "status": status_of(experiment),
        "form": ChangeSettingsForm(initial=current),
        "display_form": DisplayForm(instance=experiment),
        "clone_form": CloneForm(initial={"name": free_name(request.user, experiment.name)}),
        "subscription_form": SubscriptionForm(),
        "subscriptions": experiment_log.subscriptions(experiment),
        "why_no_mail": why_no_mail(),
        "winner": winner_name(experiment),
        "may_own": access.may_own(request, experiment),
        "may_copy": access.may_create(request) and access.may_copy(request, experiment),
    }
    return render(request, "dashboard/settings.html", defaults | context, status=status)


@require_POST
def change_settings(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Say what a change means; with ``confirmed``, make it, which reopens a concluded experiment."""
    experiment = access.to_run(request, experiment_id)
    form = ChangeSettingsForm(request.POST)
    if not form.is_valid():
        return settings_page(request, experiment, status=400, form=form)
    reopening = experiment.state == Experiment.State.CONCLUDED
    if not request.POST.get("confirmed"):
        return _ask(request, experiment, form, reopening=reopening)
    change = setting_changes.reopen if reopening else setting_changes.change_settings
    try:
        change(experiment_id=experiment.pk, by=request.user, **form.cleaned_data)
    except EngineError as refused:
        form.add_error(None, str(refused))
        return settings_page(request, experiment, status=400, form=form)
    wake_planner(experiment.pk)
    messages.success(request, "Reopened." if reopening else "Changed.")
    return redirect("dashboard", experiment_id=experiment.pk)


@require_POST
def change_display(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Change the name, and other things on which the evidence does not depend."""
    experiment = access.to_run(request, experiment_id)
    form = DisplayForm(request.POST, instance=copy(experiment))
    if form.is_valid():
        try:
            setting_changes.change_display(experiment_id=experiment.pk, by=request.user, **form.cleaned_data)
        except SpecError as refused:
            form.add_error("name", str(refused).removeprefix("name: "))
    if form.errors:
        return settings_page(request, experiment, status=400, display_form=form)
    messages.success(request, "Saved.")
    return redirect("experiment_settings", experiment_id=experiment.pk)


@require_POST
def tell_outcome(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Let annotators know which policy their answers preferred."""
    experiment = access.to_run(request, experiment_id)
    setting_changes.change_display(experiment_id=experiment.pk, by=request.user, tell_outcome=True)
    messages.success(request, "Their pages name it now.")
    return redirect("dashboard", experiment_id=experiment.pk)


def _ask(
    request: AuthenticatedRequest, experiment: Experiment, form: ChangeSettingsForm, *, reopening: bool
) -> HttpResponse:
    changes = [
        {
            "label": form.fields[name].label or name.capitalize(),
            "before": setting_changes.value_in_words(name, getattr(experiment, name)),
            "after": setting_changes.value_in_words(name, value),
            "consequence": setting_changes.CONSEQUENCES[name](experiment, value),
        }
        for name, value in form.cleaned_data.items()
        if value != getattr(experiment, name)
    ]
    if not changes and not reopening:
        messages.info(request, "These settings are already in force.")
        return redirect("experiment_settings", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "values": form.cleaned_data,
        "changes": changes,
        "reopening": reopening,
    }
    return render(request, "dashboard/settings_confirm.html", context)


@require_POST
def clone(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Make a new draft of the same description."""
    experiment = access.to_copy(request, experiment_id)
    form = CloneForm(request.POST)
    if not form.is_valid():
        return settings_page(request, experiment, status=400, clone_form=form)
    try:
        copy = drafts.clone(experiment=experiment, by=request.user, name=form.cleaned_data["name"])
    except SpecError as refused:
        form.add_error("name", str(refused).removeprefix("name: "))
        return settings_page(request, experiment, status=400, clone_form=form)
    winner = winner_name(experiment)
    change = f"“{winner}” won: keep its levels and add others that challenge it" if winner else "Change it"
    messages.success(request, f"Copied. This is the copy, a draft that you own. {change}, then start it.")
    return redirect("setup", experiment_id=copy.pk)


@require_POST
def subscribe(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Add an address. A webhook's secret is in the answer to this request and nowhere else."""
    experiment = access.to_run(request, experiment_id)
    form = SubscriptionForm(request.POST)
    if not form.is_valid():
        return settings_page(request, experiment, status=400, subscription_form=form)
    try:
        subscription = notifications.subscribe(experiment=experiment, by=request.user, **form.cleaned_data)
    except SubscriptionError as refused:
        form.add_error("target", str(refused))
        return settings_page(request, experiment, status=400, subscription_form=form)
    if subscription.kind == Subscription.Kind.WEBHOOK:
        return settings_page(request, experiment, new_webhook=subscription)
    if subscription.kind == Subscription.Kind.EMAIL and (reason := why_no_mail()):
        messages.warning(request, f"Added, but no message will arrive yet. {reason}")
    elif subscription.kind in Subscription.FORGES:
        messages.success(request, "Added. The states of commits at the gate are posted there from now on.")
    else:
        messages.success(request, "Added. Send a test to see that messages arrive.")
    return redirect("experiment_settings", experiment_id=experiment.pk)


@require_POST
def unsubscribe(request: AuthenticatedRequest, experiment_id: int, subscription_id: int) -> HttpResponse:
    """Remove an address."""
    experiment = access.to_run(request, experiment_id)
    subscription = get_object_or_404(experiment.subscriptions, pk=subscription_id)
    notifications.unsubscribe(subscription=subscription, by=request.user)
    return redirect("experiment_settings", experiment_id=experiment.pk)


@require_POST
def send_test(request: AuthenticatedRequest, experiment_id: int, subscription_id: int) -> HttpResponse:
    """Send a message that only says that messages arrive."""
    experiment = access.to_run(request, experiment_id)
    subscription: Subscription = get_object_or_404(experiment.subscriptions, pk=subscription_id)
    try:
        notifications.send_test(subscription=subscription)
    except SubscriptionError as refused:
        messages.error(request, f"No test was sent. {refused}")
    else:
        wake(deliver)
        messages.success(request, "A test is on its way; reload this page to see whether it arrived.")
    return redirect("experiment_settings", experiment_id=experiment.pk)


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
