"""Experiments: create, watch, control, export."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from django.db import transaction
from django.http import Http404, HttpResponseBase
from django.shortcuts import get_object_or_404
from ninja import Path, Query, Router, Status

from engine.domain.specs import ReadyMade
from engine.domain.tags import normal_tags
from engine.models import Experiment, Snapshot
from engine.selectors import browsing, designs, findings, queue_health, specs
from engine.selectors.designs import Observed
from engine.selectors.experiment_log import audit_entries
from engine.selectors.findings import Ladder
from engine.selectors.policies import policy_names
from engine.selectors.remaining import remaining_of
from engine.selectors.snapshots import at_one_moment, standing_wins
from engine.selectors.spending import spent_in
from engine.services import drafts, experiments, policies, setting_changes, task_changes
from engine.services.drafts import create_experiment
from engine.services.experiments import stop_on
from engine.tasks import wake_planner
from labeling import access
from labeling.api.auth import MANAGE, READ
from labeling.api.schemas import (
    Action,
    ChangesIn,
    ClaimIn,
    CloneIn,
    EntryOut,
    ExperimentIn,
    ExperimentOut,
    ExperimentsOut,
    LeaveOutIn,
    PatchIn,
    PoliciesIn,
    Problem,
    RetireIn,
    StatusOut,
    TasksIn,
)
from labeling.caching import remembered
from labeling.dashboard.figures import doubts_of
from labeling.dashboard.status import statuses_of
from labeling.dashboard.voids import sentence_about
from labeling.exports import files
from labeling.exports.downloads import download
from labeling.requests import AuthenticatedRequest

router = Router()

# The parts of a description that a start fixes.
_DISPLAYED = ("name", "guidelines", "further_questions", "tags", "leaderboard", "money_limit")
_OF_A_DRAFT = ("factors", "tasks", "gold", "settings")

Id = Annotated[int, Path(ge=1, le=2**63 - 1)]
PROBLEMS = dict.fromkeys((401, 403, 404, 422, 429, 503), Problem)
# An export answers 400 too, in words of its own, where a filter cannot be used.
EXPORT_PROBLEMS = PROBLEMS | dict.fromkeys((400,), Problem)
WRITE_PROBLEMS = PROBLEMS | dict.fromkeys((400, 409, 413), Problem)


@router.get("", auth=READ, response={200: ExperimentsOut} | PROBLEMS)
def list_experiments(
    request: AuthenticatedRequest,
    archived: bool = False,
    tag: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> dict[str, Any]:
    """List the experiments that you may see, newest first."""
    watched = access.watched(request).filter(archived_at__isnull=not archived)
    if tag:
        watched = watched.tagged(normal_tags(tag))
    return {"count": watched.count(), "items": _summaries(watched[offset : offset + limit])}


@router.post("", auth=MANAGE, response={201: ExperimentOut} | WRITE_PROBLEMS)
def create(request: AuthenticatedRequest, payload: ExperimentIn) -> Status[dict[str, Any]]:
    """Create a draft that you own."""
    access.check_may_create(request)
    return Status(201, summary(create_experiment(spec=payload.spec(), by=request.user)))


@router.get("/{experiment_id}", auth=READ, response={200: StatusOut} | PROBLEMS)
def status(request: AuthenticatedRequest, experiment_id: Id) -> dict[str, Any]:
    """Show the status of an experiment with the dashboard's figures."""
    return _status(access.to_watch(request, experiment_id))


