"""Keeps an uploaded file until it is imported or refused."""

from __future__ import annotations

from django.db import transaction

from engine.domain import limits
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.material import Material
from engine.models import Upload, User, clock


@transaction.atomic
def keep_upload(
    *, user: User, material: Material, name: str, file_name: str, data: bytes, counted: str = ""
) -> Upload:
    """Store the file. Only the newest files of a user are kept, and none for more than a day.

    ``counted``: what to do with votes that count already; empty to ask.

    Raises
    ------
    SpecError
        A name cannot be stored.
    """
    for what, text in (("name", name), ("The file's name", file_name)):
        if fault := limits.text_fault(text, what):
            raise SpecError(fault)
    upload = Upload.objects.create(
        user=user,
        material=material,
        name=name[:200],
        file_name=file_name[:200],
        counted=counted,
        data=data,
    )
    newest = Upload.objects.filter(user=user).values_list("pk", flat=True)[: Upload.MOST_OF_ONE_USER]
    Upload.objects.filter(user=user).exclude(pk__in=list(newest)).delete()
    Upload.objects.filter(created_at__lt=clock.now() - Upload.KEPT_FOR).delete()
    return upload


def drop_upload(upload: Upload) -> None:
    """Delete a refused file: the page shows its user why, and they have a copy."""
    Upload.objects.filter(pk=upload.pk).delete()


def take_upload(upload: Upload | None) -> None:
    """Delete the file in the transaction that stores its rows, so that it is imported once.

    If the process is killed meanwhile, the file stays. ``None``: the rows come from no kept file.

    Raises
    ------
    WrongStateError
        Another request has imported it, or newer files of its user have taken its place.
    """
    if upload is None:
        return
    n_deleted, _ = Upload.objects.filter(pk=upload.pk).delete()
    if not n_deleted:
        raise _taken()


def refuse_taken(upload: Upload | None) -> None:
    """Refuse a file that another request has imported meanwhile, where its rows would be refused for that.

    Raises
    ------
    WrongStateError
        It has, or newer files of its user have taken its place.
    """
    if upload is not None and not Upload.objects.filter(pk=upload.pk).exists():
        raise _taken()


def _taken() -> WrongStateError:
    return WrongStateError(
        f"Another request has imported this file, or {Upload.MOST_OF_ONE_USER} newer ones have taken its "
        "place. Look for it among your experiments, or upload it again."
    )
