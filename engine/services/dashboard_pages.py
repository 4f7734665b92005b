"""Pages of the dashboard, computed once for all viewers.

Ages are in units of ``DASHBOARD_SECONDS``; 0 means that every request computes its page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from django.conf import settings
from django.db.models import CharField, QuerySet

from engine.models import DashboardPage, Experiment, Membership, User, clock
from engine.models.experiments import has_role
from engine.selectors.prepared_reads import ANNOTATOR, EXPERIMENT, Given, Prepared

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

# The content of a page; "html" is kept apart.
Make = Callable[[Experiment], dict[str, Any]]

# Not again before that age, or before this many times the processor time that it took.
_LEAST_AGE, _REST = 0.4, 10
# A request computes a page that is older: no worker does.
_OLDEST_AGE = 3.0
# Who began it that long ago has died.
_LONGEST = timedelta(seconds=60)


def show(*, experiment: Experiment, page: str, make: Make) -> DashboardPage:
    """The page as it was last computed, or computed now where nobody did lately."""
    row = find(experiment, page)
    if row is None or (is_old(row) and _begins(row)):
        return _computed(experiment, page, make, watched_at=clock.now())
    _note_look(row)
    return row


def _note_look(row: DashboardPage) -> None:
    if row.watched_at < _ago(1.0):
        DashboardPage.objects.filter(pk=row.pk).update(watched_at=clock.now())


class Rights(TypedDict):
    """What a person may do with the experiment of a page."""

    watches: bool
    may_run: bool


# Never show a claim, a risk or a winner beside a page that was computed for another one.
_PROMISED = ("state", "conclusion", "winner_id", "claim", "delta", "epsilon", "missing", "budget")
_OF_ITS_EXPERIMENT = [f"experiment__{name}" for name in ("trial_of", *_PROMISED)]


def _with_rights() -> QuerySet[Any]:
    return (
        DashboardPage.objects.filter(experiment=EXPERIMENT, page=Given("page", CharField()))
        .annotate(
            watches=has_role(ANNOTATOR, Membership.WATCHING, at="experiment"),
            may_run=has_role(ANNOTATOR, Membership.EDITING, at="experiment"),
        )
        .select_related("experiment")
        # Every viewer asks every two seconds, and mostly has seen the content.
        .only("promise", "made_at", "watched_at", *_OF_ITS_EXPERIMENT)
    )


_WITH_RIGHTS = Prepared(_with_rights)


def poll(*, experiment_id: int, page: str, by: User) -> WithAnnotations[DashboardPage, Rights] | None:
    """The page without its content, and the rights of somebody who watches it, in one read.

    ``None`` where it is to be computed, or not for them.
    """
    if settings.DASHBOARD_SECONDS == 0:
        return None
    found = _WITH_RIGHTS(experiment=experiment_id, page=page, annotator=by.pk)
    if not found:
        return None
    row: WithAnnotations[DashboardPage, Rights] = found[0]
    administers = by.is_superuser and row.experiment.trial_of_id is None
    row.may_run |= administers
    if not (row.watches or administers) or is_old(row) or row.promise != _promise(row.experiment):
        return None
    _note_look(row)
    return row


def find(experiment: Experiment, page: str) -> DashboardPage | None:
    """The page as it was last computed; ``None`` where it was not, or promises something else."""
    if settings.DASHBOARD_SECONDS == 0:
        return None
    row = DashboardPage.objects.filter(experiment=experiment, page=page).defer("html").first()
    if row is None or row.promise != _promise(experiment):
        return None
    row.experiment = experiment
    return row


def is_old(row: DashboardPage) -> bool:
    """True if no worker has computed the page again for long."""
    return row.made_at < _ago(_OLDEST_AGE)


def refresh(*, experiment_id: int, page: str, make: Make) -> None:
    """Compute a page of an experiment again if somebody watches it."""
    watched = DashboardPage.objects.filter(
        experiment=experiment_id, page=page, watched_at__gt=_ago(_OLDEST_AGE), due_at__lte=clock.now()
    )
    row = watched.defer("content", "html").select_related("experiment").first()
    if row is not None and _begins(row):
        _computed(row.experiment, page, make)


def forget_pages(**of: Experiment) -> None:
    """Delete all pages, or those of an ``experiment``, as a name in them is no longer true."""
    DashboardPage.objects.filter(**of).delete()


def _ago(age: float) -> datetime:
    return clock.now() - timedelta(seconds=age * settings.DASHBOARD_SECONDS)


def _begins(row: DashboardPage) -> bool:
    """True if the caller is to compute the page, and nobody else."""
    due = DashboardPage.objects.filter(pk=row.pk, due_at__lte=clock.now())
    return due.update(due_at=clock.now() + _LONGEST) == 1


def _computed(experiment: Experiment, page: str, make: Make, **seen: datetime) -> DashboardPage:
    started, began = clock.now(), time.thread_time()
    content = json.loads(json.dumps(make(experiment), default=_plain))
    html = content.pop("html", "")
    # Not the time that passed: on a busy machine it is no measure of the work.
    took = time.thread_time() - began
    now = clock.now()
    least = timedelta(seconds=_LEAST_AGE * settings.DASHBOARD_SECONDS)
    values: dict[str, Any] = {
        "promise": _promise(experiment),
        "content": content,
        "html": html,
        "made_at": started,
        "due_at": max(started + least, now + timedelta(seconds=_REST * took)),
        **seen,
    }
    if settings.DASHBOARD_SECONDS:
        DashboardPage.objects.update_or_create(experiment=experiment, page=page, defaults=values)
    return DashboardPage(experiment=experiment, page=page, **values)


def _promise(experiment: Experiment) -> list[Any]:
    return [getattr(experiment, name) for name in _PROMISED]


def _plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses as objects, numbers of numpy, and everything else as text."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.item() if hasattr(value, "item") else str(value)
