"""The rows behind an experiment.

Rows are the queue: every state below is moved by a conditional UPDATE or under a row lock. Celery messages
only wake the code that looks for work here. ``Claimable`` rows are taken by one worker at a time.

* ``Response``: waiting → generating (claim) → done | failed (reason).
* ``Comparison``: planned → ready (both responses done) → assigned (one annotator) → judged; or discarded
  (reason).
* ``Assignment``: open → judged | skipped; back to open by an undo; or lost (the experiment ended).
* ``Judgment``: append-only; undoing one appends a ``JudgmentVoid``.
* ``Opinion``: waiting → asking (claim) → done | failed (reason); one that votes leads to its judgment.
* ``Charge``: append-only; what each reply of a model cost.
* ``ShowingEvent``: append-only; written with what happens to a comparison, then numbered by the planner.
* ``Improvement``: open → ended | stopped.
* ``Proposal``: proposed → refused | joined → dropped | promoted | left.
* ``Publication``: waiting (claim) → sent | failed (reason).
* ``Conclusion``: append-only; written with the evidence that allows it.
* ``PairCount``: changed in the transaction of the judgment; rebuildable from the judgments.
* ``Experiment``: draft → running ⇄ paused → concluded (reason).
"""

from engine.models.assignments import Assignment, GoldItem
from engine.models.audit import AuditEntry
from engine.models.charges import Charge
from engine.models.comparisons import Comparison, Flag
from engine.models.conclusions import Conclusion
from engine.models.connections import Connection, Loan
from engine.models.evidence import DashboardPage, Examination, Snapshot
from engine.models.experiments import Experiment, ExperimentQuerySet
from engine.models.gates import Gate, GateCommit, MainText
from engine.models.generation import Response, WorkerPulse
from engine.models.improvements import Improvement, Proposal, Writing
from engine.models.judgments import Allowance, Judgment, JudgmentVoid, PairCount
from engine.models.notifications import Alarm, Notification, Subscription
from engine.models.opinions import Opinion
from engine.models.people import (
    Browser,
    GroupRole,
    Invitation,
    InvitationUse,
    Membership,
    ReportLink,
    RoleLoss,
    Token,
    User,
)
from engine.models.policies import Factor, Level, Policy, Task
from engine.models.publications import Destination, Publication
from engine.models.showings import Evidence, ShowingEvent
from engine.models.trials import Trial
from engine.models.uploads import Upload

__all__ = [
    "Alarm",
    "Allowance",
    "Assignment",
    "AuditEntry",
    "Browser",
    "Charge",
    "Comparison",
    "Conclusion",
    "Connection",
    "DashboardPage",
    "Destination",
    "Evidence",
    "Examination",
    "Experiment",
    "ExperimentQuerySet",
    "Factor",
    "Flag",
    "Gate",
    "GateCommit",
    "GoldItem",
    "GroupRole",
    "Improvement",
    "Invitation",
    "InvitationUse",
    "Judgment",
    "JudgmentVoid",
    "Level",
    "Loan",
    "MainText",
    "Membership",
    "Notification",
    "Opinion",
    "PairCount",
    "Policy",
    "Proposal",
    "Publication",
    "ReportLink",
    "Response",
    "RoleLoss",
    "ShowingEvent",
    "Snapshot",
    "Subscription",
    "Task",
    "Token",
    "Trial",
    "Upload",
    "User",
    "WorkerPulse",
    "Writing",
]
