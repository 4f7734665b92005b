"""Files of ready-made responses and of past votes: the worker that serves the page imports them."""

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.urls import reverse
from ninja import File, Form, Router, Status, UploadedFile

from engine.domain.material_kinds import Material
from engine.importing.mapping import parse_columns
from engine.importing.reading_process import as_one, source_of
from engine.models import Upload
from engine.selectors.uploads import kept_upload
from engine.services.imports import MOST_BYTES
from engine.services.uploads import drop_upload, keep_upload
from engine.tasks import wake_import
from labeling import access
from labeling.api.auth import MANAGE, READ
from labeling.api.experiments import PROBLEMS, WRITE_PROBLEMS, summary
from labeling.api.schemas import ImportedOut, ImportIn
from labeling.requests import AuthenticatedRequest

router = Router()


@router.post("", auth=MANAGE, response={202: ImportedOut} | WRITE_PROBLEMS)
def begin(
    request: AuthenticatedRequest, answer: HttpResponse, asked: Form[ImportIn], file: File[list[UploadedFile]]
) -> Status[dict[str, Any]]:
    """Have a worker import a file, or the files of one table, in any format that the pages take.

    Responses make a draft, and votes a paused experiment, which you own; `experiment` adds votes to a draft
    or a paused one. Read the import, at the address in `Location`, until its state is `done` or `asking`.
    """
    experiment = None
    if asked.experiment is None:
        access.check_may_create(request)
    else:
        experiment = access.to_run(request, asked.experiment)
    material = Material(asked.material)
    wishes = asked.model_dump(exclude={"material", "name", "experiment"})
    file_name, data = as_one(source_of([(each.name or "", each) for each in file], MOST_BYTES[material]))
    upload = keep_upload(
        user=request.user,
        material=material,
        name=asked.name.strip(),
        experiment=experiment,
        file_name=file_name,
        data=data,
        wishes=wishes | {"columns": parse_columns(asked.columns)},
        state=Upload.State.WAITING,
    )
    wake_import(upload.pk)
    answer["Location"] = reverse("api:read_import", args=[upload.pk])
    return Status(202, _told(upload))


@router.get("/{upload_id}", auth=READ, response={200: ImportedOut} | PROBLEMS, url_name="read_import")
def read(request: AuthenticatedRequest, upload_id: UUID) -> dict[str, Any]:
    """Show how far an import of yours is. It is kept for a day."""
    return _told(_own(request, upload_id))


@router.delete("/{upload_id}", auth=MANAGE, response={204: None} | WRITE_PROBLEMS)
def cancel(request: AuthenticatedRequest, upload_id: UUID) -> Status[None]:
    """Drop the file. A worker that reads it stores nothing then; what is imported stays."""
    drop_upload(_own(request, upload_id))
    return Status(204, None)


def _own(request: AuthenticatedRequest, upload_id: UUID) -> Upload:
    upload, bound = kept_upload(request.user, upload_id), access.bound_to(request)
    if bound is not None and (upload is None or upload.experiment_id != bound):
        raise PermissionDenied("This token is limited to one experiment, and to imports into it.")
    if upload is None:
        raise Http404
    return upload


def _told(upload: Upload) -> dict[str, Any]:
    found = upload.found
    return {
        "id": upload.pk,
        "state": upload.state,
        "experiment": summary(upload.experiment) if upload.experiment else None,
        "rows": found.get("rows", 0),
        "warnings": found.get("warnings", []),
        "summary": found.get("summary", ""),
        "faults": [": ".join(filter(None, each)) for each in found.get("all_faults", [])]
        or found.get("faults", []),
    }
