"""Judgments that were voided by hand, and what the evidence would say if they had never been given."""

import math
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import date

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from engine.core import Design, StopReason
from engine.domain.showings import Fate, Kind, Logged
from engine.models import Comparison, Experiment, JudgmentVoid, User
from engine.selectors import designs
from engine.selectors.designs import Observed
from engine.selectors.policies import winner_name


@dataclass(frozen=True)
class Voided:
    """Judgments of one judge that one person voided on one day, and nobody restored.

    Attributes
    ----------
    of
        ``None`` where no person judged, or nobody knows who.
    judge
        The kind of judge, as pages say it.
    reasons
        The different ones that were given, in the order of the first of each.
    """

    by: User
    of: User | None
    judge: str
    on: date
    judgments: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Named:
    """The policy that the evidence names; empty while it names none.

    Attributes
    ----------
    given
        With the voided judgments as they were given, as every proof has them.
    without
        If they had never been given; ``None`` where that is not known.
    """

    given: str
    without: str | None


def voided_by_hand(experiment: Experiment) -> QuerySet[JudgmentVoid]:
    """The voids by hand that nobody has taken back by a restore."""
    return JudgmentVoid.objects.filter(
        fate=Fate.VOIDED, judgment__comparison__experiment=experiment, judgment__restored_by=None
    )


def groups_of(experiment: Experiment) -> list[Voided]:
    """The voids by hand, by who voided whose judgments on which day; the first of them first."""
    found: defaultdict[tuple[User, User | None, str, date], list[str]] = defaultdict(list)
    for void in voided_by_hand(experiment).select_related("by", "judgment__annotator").order_by("pk"):
        judged, on = void.judgment, timezone.localdate(void.created_at)
        found[void.by, judged.annotator, judged.get_judge_display(), on].append(void.reason)
    return [
        Voided(by, of, judge, on, len(reasons), tuple(dict.fromkeys(reasons)))
        for (by, of, judge, on), reasons in found.items()
    ]


def named(experiment: Experiment, *, seconds: float = math.inf) -> Named:
    """The policy that is named with and without the judgments that were voided by hand.

    ``seconds``: time for replaying the evidence without them.
    """
    if experiment.evidence_stale:
        return Named("", None)
    without = design_without(experiment, seconds=seconds)
    given = winner_name(experiment) or _named(designs.shown(experiment).design)
    return Named(given, None if without is None else _named(without))


def design_without(experiment: Experiment, *, seconds: float = math.inf) -> Design | None:
    """The design that never heard of the judgments that were voided by hand.

    A comparison that others judged too has the outcome of their judgments; any other was never shown.
    ``None`` if the time runs out.
    """
    voided = voided_by_hand(experiment).filter(judgment__comparison=OuterRef("pk"))
    outcomes = dict(
        Comparison.objects.filter(Exists(voided), experiment=experiment).values_list("pk", "outcome")
    )
    others = []
    for event in designs.logged_so_far(experiment):
        outcome = outcomes.get(event.comparison)
        if event.comparison not in outcomes:
            others.append(event)
        elif outcome is not None and event.kind != Kind.REVISED:
            told = event.kind == Kind.TOLD
            others.append(event._replace(outcome=outcome, least=outcome, most=outcome) if told else event)
    deadline, late = time.monotonic() + seconds, False

    def in_time(_: Observed, __: Logged) -> bool:
        nonlocal late
        late = time.monotonic() >= deadline
        return not late

    observed = designs.replay(experiment, others, each=in_time)
    return None if late else observed.design


def _named(design: Design) -> str:
    decision = design.decision
    if decision.reason == StopReason.NO_SINGLE_BEST:
        return "no single best"
    if decision.reason != StopReason.CERTIFIED or decision.best is None:
        return ""
    return design.labels[decision.best]
