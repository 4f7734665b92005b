"""Keeps an uploaded file until its user has said what its columns are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from engine.domain import limits
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.material import Material
from engine.models import Upload, User, clock


@transaction.atomic
def keep_upload(*, user: User, material: Material, name: str, file_name: str, data: bytes) -> Upload:
    """Store the file; of one user's files the newest stay, and none stays longer than a day.

    Raises
    ------
    SpecError
        A name cannot be stored.
    """
    for what, text in (("name", name), ("The file's name", file_name)):
        if fault := limits.text_fault(text, what):
            raise SpecError(fault)
    upload = Upload.objects.create(
        user=user, material=material, name=name[:200], file_name=file_name[:200], data=data
    )
    newest = Upload.objects.filter(user=user).values_list("pk", flat=True)[: Upload.MOST_OF_ONE_USER]
    Upload.objects.filter(user=user).exclude(pk__in=list(newest)).delete()
    Upload.objects.filter(created_at__lt=clock.now() - Upload.KEPT_FOR).delete()
    return upload


@contextmanager
def taken(upload: Upload) -> Iterator[None]:
    """Delete the file while it is imported, so that it is imported once; keep it again where that fails.

    Raises
    ------
    WrongStateError
        Another request has taken it.
    """
    n_deleted, _ = Upload.objects.filter(pk=upload.pk).delete()
    if not n_deleted:
        raise WrongStateError(
            "This file was imported by another request. Look for it among your experiments."
        )
    try:
        yield
    except BaseException:
        upload.save(force_insert=True)
        raise
