"""The replays of an experiment, which an analysis worker computes: they are too slow for a page.

The work is claimed (:mod:`engine.services.worker_holds`) and done outside of any transaction, so it holds no
lock while clicks come in. Its progress is stored now and then: pages show it, and if the worker is killed
another one continues from there.
"""

import logging
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import Count, QuerySet

from engine.core import Claim, Design
from engine.core.claims import NOBODY
from engine.core.robustness import Replays, replay, summed_wins
from engine.domain import claim_sentences
from engine.domain.claim_settings import Rules
from engine.models import Examination, Experiment, Judgment, clock
from engine.selectors import counts, designs, replays
from engine.selectors.policies import count_at_first, labelled_space, space_of
from engine.selectors.replays import Arrival, Told
from engine.services import worker_holds

logger = logging.getLogger(__name__)

# Replays store their progress this often. After a turn of this length the work of another experiment comes
# first.
_CHECKPOINT_SECONDS = 2.0
_TURN_SECONDS = 20.0
# Each annotator costs a replay, so only those with the most judgments are left out in turn.
_MOST_ANNOTATORS = 30


@transaction.atomic
def request_replays(*, experiment_id: int) -> Examination:
    """Ask for the decision without each annotator. Asking again while it is computed changes nothing."""
    examination, _ = Examination.objects.get_or_create(experiment_id=experiment_id)
    examination = Examination.objects.select_for_update(no_key=True).get(pk=examination.pk)
    if examination.replays_wanted_at is None:
        examination.replays_wanted_at = clock.now()
        examination.replays = {}
        examination.save(update_fields=["replays_wanted_at", "replays"])
    return examination


def outdate(*, experiment: Experiment) -> None:
    """Drop results for other settings or judgments; work that is under way loses its claim, and stops."""
    examination = Examination.objects.filter(experiment=experiment)
    worker_holds.release(examination, replays={}, findings={})


def examine_next(*, worker: str = "", tick: Callable[[], None] = lambda: None) -> bool:
    """Do the next piece of work of any experiment; returns whether there was one.

    Work that fails keeps its claim until the deadline, so that the other experiments have their turn. Then it
    is tried again.
    """
    for experiment_id in to_examine():
        try:
            if examine(experiment_id=experiment_id, worker=worker, tick=tick):
                return True
        except worker_holds.StoppedError:
            raise
        except Exception:
            logger.exception("The analysis of experiment %s failed; it is tried again later", experiment_id)
    return False


def examine(*, experiment_id: int, worker: str = "", tick: Callable[[], None] = lambda: None) -> bool:
    """Do a turn of an experiment's replays.

    Returns whether there was any that nobody else was doing. ``tick`` is called again and again meanwhile; an
    exception from it interrupts the work, which keeps what it has.
    """
    row = Examination.objects.filter(experiment_id=experiment_id, replays_wanted_at__isnull=False)
    claim = worker_holds.take(row, seconds=settings.CLAIM_SECONDS, by=worker)
    mine = worker_holds.held(row, claim)
    examination = mine.select_related("experiment").first()
    if examination is None:
        return False
    experiment = examination.experiment
    changes: dict[str, Any] = {}
    keep = worker_holds.keeper(row, claim, seconds=settings.CLAIM_SECONDS, tick=tick)
    try:
        changes = _replays(experiment, examination, mine, keep)
    except worker_holds.ClaimLostError:
        logger.info("The analysis of experiment %s is outdated, and was put down", experiment_id)
    except worker_holds.StoppedError:
        worker_holds.release(mine)
        raise
    worker_holds.release(mine, **changes)
    return True


def to_examine() -> list[int]:
    """The numbers of the experiments with something left to compute."""
    wanted = Examination.objects.filter(replays_wanted_at__isnull=False).order_by("replays_wanted_at", "pk")
    return list(wanted.values_list("experiment_id", flat=True))


