"""Keeps an uploaded file until it is imported or dropped."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from engine.domain import limits
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.material_kinds import Material
from engine.models import Experiment, Upload, User, clock


@transaction.atomic
def keep_upload(
    *,
    user: User,
    material: Material,
    name: str,
    file_name: str,
    data: bytes,
    wishes: dict[str, Any] | None = None,
    experiment: Experiment | None = None,
    state: Upload.State = Upload.State.ASKING,
) -> Upload:
    """Store the file, to be imported at once if its ``state`` is waiting.

    A user's newest files are kept for a day.

    Raises
    ------
    SpecError
        A name cannot be stored.
    WrongStateError
        As many files of this user wait for a worker.
    """
    _check_texts(name, file_name, wishes or {})
    others = Upload.objects.filter(user=user)
    going = others.filter(state__in=(Upload.State.WAITING, Upload.State.READING))
    if going.count() >= Upload.MOST_OF_ONE_USER:
        raise WrongStateError(
            f"{Upload.MOST_OF_ONE_USER} of your files wait for a worker. Wait for them, or cancel one."
        )
    upload = Upload.objects.create(
        user=user,
        material=material,
        name=name[:200],
        file_name=file_name[:200],
        wishes=wishes or {},
        data=data,
        experiment=experiment,
        state=state,
    )
    newest = others.values_list("pk", flat=True)[: Upload.MOST_OF_ONE_USER]
    others.exclude(pk__in=[*newest, *going.values_list("pk", flat=True)]).delete()
    Upload.objects.filter(created_at__lt=clock.now() - Upload.KEPT_FOR).delete()
    return upload


def _check_texts(name: str, file_name: str, wishes: dict[str, Any]) -> None:
    given = {"name": name, "The file's name": file_name, "sheet": wishes.get("sheet", "")}
    for what, text in [*given.items(), *(("A column", column) for column in wishes.get("columns", ()))]:
        if fault := limits.text_fault(text, what):
            raise SpecError(fault)


def want_import(*, upload: Upload, name: str, experiment: Experiment | None, wishes: dict[str, Any]) -> None:
    """Let a worker import the file; a second request while it does changes nothing.

    ``experiment``: the one that votes are added to; ``None`` to make one of this name.

    Raises
    ------
    SpecError
        A name cannot be stored.
    """
    _check_texts(name, upload.file_name, wishes)
    Upload.objects.filter(pk=upload.pk, state=Upload.State.ASKING).update(
        name=name[:200], experiment=experiment, wishes=wishes, found={}, state=Upload.State.WAITING
    )


def drop_upload(upload: Upload) -> bool:
    """Delete the file, so that a worker that reads it stores nothing; false if it is imported already."""
    return bool(_still_kept(upload).delete()[0])


def forget_upload(upload: Upload) -> None:
    """Delete an upload of which its user was told what came of it."""
    upload.delete()


def take_upload(
    upload: Upload | None, experiment: Experiment, n_left_out: int = 0, warnings: Sequence[str] = ()
) -> None:
    """Mark the file as imported in the transaction that stores its rows, so that it is imported once.

    If the process is killed meanwhile, the file stays. ``None``: the rows come from no kept file. The
    upload's own ``found``, with the rows that were left out and more warnings, is what its user is told.

    Raises
    ------
    WrongStateError
        Another process has imported it, or its user has cancelled.
    """
    if upload is None:
        return
    found = {
        "rows": upload.found.get("rows", 0) - n_left_out,
        "warnings": [*upload.found.get("warnings", ()), *warnings],
    }
    done = {"state": Upload.State.DONE, "data": b"", "experiment": experiment, "found": found}
    if not _still_kept(upload).update(**done):
        raise WrongStateError("The file was imported by another worker, or its import was cancelled.")


def _still_kept(upload: Upload) -> QuerySet[Upload]:
    """The file, unless it was imported or dropped meanwhile."""
    return Upload.objects.filter(pk=upload.pk).exclude(state=Upload.State.DONE)
