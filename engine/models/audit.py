"""The audit log."""

from django.conf import settings
from django.db import models

from engine.models import clock
from engine.models.experiments import Experiment


class AuditEntry(models.Model):
    """An action on an experiment, its author and its time. Written by ``engine.services.audit`` alone.

    Append-only, and the database sees to it (:mod:`engine.models.append_only`). The entries of an experiment
    that is deleted stay. People are in ``by`` and ``about`` and never in the text, since an entry is never
    changed and a person may be forgotten. ``text`` has their name as it is when it is read.
    """

    # Stands in a sentence for the name of the person whom it is about.
    PERSON = "{person}"

    class Action(models.TextChoices):
        CREATE = "create", "Created"
        EDIT = "edit", "Edited"
        START = "start", "Started"
        PAUSE = "pause", "Paused"
        RESUME = "resume", "Resumed"
        STOP = "stop", "Stopped"
        STOP_ON = "stop_on", "Stopped on a claim"
        CONCLUDE = "conclude", "Concluded"
        REOPEN = "reopen", "Reopened"
        BUDGET = "budget", "Budget changed"
        CLAIM = "claim", "Claim changed"
        DELTA = "delta", "Risk δ changed"
        EPSILON = "epsilon", "Margin ε changed"
        VOID = "void", "Judgments voided"
        RESTORE = "restore", "Judgments restored"
        ARCHIVE = "archive", "Archived"
        UNARCHIVE = "unarchive", "Taken out of the archive"
        CLONE = "clone", "Cloned"
        INVITE = "invite", "Invited"
        MAIL_INVITATION = "mail_invitation", "Invitation e-mailed"
        END_INVITATION = "end_invitation", "Invitation ended"
        JOIN = "join", "Joined"
        ADD = "add", "Member added"
        ROLE = "role", "Role changed"
        REMOVE = "remove", "Member removed"
        GROUP_ADDED = "group_added", "Group added"
        GROUP_REMOVED = "group_removed", "Group removed"
        TOKEN_MADE = "token_made", "Token made"
        TOKEN_REVOKED = "token_revoked", "Token revoked"
        # Entries cannot be changed, so the action keeps the name under which it was first stored.
        LOG_OUT = "sign_out", "Logged out everywhere"
        RESET_LINK = "reset_link", "Password link made"
        EXPORT = "export", "Exported"
        IMPORT_VOTES = "import_votes", "Past votes imported"
        LLM_JUDGE = "llm_judge", "Language model as a judge changed"
        DELETE = "delete", "Experiment deleted"
        FORGET = "forget", "Person forgotten"
        LLM_HALTED = "llm_halted", "Language model as a judge halted"
        SUBSCRIBE = "subscribe", "Notification added"
        UNSUBSCRIBE = "unsubscribe", "Notification removed"
        SHARE = "share", "Report shared"
        END_SHARE = "end_share", "Shared report ended"
        CONNECTION = "connection", "Connection changed"
        KEY = "key", "Key of a connection changed"
        LEND = "lend", "Connection lent"
        END_LOAN = "end_loan", "Loan ended"
        TRY_AGAIN = "try_again", "Policy tried again"
        POLICY_JOINED = "policy_joined", "Policy added"
        POLICY_RETIRED = "policy_retired", "Policy retired"
        TASKS_ADDED = "tasks_added", "Tasks added"
        TASK_LEFT_OUT = "task_left_out", "Task left out"
        IMPROVE = "improve", "Improvement started"
        IMPROVED = "improved", "Improvement ended"
        GO_ON = "go_on", "Improvement goes on"
        FIX_CHAMPION = "fix_champion", "Champion fixed"
        STOP_IMPROVING = "stop_improving", "Improvement stopped"
        PROPOSAL_ACCEPTED = "proposal_accepted", "Proposal accepted"
        PROPOSAL_REFUSED = "proposal_refused", "Proposal refused"
        PROMOTED = "promoted", "Proposal promoted"
        GATE = "gate", "Pull request checked"
        MAIN_TEXTS = "main_texts", "Texts of main changed"
        DESTINATION = "destination", "Destination of the winner changed"
        PUBLISHED = "published", "Winner sent"
        REMARKS_DONE = "remarks_done", "Flags and comments done"

    experiment = models.ForeignKey(
        Experiment,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="audit_entries",
        help_text="Empty for entries about an account, such as a token, and of a deleted experiment.",
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Empty if LLM-PO itself or a command did it.",
    )
    about = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The person concerned, if any.",
    )
    at = models.DateTimeField(default=clock.now)
    action = models.CharField(max_length=20, choices=Action)
    details = models.JSONField(default=dict, blank=True)
    sentence = models.TextField()

    class Meta:
        ordering = ("-pk",)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The sentence with the name that its person has now."""
        if self.about is None:
            return self.sentence
        # The first only: what people typed comes later in every sentence.
        return self.sentence.replace(self.PERSON, self.about.get_username(), 1)
