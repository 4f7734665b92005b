"""The evidence of an experiment: the one place that numbers the events of its log and goes through them.

Under the experiment's lock, and in slices: after a change of the rules it starts again from the first event,
and other experiments need not wait for all of it.
"""

import itertools
import math
import time
from dataclasses import dataclass

from django.db import transaction

from engine.domain.showings import Kind, Logged
from engine.models import Evidence, Experiment, ShowingEvent, Snapshot
from engine.selectors import designs
from engine.selectors.designs import Observed
from engine.selectors.snapshots import latest_snapshot
from engine.services.bulk import save_all
from engine.services.conclusions import keep_conclusions
from engine.services.locks import locked_experiment
from engine.services.showings import settle_assignments
from engine.services.snapshots import write_snapshot

# The most events and the longest time of a slice.
_MOST_EVENTS = 2000
_MOST_SECONDS = 2.0


@dataclass(frozen=True)
class Folded:
    """A slice of an experiment's evidence.

    Attributes
    ----------
    observed
        The evidence at its end.
    complete
        No event is left that has a part in it.
    changed
        It had other events than those that begin a showing.
    """

    observed: Observed
    complete: bool
    changed: bool


def start_again(*, experiment: Experiment) -> None:
    """Have the evidence of a locked experiment go through its events anew, as its rules are others now."""
    Evidence.objects.filter(experiment=experiment).delete()
    mark_stale(experiment=experiment)


def mark_stale(*, experiment: Experiment) -> None:
    """Mark the evidence of a locked experiment as too far behind for a page to wait for it."""
    experiment.evidence_stale = True
    experiment.save(update_fields=["evidence_stale"])


def fold(*, experiment: Experiment, seconds: float = _MOST_SECONDS) -> Folded:
    """Play the next events into the evidence of a locked experiment, and store it."""
    start = designs.stored(experiment)
    events = designs.logged(designs.in_the_evidence(experiment, start.last)[:_MOST_EVENTS])
    new = designs.not_in_the_evidence(experiment.pk)
    events += designs.logged(new[: _MOST_EVENTS - len(events)])
    deadline = time.monotonic() + seconds
    numbered: list[ShowingEvent] = []
    numbers = itertools.count(start.last + 1)

    def store(observed: Observed, event: Logged) -> bool:
        ended = event.comparison and event.comparison not in observed.design.open_showings
        showing = observed.design.showing(event.comparison) if ended else None
        row = ShowingEvent(pk=event.row, experiment=experiment, kind=event.kind)
        row.comparison_id, row.policy_id = event.comparison or None, event.policy
        row.number, row.showing = next(numbers), showing
        numbered.append(row)
        return time.monotonic() < deadline

    runs_on = designs.runs_on_to(experiment)
    observed = designs.observe(start, events, each=store, runs_on=runs_on)
    if numbered:
        save_all(ShowingEvent, numbered, ["number", "showing"])
        Evidence.objects.update_or_create(experiment=experiment, defaults=designs.state_of(observed))
    left = events[len(numbered) :]
    over = bool(left) and observed.design.stopped and all(event.row > runs_on for event in left)
    complete = over or (not left and len(events) < _MOST_EVENTS)
    changed = any(event.kind != Kind.BEGUN for event in events[: len(numbered)])
    return Folded(observed, complete, changed)


def catch_up(*, experiment_id: int) -> None:
    """Bring the evidence up to date, slice by slice, so that nobody waits for the lock for long."""
    complete = False
    while not complete:
        with transaction.atomic():
            complete = fold(experiment=locked_experiment(experiment_id)).complete


@transaction.atomic
def settle(*, experiment: Experiment) -> Observed:
    """Bring the evidence of a locked experiment up to date with all that people did, in the caller's
    transaction.
    """
    settle_assignments(experiment=experiment)
    while True:
        folded = fold(experiment=experiment, seconds=math.inf)
        note(experiment=experiment, folded=folded)
        if folded.complete:
            return folded.observed


def note(*, experiment: Experiment, folded: Folded) -> Snapshot | None:
    """Add a point to the race of a locked experiment where its evidence has changed; returns the last one."""
    latest = latest_snapshot(experiment)
    if folded.complete and (folded.changed or experiment.evidence_stale):
        latest = write_snapshot(experiment=experiment, observed=folded.observed)
        keep_conclusions(experiment=experiment, observed=folded.observed)
    return latest
