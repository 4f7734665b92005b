"""Tasks from where they lie: the hub, other tools, and the sources of installed packages."""

from __future__ import annotations

from typing import Any

from ninja import Router

from engine.domain.errors import SpecError
from engine.importing.items import Wishes, fields_of
from engine.importing.mapping import parse_columns
from engine.sources.base import SourceError, Wanted
from engine.sources.registry import draw_tasks
from labeling import access
from labeling.api.auth import MANAGE
from labeling.api.experiments import WRITE_PROBLEMS
from labeling.api.schemas import SourceIn, SourceOut
from labeling.requests import AuthenticatedRequest

router = Router()


@router.post("/{name}", auth=MANAGE, response={200: SourceOut} | WRITE_PROBLEMS)
def fetch(request: AuthenticatedRequest, name: str, asked: SourceIn) -> dict[str, Any]:
    """Draw tasks from a source, as `POST /api/experiments` takes them; nothing is stored.

    `hub` is the Hugging Face hub; `langfuse`, `langsmith` and `phoenix` are others, and installed packages
    may add more. System texts are in no task, but in `prompts`.
    """
    access.check_may_create(request)
    try:
        wanted = Wanted(**asked.model_dump(exclude={"columns"}))
        found = draw_tasks(name, wanted, Wishes(parse_columns(asked.columns)), of_pages=True)
    except SourceError as error:
        raise SpecError(str(error)) from error
    return {
        "tasks": [fields_of(task) for task in found.spec.tasks],
        "prompts": found.systems,
        "found": [*found.findings.sentences()],
        "label": found.spec.name,
    }
