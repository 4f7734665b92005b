"""Accounts, and who may do what: members, invitations, tokens."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from engine.models.experiments import Experiment


class User(AbstractUser):
    """An account. A model of our own from the first release on: Django offers no way to change to one later."""


class Membership(models.Model):
    """Who may do what in an experiment. Superusers may do everything everywhere."""

    class Role(models.TextChoices):
        ANNOTATOR = "annotator", "Annotator"
        VIEWER = "viewer", "Viewer"
        EDITOR = "editor", "Editor"
        OWNER = "owner", "Owner"

    # The roles that show which policy wrote what.
    WATCHING = (Role.VIEWER, Role.EDITOR, Role.OWNER)

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.ANNOTATOR)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "user", "role"], name="membership_once"),
        )

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.experiment}"


class Invitation(models.Model):
    """A link that makes whoever follows it a member of an experiment."""

    token = models.UUIDField(default=uuid.uuid4, unique=True)
    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.ANNOTATOR)
    most_uses = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    uses = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.CheckConstraint(name="invitation_not_overused", condition=Q(uses__lte=F("most_uses"))),
        )

    def __str__(self) -> str:
        return f"{self.role} of {self.experiment}, {self.uses}/{self.most_uses} used"


class Token(models.Model):
    """Lets a program act as its user through the API. Only its hash is kept: whoever reads the table cannot use it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12, help_text="Its first characters, by which its owner knows it.")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"
