"""The page to which people bring votes that they have."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from engine.domain.errors import EngineError, SpecError
from engine.domain.limits import VOTES_BYTES
from engine.importing import ImportingError, Votes, read_votes, source_of
from engine.models import Experiment
from engine.services.past_votes import add_votes, start_from_votes
from engine.tasks import advance, wake
from labeling import access
from labeling.requests import AuthenticatedRequest


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def import_votes(request: AuthenticatedRequest) -> HttpResponse:
    """Ask for a file of past votes; make an experiment of it, or add them to the one of that name."""
    access.to_create(request)
    faults: list[str] = []
    if request.method == "POST":
        try:
            votes = _uploaded(request)
            experiment = _stored(request, votes)
        except (ImportingError, EngineError) as error:
            faults = str(error).splitlines()
        else:
            wake(advance, experiment.pk)
            messages.success(request, f"{len(votes.votes):,} votes imported.")
            for warning in votes.warnings:
                messages.warning(request, warning)
            return redirect("dashboard", experiment_id=experiment.pk)
    context = {"faults": faults, "typed_name": request.POST.get("name", "")}
    return render(request, "setup/votes.html", context, status=400 if faults else 200)


def _uploaded(request: AuthenticatedRequest) -> Votes:
    if (file := request.FILES.get("votes")) is None:
        raise ImportingError.at("", "Choose a file first.")
    return read_votes(source_of([(file.name or "", file)], VOTES_BYTES))


def _stored(request: AuthenticatedRequest, votes: Votes) -> Experiment:
    name = request.POST.get("name", "").strip()
    # Their own comes first: others may have shared one of the same name with them.
    of_that_name = [each for each in Experiment.objects.filter(name=name) if access.may_run(request, each)]
    own = [each for each in of_that_name if each.maker_id == request.user.pk]
    there = own or of_that_name
    if len(there) > 1:
        raise SpecError(
            f"name: You may change {len(there)} experiments of this name. Choose another one, or import the "
            "votes with manage.py import_votes."
        )
    if there:
        return add_votes(experiment_id=there[0].pk, votes=votes.votes, by=request.user)
    return start_from_votes(name=name, votes=votes.votes, by=request.user)