@router.patch("/{experiment_id}", auth=MANAGE, response={200: ExperimentOut} | WRITE_PROBLEMS)
def change_settings(request: AuthenticatedRequest, experiment_id: Id, payload: PatchIn) -> dict[str, Any]:
    """Change claim, budget, δ or ε: the log explains the change, and `caveats` says if it breaks the
    guarantee. Or change what the evidence does not depend on: name, guidelines, further questions, tags, the
    limit of money, and whether annotators see a leaderboard. Of a draft, change any part.
    """
    experiment = access.to_run(request, experiment_id)
    asked = payload.model_dump(exclude=set(_OF_A_DRAFT))
    display = {name: asked.pop(name) for name in _DISPLAYED}
    if "money_limit" not in payload.model_fields_set:
        del display["money_limit"]
    only_display = set(payload.model_fields_set) <= {*display, *_OF_A_DRAFT}
    with transaction.atomic():
        if spec := payload.redraft(specs.experiment_spec(experiment)):
            drafts.replace_draft(experiment_id=experiment.pk, spec=spec, by=request.user)
        changed = setting_changes.change_display(experiment_id=experiment.pk, by=request.user, **display)
        if not (only_display and payload.model_fields_set):
            changed = setting_changes.change_settings(experiment_id=experiment.pk, by=request.user, **asked)
    wake_planner(experiment.pk)
    return summary(changed)


@router.post("/{experiment_id}/reopen", auth=MANAGE, response={200: ExperimentOut} | WRITE_PROBLEMS)
def reopen(request: AuthenticatedRequest, experiment_id: Id, payload: ChangesIn) -> dict[str, Any]:
    """Reopen a concluded experiment, with new settings if it needs them."""
    experiment = access.to_run(request, experiment_id)
    reopened = setting_changes.reopen(experiment_id=experiment.pk, by=request.user, **payload.model_dump())
    wake_planner(experiment.pk)
    return summary(reopened)


@router.post("/{experiment_id}/actions/{action}", auth=MANAGE, response={200: ExperimentOut} | WRITE_PROBLEMS)
def act(request: AuthenticatedRequest, experiment_id: Id, action: Action) -> dict[str, Any]:
    """Start (or resume), pause, stop, archive or unarchive an experiment; or try again what a server has
    refused.
    """
    experiment = access.to_run(request, experiment_id)
    changed = experiments.ACTIONS[action](experiment_id=experiment.pk, by=request.user)
    wake_planner(experiment.pk)
    return summary(changed)


@router.post("/{experiment_id}/stop-on", auth=MANAGE, response={200: ExperimentOut} | WRITE_PROBLEMS)
def stop_on_claim(request: AuthenticatedRequest, experiment_id: Id, payload: ClaimIn) -> dict[str, Any]:
    """Stop on a claim that holds, as `claims` says; 409 where it does not hold. The risk is then
    `joint_risk`, or δ where it `stops` the experiment anyway.
    """
    experiment = access.to_run(request, experiment_id)
    stopped = stop_on(experiment_id=experiment.pk, claim=payload.claim, by=request.user)
    wake_planner(experiment.pk)
    return summary(stopped)


@router.post("/{experiment_id}/clone", auth=MANAGE, response={201: ExperimentOut} | WRITE_PROBLEMS)
def clone(request: AuthenticatedRequest, experiment_id: Id, payload: CloneIn) -> Status[dict[str, Any]]:
    """Create a draft with the same description, which you own."""
    experiment = access.to_copy(request, experiment_id)
    cloned = drafts.clone(experiment=experiment, by=request.user, name=payload.name)
    return Status(201, summary(cloned))


@router.post("/{experiment_id}/policies", auth=MANAGE, response={200: StatusOut} | WRITE_PROBLEMS)
def add_policies(request: AuthenticatedRequest, experiment_id: Id, payload: PoliciesIn) -> dict[str, Any]:
    """Have policies with new levels join an experiment that has started; a concluded one runs again.

    Each conclusion errs with probability at most δ, whatever happened before it.
    """
    experiment = access.to_run(request, experiment_id)
    policies.add_policies(
        experiment_id=experiment.pk,
        levels=payload.levels,
        chosen=payload.chosen,
        parent=None if payload.parent is None else payload.parent - 1,
        responses=[ReadyMade(each.task - 1, each.policy, each.response) for each in payload.responses],
        losers_leave=payload.losers_leave,
        parent_leaves=payload.parent_leaves,
        by=request.user,
    )
    wake_planner(experiment.pk)
    return _status(access.to_run(request, experiment_id))


