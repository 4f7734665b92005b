"""The columns that every table needs from which workers take work."""

from __future__ import annotations

from django.db import models


class Claimable(models.Model):
    """A row that one worker at a time works on. :mod:`engine.services.claims` is the only writer of these
    fields.
    """

    claim = models.UUIDField(null=True, blank=True, help_text="A random number that only its holder knows.")
    claimed_by = models.CharField(max_length=200, blank=True, help_text="The last worker that took it.")
    claim_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="From then on another worker may take it."
    )

    class Meta:
        abstract = True
