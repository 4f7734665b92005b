"""Files that were uploaded to be imported."""

from uuid import UUID

from django.db.models import QuerySet

from engine.domain.material_kinds import Material
from engine.models import Upload, User, clock


def kept_uploads(user: User, *materials: Material) -> QuerySet[Upload]:
    """The user's own files of these kinds that are not imported, the newest first."""
    return _kept(user).exclude(state=Upload.State.DONE).filter(material__in=materials)


def kept_upload(user: User, upload_id: UUID) -> Upload | None:
    """The user's own file of this id; ``None`` if it was deleted or is older than a day."""
    return _kept(user).filter(pk=upload_id).first()


def _kept(user: User) -> QuerySet[Upload]:
    # A page that shows the progress asks every second; the content is fetched where it is read.
    kept = Upload.objects.filter(user=user, created_at__gte=clock.now() - Upload.KEPT_FOR)
    return kept.defer("data")
