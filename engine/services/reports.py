"""Links by which people without an account read the report of an experiment."""

import secrets
from datetime import timedelta

from django.db import transaction

from engine.domain.credentials import hashed
from engine.domain.errors import WrongStateError
from engine.models import AuditEntry, Experiment, ReportLink, User, clock
from engine.services.audit import record


@transaction.atomic
def share_report(
    *, experiment: Experiment, by: User, valid_days: int | None, shows_prompt: bool = False
) -> tuple[ReportLink, str]:
    """Make a link to the report; also returns its secret, which is not stored.

    ``valid_days`` is ``None`` for a link that works until somebody ends it. ``shows_prompt``: with the
    prompt, the model and the settings of the winner.

    Raises
    ------
    WrongStateError
        The experiment is a draft: there is nothing to report.
    """
    if Experiment.objects.filter(pk=experiment.pk, state=Experiment.State.DRAFT).exists():
        raise WrongStateError("A draft has no report. Start the experiment first.")
    secret = secrets.token_urlsafe(32)
    now = clock.now()
    link = ReportLink.objects.create(
        hash=hashed(secret),
        hint=secret[:6],
        experiment=experiment,
        shows_prompt=shows_prompt,
        created_by=by,
        created_at=now,
        expires_at=None if valid_days is None else now + timedelta(days=valid_days),
    )
    until = f"until {link.expires_at:%Y-%m-%d}" if link.expires_at else "until somebody ends it"
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.SHARE,
        details={
            "hint": link.hint,
            "until": f"{until}, with the winner’s prompt and settings" if shows_prompt else until,
        },
    )
    return link, secret


@transaction.atomic
def end_report_link(*, link_id: int, by: User) -> None:
    """Make a link to the report useless. Ending it twice is ending it once."""
    link = ReportLink.objects.select_for_update(no_key=True, of=("self",)).get(pk=link_id)
    if link.ended_at is None:
        _end(link, by=by)


@transaction.atomic
def end_links_without_rights(*, user: User, by: User | None) -> None:
    """End a user's links to reports of experiments that they may no longer run.

    If they get the role back, the links stay ended.
    """
    links = ReportLink.objects.open().filter(created_by=user)
    if user.is_active:
        links = links.exclude(experiment__in=Experiment.objects.run_by(user))
    for link in links.select_for_update(no_key=True, of=("self",)).order_by("pk"):
        _end(link, by=by, about=user)


def _end(link: ReportLink, *, by: User | None, about: User | None = None) -> None:
    link.ended_at = clock.now()
    link.save(update_fields=["ended_at"])
    record(
        experiment=link.experiment,
        by=by,
        about=about,
        action=AuditEntry.Action.END_SHARE,
        details={"hint": link.hint},
    )


def open_link(*, secret: str) -> ReportLink | None:
    """The link with this secret and its experiment; ``None`` if it is unknown, has ended or has expired.

    A link also stops working when the person who made it may no longer run the experiment.
    """
    link = ReportLink.objects.open().filter(hash=hashed(secret)).select_related("experiment").first()
    if link is None or not link.created_by.is_active:
        return None
    may_run = Experiment.objects.run_by(link.created_by).filter(pk=link.experiment_id).exists()
    return link if may_run else None
