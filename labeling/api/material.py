"""Ready-made responses and past votes: brought as files, and listed."""

from __future__ import annotations

from typing import Annotated, Any

from ninja import File, Form, Query, Router, Status, UploadedFile

from engine.domain.limits import RESPONSES_BYTES, VOTES_BYTES, Limit
from engine.domain.policy_space import code_of
from engine.importing.items import Wishes, read_responses
from engine.importing.mapping import parse_columns
from engine.importing.reader import Source, source_of
from engine.importing.votes import Judge, read_votes
from engine.models import Experiment
from engine.selectors.blinding import withholds_unfinished
from engine.selectors.browsing import written_responses
from engine.selectors.spending import costs_of
from engine.services.drafts import create_experiment
from engine.services.past_votes import add_votes, start_from_votes
from engine.tasks import wake_planner
from labeling import access
from labeling.api.auth import MANAGE, READ
from labeling.api.experiments import PROBLEMS, WRITE_PROBLEMS, Id, check_tag, summary
from labeling.api.schemas import ImportedOut, ResponsesOut
from labeling.requests import AuthenticatedRequest

router = Router()

Name = Annotated[str, Form(description="Name of the new experiment.")]
Upload = Annotated[
    UploadedFile,
    File(description="A table or JSON in any format that the pages take, such as CSV or Parquet."),
]
Columns = Annotated[
    list[str],
    Form(
        default_factory=list,
        description="COLUMN=ROLE for a column that has another name, as --map of the commands.",
    ),
]
JSONTexts = Annotated[
    bool, Form(description="Take an object or a list as its JSON text where a text is wanted.")
]
LeaveOut = Annotated[bool, Form(description="Leave out the rows that cannot be read.")]
JudgedBy = Annotated[Judge | None, Form(description="Who gave the votes, where the file does not say it.")]
Again = Annotated[bool, Form(description="Count every vote of the file, also those that count already.")]
OnlyNew = Annotated[bool, Form(description="Leave out votes that count already.")]


@router.post("/from-responses", auth=MANAGE, response={201: ImportedOut} | WRITE_PROBLEMS)
def create_from_responses(
    request: AuthenticatedRequest,
    name: Name,
    file: Upload,
    columns: Columns,
    *,
    json_texts: JSONTexts = False,
    leave_out: LeaveOut = False,
) -> Status[dict[str, Any]]:
    """Create a draft on ready-made responses, which you own. `rows` counts the responses."""
    access.check_may_create(request)
    wishes = Wishes(parse_columns(columns), json_texts, leave_out)
    answers = read_responses(_source(file, RESPONSES_BYTES), wishes=wishes)
    made = create_experiment(spec=answers.spec(name.strip()), by=request.user)
    return Status(201, _imported(made, len(answers.responses), answers.warnings))


@router.post("/from-votes", auth=MANAGE, response={201: ImportedOut} | WRITE_PROBLEMS)
def create_from_votes(
    request: AuthenticatedRequest,
    name: Name,
    file: Upload,
    columns: Columns,
    *,
    json_texts: JSONTexts = False,
    leave_out: LeaveOut = False,
    judged_by: JudgedBy = None,
) -> Status[dict[str, Any]]:
    """Create a paused experiment of past votes, which you own. `rows` counts the votes."""
    access.check_may_create(request)
    wishes = Wishes(parse_columns(columns), json_texts, leave_out, judged_by or "")
    votes = read_votes(_source(file, VOTES_BYTES), wishes=wishes)
    made = start_from_votes(name=name.strip(), votes=votes.votes, by=request.user)
    wake_planner(made.pk)
    return Status(201, _imported(made, len(votes.votes), votes.warnings))


@router.post("/{experiment_id}/votes", auth=MANAGE, response={200: ImportedOut} | WRITE_PROBLEMS)
def add_past_votes(
    request: AuthenticatedRequest,
    experiment_id: Id,
    file: Upload,
    columns: Columns,
    *,
    again: Again = False,
    only_new: OnlyNew = False,
    json_texts: JSONTexts = False,
    leave_out: LeaveOut = False,
    judged_by: JudgedBy = None,
) -> dict[str, Any]:
    """Add past votes to a draft or a paused experiment that knows their policies and tasks.

    A file with votes that count already is refused (409), so a request that is repeated changes nothing.
    `only_new` leaves them out, and `again` counts every vote of the file. `rows` counts the votes that were
    added; a warning counts those that were left out.
    """
    experiment = access.to_run(request, experiment_id)
    wishes = Wishes(parse_columns(columns), json_texts, leave_out, judged_by or "")
    found = read_votes(_source(file, VOTES_BYTES), wishes=wishes)
    added = add_votes(
        experiment_id=experiment.pk, votes=found.votes, by=request.user, again=again, only_new=only_new
    )
    wake_planner(added.experiment.pk)
    return _imported(added.experiment, added.n_votes, [*found.warnings, *added.warnings])


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


def _source(file: UploadedFile, most: Limit) -> Source:
    return source_of([(file.name or "", file)], most)


def _imported(experiment: Experiment, rows: int, warnings: Any) -> dict[str, Any]:
    return {"experiment": summary(experiment), "rows": rows, "warnings": list(warnings)}