@router.post("/{experiment_id}/tasks", auth=MANAGE, response={200: StatusOut} | WRITE_PROBLEMS)
def add_tasks(request: AuthenticatedRequest, experiment_id: Id, payload: TasksIn) -> dict[str, Any]:
    """Have tasks join an experiment that has started. With `anew` the claim counts what is compared from then
    on alone, and a concluded experiment runs again.
    """
    experiment = access.to_run(request, experiment_id)
    task_changes.add_tasks(
        experiment_id=experiment.pk,
        tasks=[each.task() for each in payload.tasks],
        anew=payload.anew,
        by=request.user,
    )
    wake_planner(experiment.pk)
    return _status(access.to_watch(request, experiment_id))


@router.post(
    "/{experiment_id}/tasks/{number}/leave-out", auth=MANAGE, response={200: StatusOut} | WRITE_PROBLEMS
)
def leave_out_task(
    request: AuthenticatedRequest, experiment_id: Id, number: Id, payload: LeaveOutIn
) -> dict[str, Any]:
    """Have a task be left out: nobody is shown it from now on. Its judgments stay."""
    experiment = access.to_run(request, experiment_id)
    task_changes.leave_out_task(
        experiment_id=experiment.pk,
        position=number - 1,
        reason=payload.reason,
        anew=payload.anew,
        by=request.user,
    )
    wake_planner(experiment.pk)
    return _status(access.to_watch(request, experiment_id))


@router.post(
    "/{experiment_id}/policies/{number}/retire", auth=MANAGE, response={200: StatusOut} | WRITE_PROBLEMS
)
def retire_policy(
    request: AuthenticatedRequest, experiment_id: Id, number: Annotated[int, Path(ge=1)], payload: RetireIn
) -> dict[str, Any]:
    """Have a policy leave for good: nobody is shown it from now on. Its judgments stay."""
    experiment = access.to_run(request, experiment_id)
    policy = get_object_or_404(experiment.policies, index=number - 1)
    policies.retire_policy(
        experiment_id=experiment.pk, index=policy.index, reason=payload.reason, by=request.user
    )
    wake_planner(experiment.pk)
    return _status(access.to_run(request, experiment_id))