@dataclass(frozen=True)
class _Material:
    """The material of the replays: the judgments that stood when the first turn began.

    Attributes
    ----------
    judgments
        These judgments.
    last_judgment, last_event, n_judgments
        The numbers of the last one and of the last event of the evidence, and how many judgments there are.
    annotators
        The number, the name and the number of judgments of each annotator to leave out.
    n_asked, n_judged
        How many comparisons the last sequence tells, and how many have an outcome.
    told
        Outcomes without each annotator; last, everybody's in the order of asking.
        None is longer than the budget, where a live run ends too.
    """

    judgments: QuerySet[Judgment]
    last_judgment: int
    last_event: int
    n_judgments: int
    annotators: list[tuple[int, str, int]]
    n_asked: int
    n_judged: int
    told: list[Told]

    @property
    def sequences(self) -> list[list[tuple[int, int, float | None]]]:
        """Outcomes ``(i, j, D)`` of each replay."""
        return [each.outcomes for each in self.told]

    @property
    def key(self) -> dict[str, Any]:
        """The part of it that stored progress is about."""
        return {
            "last_judgment": self.last_judgment,
            "last_event": self.last_event,
            "n_judgments": self.n_judgments,
            "annotators": self.annotators,
            "n_asked": self.n_asked,
        }

    @property
    def total(self) -> int:
        """Outcomes of the longest sequence."""
        return max(map(len, self.sequences), default=0)


def _replays(
    experiment: Experiment,
    examination: Examination,
    mine: QuerySet[Examination],
    keep: Callable[[], None],
) -> dict[str, Any]:
    """Do a turn of the replays.

    It continues from the last turn, or starts anew if judgments were taken back in between.
    """
    material, so_far = _material(experiment, examination.replays)
    if lived := replays.arrivals(experiment, material.last_event):
        return _replays_of_life(experiment, material, so_far, lived, mine, keep)
    reached = _reached(so_far)
    space = space_of(experiment)
    rules = Rules.of(experiment)
    turn_ends = time.monotonic() + _TURN_SECONDS
    while True:
        checkpoint = time.monotonic() + _CHECKPOINT_SECONDS

        def go_on(step: int, checkpoint: float = checkpoint) -> bool:
            keep()
            return time.monotonic() < checkpoint

        reached = replay(space, material.sequences, start=reached, go_on=go_on, **rules.replay())
        if reached.step >= material.total:
            return {
                "replays_wanted_at": None,
                "replays": {},
                "findings": _findings(material, _found(experiment, material, reached, rules.claim)),
            }
        stored = mine.update(replays=_stored(material, reached))
        if not stored or material.judgments.count() != material.n_judgments:
            raise worker_holds.ClaimLostError
        if time.monotonic() >= turn_ends:
            return {}


def _replays_of_life(  # noqa: PLR0917 - they belong to one turn
    experiment: Experiment,
    material: _Material,
    so_far: dict[str, Any],
    lived: Sequence[Arrival],
    mine: QuerySet[Examination],
    keep: Callable[[], None],
) -> dict[str, Any]:
    """Do a turn of the replays where policies joined or retired, or stages began: one after the other.

    Each of these events comes where it came: after the outcomes before it that a replay has.
    """
    found = list(so_far.get("found", ()))
    events = designs.stored(experiment).design.events
    turn_ends = time.monotonic() + _TURN_SECONDS
    n_found = len(material.told) - 1
    for n, told in list(enumerate(material.told))[len(found) :]:
        # The last one has the order of planning.
        marks = [each.planned if n == n_found else each.number for each in lived]
        places = [bisect(told.places, mark) for mark in marks]
        placed = [event | {"place": place} for event, place in zip(events, places, strict=True)]
        found.append(_said(_design_told(experiment, told.outcomes, placed, keep)))
        progress = material.key | {"step": len(found), "total": len(material.told), "found": found}
        if not mine.update(replays=progress) or material.judgments.count() != material.n_judgments:
            raise worker_holds.ClaimLostError
        if time.monotonic() >= turn_ends and len(found) < len(material.told):
            return {}
    return {"replays_wanted_at": None, "replays": {}, "findings": _findings(material, found)}


def _design_told(
    experiment: Experiment,
    outcomes: Sequence[tuple[int, int, float | None]],
    events: Sequence[dict[str, Any]],
    keep: Callable[[], None],
) -> Design:
    """The design of an experiment that is told these outcomes, with its events among them, until it stops."""
    space, labels = labelled_space(experiment, count_at_first(experiment))
    design = Design(space, labels=labels, **designs.design_settings(experiment))
    waiting = deque(events)
    for place in range(len(outcomes) + 1):
        while waiting and waiting[0]["place"] == place:
            design.happen(waiting.popleft())
        # What came between a conclusion and the next arrival counts from there on.
        if place == len(outcomes) or (design.stopped and not waiting):
            break
        design.tell(*outcomes[place])
        keep()
    return design


