"""Accounts and their rights: memberships, invitations, tokens."""

from typing import Any, NamedTuple, Self

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from engine.models import clock


class User(AbstractUser):
    """An account. It has been our own model from the start, because Django cannot switch to one later."""

    forgotten_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Time at which the person was forgotten; only their judgments are kept.",
    )
    # Part of every session's check: counting it up ends all sessions, also those that no table lists.
    session_version = models.PositiveIntegerField(default=0, editable=False)
    # How this person likes to judge: `keys`, `left_handed`, `guidelines`. A missing one has its default.
    preferences = models.JSONField(default=dict, editable=False)
    # The rights in the stored row before a save; `labeling.signals` compares.
    rights_before: tuple[Any, ...] | None = None

    class Meta(AbstractUser.Meta):
        constraints = (
            # SQLite folds the letters of ASCII alone.
            models.UniqueConstraint(
                Lower("username"),
                name="user_name_once",
                violation_error_message="A user with that username already exists.",
            ),
        )

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        hashed = super()._get_session_auth_hash(secret=secret)  # type: ignore[misc]  # not in Django's stubs
        return f"{hashed}.{self.session_version}"


class Browser(models.Model):
    """A browser in which an account has logged in. Only the hash of the number in its cookie is kept."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="browsers")
    hash = models.CharField(max_length=64, db_index=True)
    first_login_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "hash"], name="browser_once_each"),)

    def __str__(self) -> str:
        return f"{self.user} logged in in {self.hash[:6]}…"


class Membership(models.Model):
    """A role of an account in an experiment. Superusers may do everything everywhere."""

    class Role(models.TextChoices):
        ANNOTATOR = "annotator", "Annotator"
        VIEWER = "viewer", "Viewer"
        EDITOR = "editor", "Editor"
        OWNER = "owner", "Owner"

    class Origin(models.TextChoices):
        """The way by which somebody became a member."""

        FOUNDER = "founder", "Created the experiment"
        INVITATION = "invitation", "Invitation"
        ADMINISTRATOR = "administrator", "Added by an administrator"
        OWNER = "owner", "Began to judge as an owner"
        GROUP = "group", "Group of the single sign-on"

    # The roles that show which policy wrote what.
    WATCHING = (Role.VIEWER, Role.EDITOR, Role.OWNER)
    EDITING = (Role.EDITOR, Role.OWNER)

    experiment = models.ForeignKey("Experiment", models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.ANNOTATOR)
    origin = models.CharField(max_length=15, choices=Origin, default=Origin.ADMINISTRATOR)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="The person who made the invitation, or who added the member on the admin site.",
    )
    joined_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "user", "role"], name="membership_once"),
        )

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.experiment}"


class GroupRole(models.Model):
    """A role in an experiment for everybody in a group of the single sign-on, from login to login."""

    # Owners are made by hand: the last one must not leave at a login.
    ROLES = tuple(role for role in Membership.Role if role != Membership.Role.OWNER)

    experiment = models.ForeignKey("Experiment", models.CASCADE, related_name="group_roles")
    group = models.CharField(max_length=255)
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.ANNOTATOR)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["experiment", "group", "role"], name="group_role_once"),
            models.CheckConstraint(name="group_owns_nothing", condition=~Q(role="owner")),
        )

    def __str__(self) -> str:
        return f"{self.group} is {self.role} of {self.experiment}"


class RoleLoss(models.Model):
    """A role that was taken from somebody. Older invitations give this person no role."""

    experiment = models.ForeignKey("Experiment", models.CASCADE, related_name="role_losses")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="role_losses")
    role = models.CharField(max_length=10, choices=Membership.Role)
    at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"{self.user} is no longer {self.role} of {self.experiment}"


class InvitationLimit(NamedTuple):
    """The most people whom one link may let in, and the most days that it may last."""

    uses: int
    days: int


class Invitation(models.Model):
    """A link that makes a person who follows it a member of an experiment.

    Only the hash of its secret is kept: somebody who reads the table cannot follow the link.
    """

    # The more rights a link gives away, the fewer people may use it and the sooner it ends.
    LIMITS = {  # noqa: RUF012 - never changed
        Membership.Role.ANNOTATOR: InvitationLimit(uses=1000, days=365),
        Membership.Role.VIEWER: InvitationLimit(uses=50, days=90),
        Membership.Role.EDITOR: InvitationLimit(uses=50, days=90),
        Membership.Role.OWNER: InvitationLimit(uses=1, days=7),
    }

    hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(
        max_length=12, help_text="First characters of the secret; they identify the link."
    )
    experiment = models.ForeignKey("Experiment", models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.ANNOTATOR)
    most_uses = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    uses = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="invitations")
    created_at = models.DateTimeField(default=clock.now)
    email = models.EmailField(
        max_length=254, blank=True, help_text="Address to which LLM-PO sends the link; empty for none."
    )
    mail_key = models.CharField(
        max_length=43,
        blank=True,
        help_text="Random text from which SECRET_KEY makes the link again, to send it; empty for no address.",
    )

    guests = models.BooleanField(
        default=False, help_text="People judge without an account of their own, in one browser."
    )
    most_answers = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Pairs that each guest is given, those of checks among them; empty for no limit.",
    )
    id_parameter = models.CharField(
        max_length=100,
        blank=True,
        validators=[
            RegexValidator(r"\A\w+(,\s*\w+)*\Z", "Write names of parameters, with commas between them.")
        ],
        help_text=(
            "The link's parameter that holds a guest's identifier elsewhere, such as PROLIFIC_PID; of "
            "several names the first that a link has."
        ),
    )
    completion = models.CharField(
        max_length=500, blank=True, help_text="Link or code for a guest who has judged all of these pairs."
    )
    screen_out = models.CharField(
        max_length=500, blank=True, help_text="Link or code for a guest who fails the gold items."
    )

    class Meta:
        constraints = (
            models.CheckConstraint(
                name="invitation_guests_only_judge", condition=Q(guests=False) | Q(role="annotator")
            ),
            models.CheckConstraint(name="invitation_not_overused", condition=Q(uses__lte=F("most_uses"))),
            models.CheckConstraint(
                name="invitation_owner_single_use", condition=~Q(role="owner") | Q(most_uses=1)
            ),
        )

    def __str__(self) -> str:
        return f"{self.role} of {self.experiment}, {self.uses}/{self.most_uses} used"


class ReportLinkQuerySet(models.QuerySet["ReportLink"]):
    """Links to reports by their state."""

    def open(self) -> Self:
        """Those that nobody has ended and that have not expired, newest first."""
        unended = self.filter(ended_at__isnull=True).exclude(expires_at__lt=clock.now())
        return unended.select_related("created_by").order_by("-pk")


class ReportLink(models.Model):
    """A link by which anybody may read the report of an experiment, without an account.

    Only the hash of its secret is kept: somebody who reads the table cannot follow the link. It works while
    the person who made it may run the experiment.
    """

    hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(
        max_length=12, help_text="First characters of the secret; they identify the link."
    )
    experiment = models.ForeignKey("Experiment", models.CASCADE, related_name="report_links")
    shows_prompt = models.BooleanField(
        default=False,
        db_default=False,
        help_text="The report also shows the prompt, the model and the settings of the winner.",
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="report_links")
    created_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = ReportLinkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"Report of {self.experiment} ({self.hint}…)"


class InvitationUse(models.Model):
    """A person who joined through an invitation, and the time."""

    invitation = models.ForeignKey(Invitation, models.CASCADE, related_name="used_by")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="invitation_uses")
    at = models.DateTimeField(default=clock.now)
    outside_id = models.CharField(
        max_length=100, blank=True, help_text="A guest's identifier elsewhere, as their link said."
    )
    parameters = models.JSONField(
        default=list,
        help_text="The parameters of the link each time that the guest came, such as a session's.",
    )

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["invitation", "user"], name="invitation_use_once_each"),
            models.UniqueConstraint(
                fields=["invitation", "outside_id"],
                name="invitation_use_once_each_identifier",
                condition=~Q(outside_id=""),
            ),
        )

    def __str__(self) -> str:
        return f"{self.user} joined as {self.invitation.role}"


class Token(models.Model):
    """Lets a program act as its user through the API, within its scopes.

    Only the hash of its secret is kept: somebody who reads the table cannot use it.
    """

    class Scope(models.TextChoices):
        READ = "read", "Read: see experiments and their logs, and export judgments"
        ANNOTATE = "annotate", "Annotate: get pairs and judge them"
        MANAGE = (
            "manage",
            "Manage: create, start and stop experiments, change their settings and members",
        )

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(
        max_length=12, help_text="First characters of the secret; they identify the token."
    )
    scopes = models.JSONField(help_text="A list of scopes, at least one.")
    experiment = models.ForeignKey(
        "Experiment",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="tokens",
        help_text="The only experiment that the token reaches; empty for all of its user's.",
    )
    created_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"
