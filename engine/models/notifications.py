"""Subscriptions, notifications and alarms."""

from urllib.parse import urlsplit

from django.conf import settings
from django.db import models
from django.db.models import Q

from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.people import Invitation
from engine.models.worker_holds import Claimable


class Subscription(models.Model):
    """An address that gets notifications of an experiment."""

    class Kind(models.TextChoices):
        EMAIL = "email", "E-mail"
        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack"
        TEAMS = "teams", "Teams"
        GITHUB = "github", "Commit status on GitHub"
        GITLAB = "gitlab", "Commit status on GitLab"

    # They get the ends of gates alone.
    FORGES = (Kind.GITHUB, Kind.GITLAB)

    class Event(models.TextChoices):
        CONCLUDED = "concluded", "It concludes"
        STALLED = "stalled", "Pairs are ready, but nobody judges"
        IMPROVED = "improved", "An improvement ends"
        PROPOSED = "proposed", "A proposal waits for an OK"
        UNHEALTHY = "unhealthy", "It becomes unhealthy, or recovers"
        POLICIES = "policies", "A policy joins or retires"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="subscriptions")
    kind = models.CharField(max_length=10, choices=Kind)
    target = models.CharField(
        max_length=500,
        help_text=(
            "An e-mail address, the URL of a webhook, or of a repository. That of a webhook is a secret: "
            "anybody who knows it can post there."
        ),
    )
    events = models.JSONField(default=list)
    secret = models.TextField(
        blank=True, help_text="Key that signs the calls of a webhook; the sealed token of a commit status."
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(fields=["experiment", "kind", "target"], name="subscription_once"),
        )

    def __str__(self) -> str:
        return f"{self.kind} to {self.host}"

    @property
    def occasions(self) -> list[str]:
        """Its events in words."""
        if self.kind in self.FORGES:
            return ["The gate compares a commit, and the comparison ends"]
        return [str(self.Event(event).label) for event in self.events]

    @property
    def host(self) -> str:
        """The part of the target that anybody may see: no secret of a webhook's, nobody's e-mail address."""
        if self.kind == self.Kind.EMAIL:
            return self.target.rpartition("@")[2]
        return urlsplit(self.target).hostname or ""

    @property
    def shown(self) -> str:
        """The target as editors see it: the e-mail address or the repository, or the host of a webhook."""
        return self.target if self.kind in {self.Kind.EMAIL, *self.FORGES} else self.host


class Notification(Claimable):
    """The outbox: one message, stored in the transaction of its cause and sent afterwards.

    It goes to a subscriber, or to the address of an invitation.

    waiting (claimed while a worker sends it) → sent | failed (after too many attempts). ``key`` makes the
    same news one message.
    """

    # Characters.
    LONGEST_SUBJECT = 300

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    subscription = models.ForeignKey(
        Subscription, models.CASCADE, null=True, blank=True, related_name="notifications"
    )
    invitation = models.ForeignKey(
        Invitation, models.CASCADE, null=True, blank=True, related_name="notifications"
    )
    event = models.CharField(max_length=20)
    key = models.CharField(max_length=100)
    subject = models.CharField(max_length=LONGEST_SUBJECT)
    text = models.TextField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(default=clock.now)
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=clock.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["subscription", "key"], name="notification_once"),
            models.CheckConstraint(
                name="notification_one_recipient",
                condition=Q(subscription__isnull=False, invitation__isnull=True)
                | Q(subscription__isnull=True, invitation__isnull=False),
            ),
        )
        indexes = (models.Index(fields=["due_at"], name="notification_due", condition=Q(state="waiting")),)

    def __str__(self) -> str:
        return self.subject

    @property
    def address(self) -> str:
        """The e-mail address, or the URL, that it goes to."""
        if self.invitation is not None:
            return self.invitation.email
        return "" if self.subscription is None else self.subscription.target


class Alarm(models.Model):
    """Something that is wrong with an experiment now. The row goes when it is over."""

    class Kind(models.TextChoices):
        STALLED = "stalled", "Stalled"
        UNHEALTHY = "unhealthy", "Unhealthy"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="alarms")
    kind = models.CharField(max_length=10, choices=Kind)
    since = models.DateTimeField(default=clock.now)
    announced_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["experiment", "kind"], name="alarm_once"),)

    def __str__(self) -> str:
        return f"{self.experiment} is {self.kind} since {self.since}"
