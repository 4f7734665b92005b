"""Uploaded files that are not imported yet."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models

from engine.domain.material import Material
from engine.models import clock


class Upload(models.Model):
    """A file that waits for its import. Only its user sees it, and it is deleted after a day.

    Its user has still to name its columns, or the process that read it was killed.
    """

    MATERIALS = ((Material.RESPONSES.value, "Ready-made responses"), (Material.VOTES.value, "Past votes"))
    KEPT_FOR = timedelta(days=1)
    # Beyond this the oldest is deleted. Files that wait for their columns are not pushed out by a few others.
    MOST_OF_ONE_USER = 10

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="uploads")
    material = models.CharField(max_length=10, choices=MATERIALS)
    name = models.CharField(max_length=200, blank=True, help_text="The experiment's name, as it was typed.")
    file_name = models.CharField(max_length=200)
    counted = models.CharField(
        max_length=10,
        blank=True,
        db_default="",
        help_text="What to do with votes that count already, as it was chosen; empty to ask.",
    )
    data = models.BinaryField(help_text="The file as it came, packed or not.")
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.file_name} of {self.user}"