@router.get("/{experiment_id}/log", auth=READ, response={200: list[EntryOut]} | PROBLEMS)
def log(
    request: AuthenticatedRequest,
    experiment_id: Id,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[dict[str, Any]]:
    """List the log entries, newest first."""
    experiment = access.to_watch(request, experiment_id)
    return [
        {
            "at": entry.at,
            "by": entry.by.get_username() if entry.by else None,
            "action": entry.action,
            "sentence": entry.text,
        }
        for entry in audit_entries(experiment)[:limit]
    ]


def _offer(kind: str, form: files.Format) -> None:
    """Add the download of one kind."""
    content_type = form.content_type.partition(";")[0]
    as_list = content_type == "application/json"
    body = {"type": "array", "items": {"type": "object"}} if as_list else {"type": "string"}

    @router.get(
        f"/{{experiment_id}}/{form.suffix}",
        auth=READ,
        response=EXPORT_PROBLEMS,
        operation_id=f"labeling_api_experiments_{form.route}",
        summary=form.title,
        description=f"{form.says} The query can select judgments, as on the page “Export”.",
        openapi_extra={
            "responses": {
                200: {
                    "description": "The file, streamed",
                    "content": {content_type: {"schema": body}},
                }
            }
        },
    )
    def file(request: AuthenticatedRequest, experiment_id: Id) -> HttpResponseBase:
        return download(request, experiment_id, kind)


for _kind, _form in files.FORMATS.items():
    _offer(_kind, _form)


def check_tag(experiment: Experiment, tag: str) -> None:
    """Refuse a tag that no task of the experiment has; an empty one asks for all tasks."""
    if tag and tag not in (tags := browsing.tags_of(experiment)):
        raise Http404(f"No task has the tag “{tag}”. This experiment has {', '.join(tags) or 'no tags'}.")


def summary(experiment: Experiment) -> dict[str, Any]:
    """An experiment as it stands in lists."""
    [told] = _summaries([experiment])
    return told


def _summaries(
    experiments: Iterable[Experiment], snapshots: Mapping[int, Snapshot] | None = None
) -> list[dict[str, Any]]:
    listed = list(experiments)
    names = (
        "id", "name", "question", "judge", "state", "conclusion", "certified_claim", "finding", "claim",
        "delta", "epsilon", "missing", "strict", "budget", "created_at", "started_at", "concluded_at",
    )  # fmt: skip
    return [
        {name: getattr(experiment, name) for name in names}
        | {
            "archived": experiment.archived_at is not None,
            "tags": experiment.tag_list,
            "badge": status.badge,
            "sentence": status.sentence,
        }
        for experiment, status in zip(listed, statuses_of(listed, snapshots=snapshots), strict=True)
    ]


def _ladder(experiment: Experiment, observed: Observed) -> Ladder:
    """The claims, computed once for each state of the evidence: the test of the model takes tenths of a
    second.
    """
    if not observed.last:
        return Ladder([], 0, 1.0)
    rules = (experiment.claim, experiment.delta, experiment.epsilon, experiment.evidence_stale)
    return remembered(
        f"claims:{experiment.pk}", (*rules, observed.last), lambda: findings.ladder(experiment, observed)
    )


_OF_CONCLUSIONS = ("claim", "risk", "joint_risk", "comparisons", "text", "created_at")


def _status(experiment: Experiment) -> dict[str, Any]:
    # One look for all of it: people click, and the planner writes, meanwhile.
    observed, snapshot = at_one_moment(experiment)
    [told] = _summaries([experiment], {} if snapshot is None else {experiment.pk: snapshot})
    remaining = remaining_of(experiment, snapshot)
    names = policy_names(experiment)
    ladder = _ladder(experiment, observed)
    concluded = experiment.state == Experiment.State.CONCLUDED
    wins = standing_wins(designs.load(experiment, late=True) if concluded else observed)
    judged = wins + wins.T
    lives = experiment.policies.values("joined_at", "retired_at", "retired_because")
    return told | {
        "comparisons": round(wins.sum()),
        "recomputing": experiment.evidence_stale,
        "claims": [
            {
                "claim": rung.claim,
                "holds": rung.holds,
                "follows_from": rung.follows_from,
                "stops": rung.stops,
                "policy": None if rung.policy is None else names[rung.policy].short,
                "text": rung.text,
                "qualified": rung.qualified,
            }
            for rung in ladder.rungs
        ],
        "conclusions": [
            {
                **{name: getattr(each, name) for name in _OF_CONCLUSIONS},
                "policy": None if each.policy is None else names[each.policy].short,
                "among": [names[policy].short for policy in each.among],
            }
            for each in experiment.conclusions.all()
        ],
        "by_answers": None
        if ladder.by_answers is None
        else {
            "policy": names[ladder.by_answers.policy].short,
            "gamma": ladder.by_answers.gamma,
            "text": ladder.by_answers.text,
        },
        "joint_risk": ladder.joint_risk if ladder.rungs and not ladder.unproven else None,
        "threshold": snapshot.threshold if snapshot else None,
        "remaining": remaining and asdict(remaining),
        "best": snapshot.best.label if snapshot and snapshot.best else None,
        "winner": experiment.winner.label if experiment.winner else None,
        "caveats": [
            *filter(None, [findings.by_machines(experiment)]),
            *findings.doubts_about_risk(experiment),
            *(each.text for each in doubts_of(experiment).found),
            *filter(None, [sentence_about(experiment)]),
        ],
        "llm_halted": experiment.llm_halted,
        "spent": spent_in(experiment),
        "money_limit": experiment.money_limit,
        "policies": [
            {
                "label": name.short,
                "levels": list(name.levels),
                "evidence": snapshot.evidence[n] if snapshot else None,
                "ruled_out": snapshot is not None and snapshot.peak_evidence[n] >= snapshot.threshold,
                **life,
            }
            for n, (name, life) in enumerate(zip(names, lives, strict=True))
        ],
        "pairs": [
            {
                "i": names[i].short,
                "j": names[j].short,
                "wins_i": wins[i, j],
                "comparisons": round(judged[i, j]),
            }
            for i, j in itertools.combinations(range(len(names)), 2)
        ],
        "queue": queue_health.queue_health(experiment).comparisons,
    }
