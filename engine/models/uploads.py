"""Uploaded files, from their arrival until they are imported."""

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models

from engine.domain.material_kinds import Material
from engine.models import clock


class Upload(models.Model):
    """A file that waits for its import. Only its user sees it, and it is deleted after a day."""

    class State(models.TextChoices):
        WAITING = "waiting", "Waits for a worker"
        READING = "reading", "Is being read"
        ASKING = "asking", "Waits for its user"
        DONE = "done", "Imported"

    MATERIALS = (
        (Material.RESPONSES.value, "Ready-made responses"),
        (Material.VOTES.value, "Past votes"),
        (Material.EXPERIMENT.value, "An experiment"),
    )
    KEPT_FOR = timedelta(days=1)
    # A worker that reads says so; after this without a word it was killed.
    DEAD_AFTER = timedelta(minutes=3)
    # Beyond this the oldest is deleted. Files that wait for their columns are not pushed out by a few others.
    MOST_OF_ONE_USER = 10

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="uploads")
    material = models.CharField(max_length=10, choices=MATERIALS)
    name = models.CharField(max_length=200, blank=True, help_text="The experiment's name, as it was typed.")
    experiment = models.ForeignKey(
        "Experiment",
        models.CASCADE,
        null=True,
        related_name="uploads",
        help_text="The experiment that votes are added to, or the one that was made of the file.",
    )
    file_name = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKING)
    wishes = models.JSONField(default=dict, help_text="How its user wants it to be read.")
    found = models.JSONField(default=dict, help_text="What was found in it: faults, warnings, counts.")
    data = models.BinaryField(help_text="The file as it came, packed or not.")
    created_at = models.DateTimeField(default=clock.now)
    touched_at = models.DateTimeField(
        default=clock.now, help_text="When a worker last said that it reads it."
    )

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.file_name} of {self.user}"
