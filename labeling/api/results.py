"""Results: the responses, the ranking of the policies, who won where, and the agreement of people."""

from dataclasses import asdict
from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Query, Router

from engine.domain.policy_space import code_of
from engine.models import Experiment
from engine.selectors.agreement import agreement_of_people
from engine.selectors.blinding import withholds_unfinished
from engine.selectors.breakdown import Part, by_tag, by_task
from engine.selectors.browsing import written_responses
from engine.selectors.past_votes import past_votes
from engine.selectors.policies import policy_names
from engine.selectors.rankings import ranking
from engine.selectors.spending import costs_of
from labeling import access
from labeling.api.auth import READ
from labeling.api.experiments import PROBLEMS, Id, check_tag
from labeling.api.schemas import QualityOut, RankedOut, ResponsesOut, TagResultOut, TaskResultOut
from labeling.exports.downloads import winner_download
from labeling.formatting import agreement_figures
from labeling.requests import AuthenticatedRequest

router = Router()


@router.get("/{experiment_id}/ranking", auth=READ, response={200: list[RankedOut]} | PROBLEMS)
def show_ranking(request: AuthenticatedRequest, experiment_id: Id) -> list[dict[str, Any]]:
    """Rank the policies, the leader first."""
    return [
        {
            "label": each.name.short,
            "name": each.name.name,
            "log_odds": each.standing.log_odds,
            "field": each.standing.field,
            "leader": each.standing.leader,
            "comparisons": each.comparisons,
            "standing": each.word,
        }
        for each in ranking(access.to_watch(request, experiment_id))
    ]


@router.get("/{experiment_id}/results/task", auth=READ, response={200: list[TaskResultOut]} | PROBLEMS)
def results_by_task(
    request: AuthenticatedRequest, experiment_id: Id, tag: Annotated[str, Query(max_length=200)] = ""
) -> list[dict[str, Any]]:
    """Count what each policy won at each task, or at those with a tag."""
    experiment = access.to_watch(request, experiment_id)
    check_tag(experiment, tag)
    labels = [name.short for name in policy_names(experiment)]
    parts = ((part, part.tasks[0]) for part in by_task(experiment))
    return [
        {"task": task.prompt, "tags": list(task.tags)} | _won(part, labels)
        for part, task in parts
        if tag in {"", *task.tags}
    ]


@router.get("/{experiment_id}/results/tag", auth=READ, response={200: list[TagResultOut]} | PROBLEMS)
def results_by_tag(request: AuthenticatedRequest, experiment_id: Id) -> list[dict[str, Any]]:
    """Count what each policy won at the tasks of each tag. Of many tags one looks good by chance."""
    experiment = access.to_watch(request, experiment_id)
    labels = [name.short for name in policy_names(experiment)]
    return [
        {"tag": part.tag, "tasks": len(part.tasks)} | _won(part, labels)
        for part in by_tag(by_task(experiment))
    ]


@router.get("/{experiment_id}/quality", auth=READ, response={200: QualityOut} | PROBLEMS)
def show_quality(request: AuthenticatedRequest, experiment_id: Id) -> dict[str, Any]:
    """Measure the agreement of the people, and the position bias of past votes."""
    experiment = access.to_watch(request, experiment_id)
    return {
        "agreement": agreement_figures(agreement_of_people(experiment)),
        "past_votes": asdict(past_votes(experiment)),
    }


def _won(part: Part, labels: list[str]) -> dict[str, Any]:
    return {
        "comparisons": part.comparisons,
        "policies": [
            {"policy": labels[policy], "wins": won.wins, "comparisons": won.comparisons, "share": won.share}
            for policy, won in sorted(part.policies.items())
        ],
    }


@router.get(
    "/{experiment_id}/winner.yaml",
    auth=READ,
    response=PROBLEMS,
    openapi_extra={
        "responses": {
            200: {
                "description": "The file",
                "content": {"application/yaml": {"schema": {"type": "string"}}},
            }
        }
    },
)
def winner_file(request: AuthenticatedRequest, experiment_id: Id) -> HttpResponse:
    """Get the winner of a concluded experiment as a configuration of promptfoo, the tasks being its tests."""
    return winner_download(request, experiment_id)


_PARTS = (
    "text", "thinking", "refusal", "finish_reason", "model", "served_model", "prompt_tokens",
    "cached_tokens", "completion_tokens", "thinking_tokens",
)  # fmt: skip


@router.get("/{experiment_id}/responses", auth=READ, response={200: ResponsesOut} | PROBLEMS)
def list_responses(
    request: AuthenticatedRequest,
    experiment_id: Id,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    tag: Annotated[str, Query(max_length=200, description="Only responses to tasks with this tag.")] = "",
) -> dict[str, Any]:
    """List the responses, ready-made or written here, in the order in which they were stored.

    Where people judge, only responses of finished comparisons are listed.
    """
    experiment = access.to_watch(request, experiment_id)
    check_tag(experiment, tag)
    # Nobody can judge a draft yet, and its editors brought its responses.
    withheld = experiment.state != Experiment.State.DRAFT and withholds_unfinished(experiment)
    done = written_responses(experiment, tag=tag, finished=withheld)
    rows = done.values("pk", "policy__index", "task__position", *_PARTS)[offset : offset + limit]
    costs = costs_of([row["pk"] for row in rows])
    return {
        "count": done.count(),
        "items": [
            {
                "id": row["pk"],
                "policy": code_of(row["policy__index"]),
                "task": row["task__position"] + 1,
            }
            | {part: row[part] for part in _PARTS}
            | {"cost": costs.get(row["pk"], {})}
            for row in rows
        ],
    }
