"""Notifications of an experiment. Their forms are on the page of its settings."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from engine.domain.errors import SubscriptionError
from engine.domain.mail import why_no_mail
from engine.models import Subscription
from engine.services import notifications
from engine.tasks import deliver, wake
from labeling import access
from labeling.requests import AuthenticatedRequest
from labeling.views.settings import SubscriptionForm, settings_page


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
    if subscription.secret:
        return settings_page(request, experiment, new_webhook=subscription)
    if reason := why_no_mail():
        messages.warning(request, f"Added, but no message will arrive yet. {reason}")
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
