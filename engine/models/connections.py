"""Connections to the models of vendors and other servers, and the experiments to which they are lent."""

from typing import Self

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Exists, OuterRef, Q

from engine.domain.profiles import Provider
from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.people import User


class ConnectionQuerySet(models.QuerySet["Connection"]):
    """Connections by their users."""

    def remote(self) -> Self:
        """Those that are asked over the network, not the models of our own workers."""
        return self.exclude(provider=Provider.WORKER)

    def usable_by(self, experiment: Experiment) -> Self:
        """Those that policies, judge and guards of this experiment may use."""
        lent = Loan.objects.filter(
            connection=OuterRef("pk"), experiment=experiment.trial_of_id or experiment.pk, by__is_active=True
        )
        return self.filter(Q(everybody=True) | Exists(lent), retired_at__isnull=True)

    def choosable_by(self, user: User, experiment: Experiment | None) -> Self:
        """Those that this person may name in a draft; ``None``: it is not stored yet.

        Their own are among them: :func:`engine.services.connection_loans.lend_chosen` lends those.
        """
        allowed = Q(everybody=True) | Q(owner=user)
        if experiment is not None:
            allowed |= Q(pk__in=Connection.objects.usable_by(experiment).values("pk"))
        return self.filter(allowed, retired_at__isnull=True)


class Connection(models.Model):
    """The way to a model, the settings that its requests may hold, and their prices.

    The key is never a field of a form, an export or a copy: ``engine.services.keys`` alone writes and reads
    it. A row of the provider "worker" is made by a worker of ours for the model that it serves.
    """

    PROVIDERS = tuple((provider.value, provider.value) for provider in Provider)

    name = models.CharField(max_length=100, unique=True, help_text="The name by which levels choose it.")
    provider = models.CharField(max_length=20, choices=PROVIDERS)
    model_id = models.CharField(max_length=200, help_text="The model's own name at the provider.")
    address = models.CharField(max_length=500, blank=True, help_text="Base address of the server.")
    api_version = models.CharField(max_length=40, blank=True, help_text="Azure's classic addresses need one.")
    headers = models.JSONField(default=dict, blank=True, help_text="Further headers, none of them a secret.")
    extra_body = models.JSONField(default=dict, blank=True, help_text="Further fields of each request.")
    takes = models.JSONField(
        default=dict,
        blank=True,
        help_text="What it takes, where that differs from its provider's rules.",
    )
    at_once = models.PositiveSmallIntegerField(
        default=16,
        validators=[MinValueValidator(1), MaxValueValidator(256)],
        help_text="Requests under way at once, of each worker.",
    )
    per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Requests in a minute, of each worker; empty: no limit.",
    )
    answer_seconds = models.PositiveIntegerField(
        default=600,
        validators=[MinValueValidator(1), MaxValueValidator(3600)],
        help_text="The longest wait for one answer.",
    )

    price_prompt = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Of a million tokens; empty: unknown.",
    )
    price_cached = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0)])
    price_completion = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0)])
    currency = models.CharField(max_length=3, default="USD")
    daily_limit = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Money that it may cost in 24 hours; empty: no limit.",
    )

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="connections",
        help_text="The person whose it is; empty: the site's.",
    )
    everybody = models.BooleanField(
        default=False, help_text="Every experiment may use it; otherwise those to which it is lent."
    )
    created_at = models.DateTimeField(default=clock.now)
    retired_at = models.DateTimeField(null=True, blank=True)

    sealed_key = models.TextField(blank=True, editable=False)
    key_hint = models.CharField(max_length=4, blank=True, editable=False, help_text="Its last characters.")
    key_set_at = models.DateTimeField(null=True, blank=True, editable=False)
    key_variable = models.CharField(
        max_length=100,
        blank=True,
        help_text="Variable of the workers' environment with the key.",
    )

    waits_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Nothing is asked before; empty: it works."
    )
    failures = models.PositiveIntegerField(default=0, editable=False, help_text="In a row.")
    trouble = models.TextField(blank=True, editable=False, help_text="Why it waits, in words of our own.")
    said = models.TextField(
        blank=True,
        editable=False,
        help_text="The server's words, without secrets, for who may change it.",
    )
    test = models.JSONField(default=dict, editable=False, help_text="The last test: request, reply, remarks.")
    test_asked_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ConnectionQuerySet.as_manager()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Loan(models.Model):
    """The permission of a connection's owner that an experiment's policies, judge and guards use it."""

    connection = models.ForeignKey(Connection, models.CASCADE, related_name="loans")
    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="loans")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["connection", "experiment"], name="loan_once"),)

    def __str__(self) -> str:
        return f"{self.connection} for {self.experiment}"
