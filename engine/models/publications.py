"""Where an experiment's winner goes, and each time that it went."""

from urllib.parse import urlsplit

from django.conf import settings
from django.db import models
from django.db.models import Q

from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.worker_holds import Claimable


class Destination(models.Model):
    """A prompt in a registry of another tool, a file of a working tree, or a webhook.

    The key is never a field of a form or an export: ``engine.services.keys`` alone writes and reads it.
    """

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="destinations")
    kind = models.CharField(
        max_length=40, help_text="The name of a registry: see engine.publishing.registry."
    )
    address = models.CharField(
        max_length=500, blank=True, help_text="Of the server; a webhook's is a secret."
    )
    name = models.CharField(max_length=200, blank=True, help_text="Of the prompt there, or the file's path.")
    label = models.CharField(max_length=40, blank=True, help_text="The mark that moves to the new version.")
    sealed_key = models.TextField(blank=True, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(
                fields=["experiment", "kind", "address", "name", "label"], name="destination_once"
            ),
        )

    def __str__(self) -> str:
        return " ".join(filter(None, [self.kind, self.host, self.name, self.label]))

    @property
    def host(self) -> str:
        """The part of the address that anybody may see."""
        return urlsplit(self.address).hostname or ""


class Publication(Claimable):
    """One time that a winner was sent, or that the version before came back.

    waiting (claimed while a worker sends it) → sent | failed. It is tried once: a second try could make a
    second version. ``requests`` are sent as they are, ``version`` is what came of them, and ``before`` what
    the label marked until then.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    destination = models.ForeignKey(Destination, models.CASCADE, related_name="publications")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    policy = models.CharField(max_length=300, help_text="Code and name of the policy.")
    goes_back = models.BooleanField(default=False, help_text="It brings the version before back.")
    requests = models.JSONField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    before = models.TextField(blank=True)
    version = models.TextField(blank=True)
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=clock.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(
                fields=["destination"], condition=Q(state="waiting"), name="publication_one_waits"
            ),
        )

    def __str__(self) -> str:
        return f"{self.policy} to {self.destination}"
