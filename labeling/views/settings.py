"""The page of an experiment's settings, with its several forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from engine.domain.mail import why_no_mail
from engine.domain.rules import LARGEST_BUDGET, LARGEST_MARGIN, LARGEST_RISK, SMALLEST_RISK
from engine.models import Experiment, Subscription
from engine.selectors import log
from engine.selectors.designs import winner_name
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
        fields = ("tags", "money_limit", "leaderboard")
        labels = {  # noqa: RUF012 - never changed
            "leaderboard": "Show annotators a leaderboard",
            "money_limit": LABELS["money_limit"],
        }


class CloneForm(forms.Form):
    name = forms.CharField(max_length=200)


class SubscriptionForm(forms.Form):
    kind = forms.ChoiceField(choices=Subscription.Kind.choices, label="By")
    target = forms.CharField(
        max_length=500, label="To", help_text="An e-mail address, or the https:// address of a webhook."
    )
    events = forms.MultipleChoiceField(
        choices=Subscription.Event.choices,
        initial=list(Subscription.Event),
        widget=forms.CheckboxSelectMultiple,
        label="When",
        error_messages={"required": "Tick at least one."},
    )


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
        "clone_form": CloneForm(initial={"name": f"{experiment.name} (copy)"[:200]}),
        "subscription_form": SubscriptionForm(),
        "subscriptions": log.subscriptions(experiment),
        "why_no_mail": why_no_mail(),
        "winner": winner_name(experiment),
        "may_copy": access.may_create(request) and access.may_copy(request, experiment),
    }
    return render(request, "dashboard/settings.html", defaults | context, status=status)
