"""The columns that every table needs from which workers take work, and the conditions on their deadline."""

from django.db import models

from engine.models import clock


class Claimable(models.Model):
    """A row that one worker at a time works on. :mod:`engine.services.worker_holds` writes these fields.

    ``opinions`` and ``generation`` also write ``NOBODY``, when they store results.
    """

    claim = models.UUIDField(null=True, blank=True, help_text="A random number that only its holder knows.")
    claimed_by = models.CharField(max_length=200, blank=True, help_text="The last worker that took it.")
    claim_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="From then on another worker may take it."
    )

    class Meta:
        abstract = True


def in_time() -> models.Q:
    """The condition that a row's holder is still before its deadline, and so counts as at work."""
    return models.Q(claim_expires_at__gte=clock.now())


def overdue() -> models.Q:
    """The condition that a row's holder has let the deadline pass: it died, or is very late."""
    return models.Q(claim_expires_at__lt=clock.now())
