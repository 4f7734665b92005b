"""Files that wait for their columns to be named."""

from __future__ import annotations

from uuid import UUID

from engine.models import Upload, User, clock


def kept_upload(user: User, upload_id: UUID) -> Upload | None:
    """The user's own file of that number, unless it is gone or older than a day."""
    since = clock.now() - Upload.KEPT_FOR
    return Upload.objects.filter(user=user, pk=upload_id, created_at__gte=since).first()