def _material(experiment: Experiment, so_far: dict[str, Any]) -> tuple[_Material, dict[str, Any]]:
    """The material, and the progress of earlier turns; ``so_far`` is that progress as stored."""
    standing = counts.standing_judgments(experiment.pk)
    last = so_far.get("last_judgment") or (standing.order_by("pk").values_list("pk", flat=True).last() or 0)
    judgments = standing.filter(pk__lte=last)
    n_judgments = judgments.count()
    if so_far.get("n_judgments") != n_judgments:
        so_far = {}
    last_event = so_far.get("last_event") or designs.stored(experiment).last
    annotators = so_far.get("annotators") or _annotators(judgments)
    without = replays.outcomes_without(experiment, [pk for pk, _, _ in annotators], last_event)
    asked = replays.outcomes_as_asked(experiment, last_event)
    # Keep the list: a comparison discarded between two turns would make it longer.
    in_order = asked.told.first(so_far.get("n_asked", experiment.budget))
    material = _Material(
        judgments,
        last,
        last_event,
        n_judgments,
        annotators,
        n_asked=len(in_order.outcomes),
        n_judged=asked.n_judged,
        told=[*(each.first(experiment.budget) for each in without.values()), in_order],
    )
    return material, so_far


def _stored(material: _Material, reached: Replays) -> dict[str, Any]:
    """The progress of the replays, as JSON keeps it; :func:`_reached` reads it."""
    return material.key | {
        "step": reached.step,
        "told": reached.told.tolist(),
        "total": material.total,
        "peak_evidence": reached.peak_evidence.tolist(),
        "named": None if reached.named is None else reached.named.tolist(),
        "streams": reached.streams,
    }


def _reached(so_far: dict[str, Any]) -> Replays | None:
    """The replays as they were stored; ``None`` where none were."""
    if not so_far:
        return None
    named = so_far["named"]
    return Replays(
        so_far["step"],
        np.array(so_far["told"]),
        np.array(so_far["peak_evidence"]),
        None if named is None else np.array(named),
        so_far["streams"],
    )


def _findings(material: _Material, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The decision without each annotator and that in the order of asking, for a page."""
    *without, as_asked = found
    return {
        "n_judgments": material.n_judgments,
        "at": clock.now().isoformat(),
        "rows": [
            {"annotator": name, "judgments": n} | finding
            for (_, name, n), finding in zip(material.annotators, without, strict=True)
        ],
        "as_asked": as_asked | {"judged": material.n_judged},
    }


def _found(
    experiment: Experiment, material: _Material, reached: Replays, claim: Claim
) -> list[dict[str, Any]]:
    """The finding of each replay."""
    return [
        _finding(experiment, sequence[: reached.told[run]], _progress(reached, run, claim))
        for run, sequence in enumerate(material.sequences)
    ]


def _annotators(judgments: QuerySet[Judgment]) -> list[tuple[int, str, int]]:
    """Id, name and number of judgments of the annotators who gave the most."""
    rows = judgments.filter(annotator__isnull=False).values_list("annotator_id", "annotator__username")
    return list(rows.annotate(n=Count("pk")).order_by("-n", "annotator_id")[:_MOST_ANNOTATORS])


def _progress(reached: Replays, run: int, claim: Claim) -> dict[str, Any]:
    """The state of one replay, as `Design.from_counts` takes it."""
    named = {}
    if reached.named is not None and reached.named[run] != NOBODY:
        named[claim.value] = int(reached.named[run])
    streams = None if reached.streams is None else reached.streams[run]
    return {"peak_evidence": reached.peak_evidence[run], "named": named, "streams": streams}


def _finding(
    experiment: Experiment,
    sequence: list[tuple[int, int, float | None]],
    progress: dict[str, Any],
) -> dict[str, Any]:
    space, labels = labelled_space(experiment)
    design = Design.from_counts(
        space,
        summed_wins(space.n_policies, sequence),
        progress=progress,
        labels=labels,
        **designs.design_settings(experiment),
    )
    return _said(design)


def _said(design: Design) -> dict[str, Any]:
    decision = design.decision
    return {
        "comparisons": decision.n_comparisons,
        "best": decision.best,
        "reason": str(decision.reason or ""),
        "text": claim_sentences.conclusion(design),
    }
