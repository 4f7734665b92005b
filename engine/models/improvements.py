"""Improvements: runs in which a writer proposes new levels and people choose among them."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from engine.domain.claim_settings import LARGEST_RISK, SMALLEST_RISK
from engine.models import clock
from engine.models.experiments import Experiment
from engine.models.policies import Factor, Policy


class Improvement(models.Model):
    """One run: proposals race the champion, and the last quarter of the clicks compares it with the original.

    What happened in it follows from the log of showings, from event ``first`` to event ``last``.
    """

    class State(models.TextChoices):
        OPEN = "open", "Open"
        ENDED = "ended", "Ended"
        STOPPED = "stopped", "Stopped by hand"

    class Phase(models.TextChoices):
        EXPLORE = "explore", "Proposals race the champion"
        CERTIFY = "certify", "The champion meets the original"
        ENDED = "ended", "Ended"

    experiment = models.ForeignKey(Experiment, models.CASCADE, related_name="improvements")
    original = models.ForeignKey(
        Policy, models.CASCADE, related_name="+", help_text="The policy that is to be beaten."
    )
    factor = models.ForeignKey(
        Factor, models.CASCADE, related_name="+", help_text="The factor whose text is written anew."
    )
    clicks = models.PositiveIntegerField(
        default=300, validators=[MinValueValidator(20), MaxValueValidator(10_000)]
    )
    delta = models.FloatField(
        default=0.05, validators=[MinValueValidator(SMALLEST_RISK), MaxValueValidator(LARGEST_RISK)]
    )
    wish = models.TextField(blank=True, max_length=2000, help_text="What the owner would like, in words.")
    needs_ok = models.BooleanField(default=True, help_text="Each proposal waits for somebody's OK.")
    longest = models.PositiveIntegerField(
        default=2000,
        validators=[MinValueValidator(50), MaxValueValidator(50_000)],
        help_text="Characters that a proposal may have.",
    )
    writer = models.CharField(max_length=50, default="reflective", help_text="Its name as an entry point.")
    connection = models.CharField(
        max_length=100, blank=True, help_text="The connection that the writer asks, by its name."
    )
    seed = models.BigIntegerField(editable=False)
    open_tasks = models.JSONField(
        default=list, editable=False, help_text="Numbers of the tasks whose votes a writer may see."
    )
    was_running = models.BooleanField(editable=False, help_text="The experiment ran before it.")
    first = models.PositiveBigIntegerField(
        editable=False, help_text="Number of the last event of the evidence before it."
    )
    last = models.PositiveBigIntegerField(
        null=True, editable=False, help_text="Number of the last event in it; empty while it is open."
    )
    turns = models.JSONField(
        default=list,
        editable=False,
        help_text="What its owner decided: lists of the number of the event before, and how many more clicks "
        "it has from there on; or null, where the champion was fixed early.",
    )
    exhausted = models.BooleanField(
        default=False, editable=False, help_text="The writer has nothing more to give."
    )
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    phase = models.CharField(max_length=10, choices=Phase, default=Phase.EXPLORE)
    used = models.PositiveIntegerField(default=0, help_text="Clicks used.")
    champion = models.ForeignKey(Policy, models.CASCADE, related_name="+")
    verdict = models.JSONField(default=dict, editable=False, help_text="As the race has it; see its kind.")
    course = models.JSONField(
        default=list,
        editable=False,
        help_text="The picture of the beliefs: lists of clicks used, the champion's index, its win rate "
        "against the original, and that rate two standard deviations below and above.",
    )
    wants = models.JSONField(
        default=dict, editable=False, help_text="Texts to be written now, by the index of their parent."
    )
    writing_since = models.DateTimeField(null=True, editable=False, help_text="Since when a worker writes.")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", help_text="Who started it."
    )
    started_at = models.DateTimeField(default=clock.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["experiment"], name="improvement_one_open", condition=Q(state="open")
            ),
        )

    def __str__(self) -> str:
        return f"Improvement of {self.original} in {self.experiment}"

    @property
    def left(self) -> int:
        """Clicks that it may still use."""
        return max(self.clicks - self.used, 0)


class Writing(models.Model):
    """A call of a writer: what it was sent, what it gave, and the tasks whose votes it saw."""

    improvement = models.ForeignKey(Improvement, models.CASCADE, related_name="writings")
    parent = models.ForeignKey(Policy, models.CASCADE, related_name="+")
    opened_tasks = models.JSONField(default=list, help_text="Numbers of the tasks whose votes it saw.")
    sent = models.TextField(blank=True)
    gave = models.TextField(blank=True)
    fault = models.CharField(max_length=500, blank=True, help_text="Why it gave nothing that can be used.")
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"Writing {self.pk} for {self.improvement}"


class Proposal(models.Model):
    """A text that a writer proposes as a new level, and what became of it."""

    class State(models.TextChoices):
        PROPOSED = "proposed", "Waits for an OK"
        REFUSED = "refused", "Refused"
        JOINED = "joined", "In the race"
        DROPPED = "dropped", "Dropped"
        PROMOTED = "promoted", "Became champion"
        LEFT = "left", "Left when the improvement ended"

    improvement = models.ForeignKey(Improvement, models.CASCADE, related_name="proposals")
    writing = models.ForeignKey(Writing, models.CASCADE, null=True, related_name="proposals")
    number = models.PositiveIntegerField(help_text="Its place in the experiment, from 1.")
    parent = models.ForeignKey(Policy, models.CASCADE, related_name="+")
    policy = models.OneToOneField(Policy, models.CASCADE, null=True, related_name="proposal")
    text = models.TextField()
    written_text = models.TextField(blank=True, help_text="As the writer gave it, if somebody edited it.")
    reason = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=State, default=State.PROPOSED)
    refused_because = models.CharField(max_length=500, blank=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        related_name="+",
        help_text="Who accepted or refused it; empty where nobody was asked.",
    )
    compared = models.PositiveIntegerField(default=0, help_text="Comparisons until it was dropped.")
    at = models.PositiveIntegerField(null=True, help_text="Clicks used when it was dropped or promoted.")
    probability = models.FloatField(
        null=True, help_text="That it is better than the champion, when it was dropped or promoted."
    )
    answers = models.JSONField(
        default=list, editable=False, help_text="Its answers to a few open tasks, for who decides about it."
    )
    answers_since = models.DateTimeField(null=True, editable=False, help_text="Since when they are written.")
    screened = models.JSONField(
        null=True,
        editable=False,
        help_text="By the language model that judges, for each task: 1 where it preferred this one to its "
        "parent, 0 where not, 0.5 for neither. None of them: it could not say. Empty: it was not asked.",
    )
    screened_since = models.DateTimeField(null=True, editable=False, help_text="Since when it is asked.")
    created_at = models.DateTimeField(default=clock.now)
    settled_at = models.DateTimeField(null=True, help_text="When it reached its state.")

    class Meta:
        ordering = ("number",)
        constraints = (
            models.UniqueConstraint(fields=["improvement", "number"], name="proposal_number_once"),
        )

    def __str__(self) -> str:
        return f"Proposal {self.number}"
