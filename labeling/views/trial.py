"""The page that tries a draft, and the rehearsal with its responses: nothing counts."""

import uuid
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from engine.domain.errors import SpecError, WrongStateError
from engine.models import Experiment, Flag
from engine.selectors import counts
from engine.selectors.trials import rehearsal_pair
from engine.services import trials
from engine.services.serving import ShownPair
from engine.services.undos_and_skips import MOST_HELD
from engine.tasks import wake_writers
from labeling import access
from labeling.annotation.keys import habits
from labeling.dashboard.trial import page_of
from labeling.forms.trial import TrialForm, usual_tasks, written
from labeling.requests import AuthenticatedRequest, read_or_write
from labeling.setup.sizes import budget_concern
from labeling.views.pair import ACTIONS

# The page renews its reservations so often; a rehearsal has none.
_BEAT_SECONDS = 3600


@read_or_write
def try_it(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The trial of a draft as far as it has come; a POST starts one, or stops it."""
    experiment = access.to_run(request, experiment_id)
    if experiment.state != Experiment.State.DRAFT:
        messages.error(request, trials.STARTED)
        return redirect("setup", experiment_id=experiment.pk)
    if not experiment.tasks.exists():
        messages.error(request, "This draft has no tasks yet. Add tasks before you try it.")
        return redirect(f"{reverse('setup', args=[experiment.pk])}?step=tasks")
    if request.method == "POST" and request.POST.get("action") == "stop":
        trials.stop_trial(experiment_id=experiment.pk)
        return redirect("try", experiment_id=experiment.pk)
    if request.method == "POST":
        return _start(request, experiment)
    shown = page_of(experiment, budget_concern=budget_concern(experiment))
    if request.htmx:
        return render(request, "setup/_trial.html", {"experiment": experiment, "trial": shown})
    tasks = sorted({task.position for task, _ in shown["tasks"]}) if shown else None
    form = TrialForm(initial={"tasks": written(tasks or usual_tasks(experiment.tasks.count()))})
    return _page(request, experiment, shown, form)


@read_or_write
def rehearse(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The annotators' page with tried or ready-made responses. An answer is followed by another pair, and
    nothing is stored.
    """
    experiment = access.to_run(request, experiment_id)
    pair = rehearsal_pair(experiment) if experiment.state == Experiment.State.DRAFT else None
    if pair is None:
        messages.error(
            request,
            "There is nothing to rehearse. No two responses to one task differ."
            if experiment.responses == Experiment.Responses.IMPORTED
            else "There is nothing to rehearse. Try the draft first, so that two responses differ.",
        )
        return redirect("try", experiment_id=experiment.pk)
    here = reverse("rehearse", args=[experiment.pk])
    if request.method == "POST" and not request.htmx:
        return redirect(here)
    if "held" in request.GET:
        return HttpResponse(status=204)
    left, right = pair
    shown = ShownPair(
        token=uuid.uuid4(),
        prompt=left.task.prompt,
        messages=left.task.turns,
        left=left.text,
        right=right.text,
    )
    if experiment.shown_thinking == Experiment.ShownThinking.BOTH:
        shown = replace(shown, left_thinking=left.thinking, right_thinking=right.thinking)
    context = {
        "rehearsal": True,
        "experiment": experiment,
        "to": dict.fromkeys(ACTIONS, here) | dict.fromkeys(("beat", "leave"), f"{here}?held"),
        "pairs": [shown],
        "choices": counts.choices(experiment),
        "skip_reasons": Flag.Reason.choices,
        "today": 0,
        "before": 0,
        "most_held": MOST_HELD,
        "store": f"llmpo-rehearsal-{experiment.pk}",
        "beat_seconds": _BEAT_SECONDS,
        "notice": "Rehearsal: nothing was saved." if request.method == "POST" else "",
        **habits(request.user),
    }
    return render(request, "labeling/_stages.html" if request.htmx else "labeling/pair.html", context)


def try_usual_tasks(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    """Start a trial of a saved draft, and go there. Ready-made responses need none."""
    positions = usual_tasks(experiment.tasks.count())
    try:
        trials.start_trial(experiment_id=experiment.pk, positions=positions, by=request.user)
        wake_writers()
    except SpecError as error:
        messages.error(request, str(error))
    except WrongStateError:
        pass  # the page says so itself
    return redirect("try", experiment_id=experiment.pk)


def _start(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    form = TrialForm(request.POST)
    try:
        if form.is_valid():
            trials.start_trial(
                experiment_id=experiment.pk, positions=form.cleaned_data["tasks"], by=request.user
            )
            wake_writers()
            return redirect("try", experiment_id=experiment.pk)
    except SpecError as error:
        form.add_error("tasks", str(error))
    except WrongStateError as error:
        messages.error(request, str(error))
        return redirect("setup", experiment_id=experiment.pk)
    shown = page_of(experiment, budget_concern=budget_concern(experiment))
    return _page(request, experiment, shown, form, status=400)


def _page(
    request: AuthenticatedRequest,
    experiment: Experiment,
    shown: dict[str, Any] | None,
    form: TrialForm,
    status: int = 200,
) -> HttpResponse:
    context = {"experiment": experiment, "trial": shown} | {
        "form": form,
        "imported": experiment.responses == Experiment.Responses.IMPORTED,
        "n_policies": min(experiment.policies.count(), trials.MOST_POLICIES),
        "n_all": experiment.policies.count(),
        "n_tasks": experiment.tasks.count(),
    }
    return render(request, "setup/try.html", context, status=status)
