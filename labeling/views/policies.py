"""The page of one policy, its request as a file, and the results of all of them as files."""

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from engine.domain import claim_sentences
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.policy_space import combinations
from engine.models import Connection, Experiment, Factor, Policy
from engine.selectors import browsing, designs
from engine.selectors.breakdown import by_tag, by_task
from engine.selectors.counts import wins_matrix
from engine.selectors.offered_models import models_of_workers
from engine.selectors.policies import policy_names
from engine.selectors.rankings import ranking
from engine.selectors.rivals import duel, duels_of
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.task_changes import tasks_present
from engine.services import policies
from engine.services.connection_loans import lend_chosen
from engine.services.policy_requests import models_in
from engine.tasks import wake_planner, wake_writers
from labeling import access
from labeling.dashboard import figures
from labeling.dashboard.charts import rivals
from labeling.dashboard.joining import size_of_joining
from labeling.dashboard.policies import asked, messages_for
from labeling.dashboard.trial import page_of
from labeling.exports.breakdowns import COLUMNS, breakdown_csv, responses_csv
from labeling.exports.downloads import attachment, winner_download
from labeling.exports.files import stem
from labeling.exports.rankings import ranking_csv
from labeling.forms.level_fields import LevelForm
from labeling.forms.list_place import PlaceForm
from labeling.forms.policies import (
    JoinForm,
    ResponsesForm,
    RetireForm,
    level_form,
)
from labeling.forms.tags import TagForm
from labeling.forms.trial import usual_tasks
from labeling.requests import AuthenticatedRequest, read_or_write, unknown_parameters

_DUELS_PER_PAGE = 20


@require_safe
def policy(request: AuthenticatedRequest, experiment_id: int, number: int) -> HttpResponse:
    """The messages of a policy, its result against each rival, and its responses with their outcomes.

    Only judged comparisons are read: nothing here tells the policies of a pair that somebody may still judge.
    """
    experiment = access.to_watch(request, experiment_id)
    shown = _policy(experiment, number)
    tags = TagForm(request.GET, experiment=experiment)
    rows = duels_of(shown)
    if tags.chosen:
        rows = rows.filter(task__in=browsing.tasks_tagged(experiment, tags.chosen))
    page = browsing.page_of(rows, **PlaceForm(request.GET).place, size=_DUELS_PER_PAGE)
    duels = [duel(row, shown) for row in page.comparisons]
    names = policy_names(experiment)
    how, task = asked(shown), experiment.tasks.first()
    standing = next(each for each in ranking(experiment) if each.standing.policy == shown.index)
    context = {
        "experiment": experiment,
        "badge": figures.badge_of(experiment),
        "may_run": access.may_run(request, experiment),
        "may_change": access.may_run(request, experiment) and policies.policies_may_change(experiment),
        "policy": shown,
        "name": names[shown.index],
        "asked": how,
        "first_message": how and task and messages_for(shown, task)[-1][1],
        "row": standing,
        "rivals": rivals(wins_matrix(experiment), names, shown.index),
        "tag_form": tags,
        "page": page,
        "duels": [(names[each.rival], each) for each in duels],
    }
    return render(request, "dashboard/policy.html", context)


@require_safe
def request_file(request: AuthenticatedRequest, experiment_id: int, number: int) -> HttpResponse:
    """The request of a policy as JSON, for any server that speaks OpenAI's chat protocol."""
    experiment = access.to_watch(request, experiment_id)
    found = asked(_policy(experiment, number))
    if found is None:
        raise Http404
    return attachment(found["request"], f"{stem(experiment)}-P{number}.json", "application/json")


