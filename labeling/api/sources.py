"""Tasks from where they lie: the hub, other tools, and the sources of installed packages."""

from __future__ import annotations

from typing import Any

from ninja import Router

from engine.domain.errors import SpecError
from engine.importing.gathered import Sample, gathered
from engine.importing.items import Wishes, fields_of, tasks_and_warnings
from engine.importing.mapping import parse_columns
from engine.importing.traffic import calls_in
from engine.sources.base import SourceError, Wanted
from engine.sources.registry import build_source
from labeling import access
from labeling.api.auth import MANAGE
from labeling.api.experiments import WRITE_PROBLEMS
from labeling.api.schemas import SourceIn, SourceOut
from labeling.requests import AuthenticatedRequest

router = Router()


@router.post("/{name}", auth=MANAGE, response={200: SourceOut} | WRITE_PROBLEMS)
def fetch(request: AuthenticatedRequest, name: str, asked: SourceIn) -> dict[str, Any]:
    """Draw tasks from a source, as `POST /api/experiments` takes them; nothing is stored.

    `hub` is the Hugging Face hub, `langfuse` Langfuse; installed packages may add others. System texts are in
    no task, but in `prompts`.
    """
    access.check_may_create(request)
    try:
        wanted = Wanted(**asked.model_dump(exclude={"columns"}))
        fetched = build_source(name, of_pages=True).fetch(wanted)
    except SourceError as error:
        raise SpecError(str(error)) from error
    if (calls := calls_in(fetched.files)) is not None:
        told = gathered(calls).told("", Sample(wanted.number, wanted.seed))
        tasks, prompts, found = told.spec.tasks, told.systems, [*told.findings.sentences()]
    else:
        tasks, found = tasks_and_warnings(fetched.files, Wishes(parse_columns(asked.columns)))
        prompts = []
    return {
        "tasks": [fields_of(task) for task in tasks],
        "prompts": prompts,
        "found": [fetched.told, *found],
        "label": fetched.label,
    }
