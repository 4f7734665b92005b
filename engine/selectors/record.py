"""The record of the judgments in the evidence, now and as the log has it of the conclusion."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery

from engine.domain.judgment_record import chained, line_digest
from engine.domain.judgment_uuids import exchanged, mark
from engine.domain.policy_space import code_of
from engine.domain.showings import Kind
from engine.models import AuditEntry, Experiment, Judgment, ShowingEvent

# The last event of a comparison that has ended in the evidence.
ENDED = (Kind.TOLD, Kind.REVISED)
_CONCLUSIONS = (AuditEntry.Action.CONCLUDE, AuditEntry.Action.STOP, AuditEntry.Action.STOP_ON)


@dataclass(frozen=True)
class Record:
    """The number of judgments, and the end of the chain over their lines."""

    judgments: int
    digest: str


def last_event(comparison: str) -> Subquery:
    """The kind of the last event that the evidence has of a comparison; ``comparison``: the path to its key.

    A click that comes after the conclusion changes none of them, however early it began.
    """
    events = ShowingEvent.objects.filter(comparison=OuterRef(comparison), number__isnull=False)
    return Subquery(events.order_by("-number").values("kind")[:1])


def lines(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """The UUID and the digest of each judgment in the evidence, in the order in which they were stored."""
    mask = mark(experiment.pk)
    rows = Judgment.objects.filter(comparison__experiment=experiment)
    rows = rows.alias(last=last_event("comparison_id")).filter(last__in=ENDED)
    for token, number, i, j, on_left, choice, outcome, judge, via, at, restores, kind, voided_at in (
        rows.order_by("pk")
        .values_list(
            "token", "comparison__number", "comparison__policy_i__index", "comparison__policy_j__index",
            "comparison__i_on_left", "choice", "outcome", "judge", "via", "created_at", "restores_id",
            "void__fate", "void__created_at",
        )
        .iterator()
    ):  # fmt: skip
        uuid, left = str(exchanged(token, mask)), code_of(i if on_left else j)
        yield uuid, digest_of_row(
            uuid, number, code_of(i), code_of(j), left, choice, outcome, judge, via, at, restores, kind,
            voided_at,
        )  # fmt: skip


def digest_of_row(*values: Any) -> str:
    """The digest of the line with these values of `engine.domain.judgment_record.COLUMNS`."""
    return line_digest(*map(_written, values))


def _written(value: Any) -> str:
    """A value as CSV writes it."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return "" if value is None else str(value)


def record_of(experiment: Experiment) -> Record:
    """The record of the evidence as it stands."""
    digests = [digest for _, digest in lines(experiment)]
    return Record(len(digests), chained(digests))


def concluded_record(experiment: Experiment) -> Record | None:
    """The logged record of the latest conclusion; ``None`` unless the experiment has concluded."""
    if experiment.state != Experiment.State.CONCLUDED:
        return None
    entry = experiment.audit_entries.filter(action__in=_CONCLUSIONS).order_by("-pk").first()
    if entry is None or "digest" not in entry.details:
        return None
    return Record(entry.details["judgments"], entry.details["digest"])