@require_safe
def ranking_file(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The ranking as CSV."""
    experiment = access.to_watch(request, experiment_id)
    if fault := unknown_parameters(request, ()):
        if "tag" in request.GET:
            results = reverse("results_file", args=[experiment.pk])
            fault = (
                "There is no ranking of one tag: its intervals hold over all tasks. Leave out tag=. Counts "
                f"without intervals are at {results}?by=tag. This experiment has "
                f"{', '.join(browsing.tags_of(experiment)) or 'no tags'}."
            )
        return HttpResponseBadRequest(fault, content_type="text/plain")
    return attachment(ranking_csv(ranking(experiment)), f"{stem(experiment)}-ranking.csv", "text/csv")


@require_safe
def winner_file(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The winner as a configuration of promptfoo."""
    return winner_download(request, experiment_id)


@require_safe
def results_file(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The results by task, or with ``by=tag`` by tag, as CSV; with ``tag=`` of the tasks that have it."""
    experiment = access.to_watch(request, experiment_id)
    if fault := unknown_parameters(request, ("by", "tag")):
        return HttpResponseBadRequest(fault, content_type="text/plain")
    by = request.GET.get("by", "task")
    if by not in COLUMNS:
        return HttpResponseBadRequest(f"by= takes {' or '.join(COLUMNS)}.", content_type="text/plain")
    tags = TagForm(request.GET, experiment=experiment)
    if not tags.is_valid():
        return HttpResponseBadRequest(" ".join(map(str, tags.errors["tag"])), content_type="text/plain")
    parts = [part for part in by_task(experiment) if tags.chosen in {"", *part.tasks[0].tags}]
    if by == "tag":
        parts = by_tag(parts)
    results = breakdown_csv(parts, policy_names(experiment), by)
    return attachment(results, f"{stem(experiment)}-by-{by}.csv", "text/csv")


def _policy(experiment: Experiment, number: int) -> Policy:
    """The policy with the code P``number``."""
    if (found := experiment.policies.composable().at(number - 1)) is None:
        raise Http404
    return found


@read_or_write
def add(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Have a policy join an experiment that has started, or see its first answers before."""
    experiment = access.to_run(request, experiment_id)
    if request.htmx:
        written = {"experiment": experiment, "trial": _tried(experiment), "joins": True}
        return render(request, "setup/_trial.html", written)
    data = request.POST if request.method == "POST" else None
    try:
        number = int(request.GET.get("parent", 0))
        parent = policies.parent_of(experiment, number - 1 if number else None)
    except (SpecError, WrongStateError, ValueError) as error:
        messages.error(request, str(error))
        return redirect("dashboard", experiment_id=experiment.pk)
    name = policy_names(experiment)[parent.index]
    factors = list(experiment.factors.prefetch_related("levels"))
    # What the policies differ in is what another one most often brings anew.
    chosen = max(
        factors, key=lambda each: (str(each.pk) == request.GET.get("factor"), len(each.levels.all()) > 1)
    )
    form: ResponsesForm | LevelForm
    if chosen.kind == Factor.Kind.IMPORTED:
        form = ResponsesForm(data, None if data is None else request.FILES, experiment=experiment)
    else:
        form = level_form(chosen, parent, data)
        theirs = Connection.objects.choosable_by(request.user, experiment).values_list("name", flat=True)
        form.offer_models(sorted({*theirs, *models_of_workers()}))
    join = JoinForm(
        data,
        experiment=experiment,
        several=len(factors) > 1,
        replaced=name if number else None,
    )
    tried: dict[str, Any] | None = None
    if data is not None and form.is_valid() and join.is_valid():
        wanted: dict[str, Any] = {"experiment_id": experiment.pk, "parent": parent.index, "by": request.user}
        wanted |= _policies_given(factors, chosen, form, join)
        try:
            if isinstance(form, LevelForm):
                lend_chosen(experiment=experiment, by=request.user, names=models_in(form.value()))
            if data.get("action") == "try":
                policies.try_policies(**wanted, positions=usual_tasks(experiment.tasks.count()))
                wake_writers()
                tried = _tried(experiment)
            else:
                joined = policies.add_policies(
                    **wanted,
                    responses=form.responses if isinstance(form, ResponsesForm) else (),
                    losers_leave=join.cleaned_data.get("losers_leave", True),
                    parent_leaves=join.cleaned_data.get("parent_leaves", False),
                )
                wake_planner(experiment.pk)
                names = policy_names(experiment)
                said = ", ".join(names[each.index].name for each in joined)
                messages.success(
                    request,
                    f"Added: {said}. Its comparisons come after the pairs that are prepared already.",
                )
                return redirect("dashboard", experiment_id=experiment.pk)
        except (SpecError, WrongStateError) as error:
            form.add_error(None, str(error))
    context: dict[str, Any] = {
        "experiment": experiment,
        "badge": figures.badge_of(experiment),
        "may_run": True,
        "factors": factors if len(factors) > 1 else [],
        "factor": chosen,
        "parent": name,
        "number": number,
        "leads": _leads(parent),
        "risk": claim_sentences.risk_of_all(designs.stored(experiment).design),
        "form": form,
        "join": join,
        "size": size_of_joining(experiment, parent, factors, chosen, parent_leaves=bool(number)),
        "trial": tried,
    }
    status = 200 if data is None or tried else 400
    return render(request, "dashboard/add_policy.html", context, status=status)


@require_safe
def tasks_file(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The tasks as the table of responses in which a policy may join."""
    experiment = access.to_run(request, experiment_id)
    prompts = tasks_present(experiment).values_list("prompt", flat=True)
    return attachment(responses_csv(prompts), f"{stem(experiment)}-responses.csv", "text/csv")


def _tried(experiment: Experiment) -> dict[str, Any] | None:
    """The first answers of policies that may join."""
    draft = experiment.tried_drafts.first()
    return None if draft is None else page_of(draft, budget_concern="")


def _policies_given(
    factors: Sequence[Factor], chosen: Factor, form: ResponsesForm | LevelForm, join: JoinForm
) -> dict[str, Any]:
    """The levels and combinations that the page says."""
    if isinstance(form, ResponsesForm):
        return {"levels": {chosen.name: {name: {} for name in form.names}}}
    name = form.cleaned_data["name"]
    given: dict[str, Any] = {"levels": {chosen.name: {name: form.value()}}}
    if join.cleaned_data.get("every"):
        others = {factor.name: [level.name for level in factor.levels.all()] for factor in factors}
        every = combinations(others | {chosen.name: [name]}, ())
        given["chosen"] = [dict(zip(others, one, strict=True)) for one in every]
    return given


@read_or_write
def retire(request: AuthenticatedRequest, experiment_id: int, number: int) -> HttpResponse:
    """Ask why, then have a policy leave."""
    experiment = access.to_run(request, experiment_id)
    found = _policy(experiment, number)
    form = RetireForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            policies.retire_policy(
                experiment_id=experiment.pk,
                index=found.index,
                reason=form.cleaned_data["reason"],
                by=request.user,
            )
        except WrongStateError as error:
            messages.error(request, str(error))
        else:
            wake_planner(experiment.pk)
            messages.success(request, f"{policy_names(experiment)[found.index].name} has retired.")
        return redirect("dashboard", experiment_id=experiment.pk)
    context = {
        "experiment": experiment,
        "policy": found,
        "name": policy_names(experiment)[found.index],
        "leads": _leads(found),
        "form": form,
    }
    return render(request, "dashboard/retire_policy.html", context, status=400 if form.errors else 200)


def _leads(policy: Policy) -> bool:
    snapshot = latest_snapshot(policy.experiment)
    return snapshot is not None and snapshot.best_id == policy.pk
