"""Where the winner goes: destinations, what exactly would be sent to one, and back to the version before."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from engine.domain.errors import PublicationError
from engine.models import Destination, Experiment
from engine.publishing import sending
from engine.publishing.base import Place, RegistryError
from engine.publishing.registry import build_registry, registry_names
from engine.publishing.winners import winner_of
from engine.selectors import publications
from engine.services.publications import remove_destination
from engine.tasks import publish as send
from engine.tasks import wake
from labeling import access
from labeling.requests import AuthenticatedRequest, read_or_write


class DestinationForm(forms.Form):
    """A new destination. What a registry does not need is left empty."""

    kind = forms.ChoiceField(label="To")
    address = forms.CharField(
        max_length=500, required=False, label="Server", help_text="The https:// address; of a file none."
    )
    name = forms.CharField(
        max_length=200,
        required=False,
        label="Name of the prompt",
        help_text="Of a file its path, such as app/prompt.yaml; of a webhook none.",
    )
    label = forms.CharField(
        max_length=40,
        required=False,
        initial="production",
        label="Label",
        help_text="Label, alias or tag that moves to the new version.",
    )
    key = forms.CharField(
        max_length=2000,
        required=False,
        label="Key",
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data, label_suffix="")
        found = {name: build_registry(name) for name in registry_names()}
        self.fields["kind"].choices = [(name, each.title) for name, each in found.items()]  # type: ignore[attr-defined]
        self.fields["key"].help_text = " ".join(filter(None, (each.key_help for each in found.values())))


@sensitive_post_parameters("key")
@read_or_write
def destinations(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """List the destinations, or add one."""
    experiment = access.to_run(request, experiment_id)
    form = DestinationForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        access.require_recent_login(request)
        if form.is_valid():
            given = form.cleaned_data
            to = Place(given["address"], given["name"], given["label"])
            try:
                sending.add_destination(
                    experiment=experiment,
                    by=request.user,
                    kind=given["kind"],
                    to=to,
                    key=given["key"].strip(),
                )
            except PublicationError as refused:
                form.add_error(None, str(refused))
            else:
                messages.success(request, "Added. Nothing was sent yet.")
                return redirect("destinations", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "winner": winner_of(experiment),
        "reached": [(each, _title(each.destination)) for each in publications.destinations(experiment)],
        "form": form,
    }
    return render(request, "winners/destinations.html", context, status=400 if form.errors else 200)


@read_or_write
def publish(request: AuthenticatedRequest, experiment_id: int, destination_id: int) -> HttpResponse:
    """Show exactly what would be sent, or with ``back`` what would bring the version before back; send it."""
    experiment = access.to_run(request, experiment_id)
    destination = _destination(experiment, destination_id)
    winner, back = winner_of(experiment), "back" in request.GET
    try:
        if request.method == "POST":
            sending.begin(
                destination, winner, back=back, by=request.user, shown=request.POST.get("shown", "")
            )
            wake(send)
            messages.success(request, "It is on its way; reload this page to see whether it arrived.")
            return redirect("destinations", experiment_id=experiment.pk)
        requests = sending.planned(destination, winner, back=back)
    except PublicationError as refused:
        messages.error(request, str(refused))
        return redirect("destinations", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "destination": destination,
        "title": _title(destination),
        "winner": winner,
        "back": publications.reached(destination).undoable if back else None,
        # A webhook's address is a secret.
        "address": destination.host if destination.kind == "webhook" else destination.address,
        "requests": requests,
        "digest": sending.digest_of(requests),
    }
    return render(request, "winners/publish.html", context)


@require_POST
def remove(request: AuthenticatedRequest, experiment_id: int, destination_id: int) -> HttpResponse:
    """Remove a destination and its key."""
    experiment = access.to_run(request, experiment_id)
    remove_destination(destination=_destination(experiment, destination_id), by=request.user)
    return redirect("destinations", experiment_id=experiment.pk)


def _destination(experiment: Experiment, destination_id: int) -> Destination:
    return get_object_or_404(experiment.destinations.select_related("created_by"), pk=destination_id)


def _title(destination: Destination) -> str:
    try:
        return build_registry(destination.kind).title
    except RegistryError:
        return destination.kind
