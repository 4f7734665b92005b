"""The evidence of an experiment: a fold over the numbered events of its log.

Pages, files and messages read `shown`, computations `load`. Only the planner, which stores what it has
folded, starts from `stored` itself; an audit calls `replay`. All go through `observe`, so they agree bit by
bit.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from engine.core import Design
from engine.domain.claim_settings import Rules
from engine.domain.showings import Kind, Logged, follow
from engine.models import Evidence, Experiment, Gate, Policy, ShowingEvent
from engine.selectors.counts import wins_matrix
from engine.selectors.policies import count_at_first, labelled_space, policy_names

# Beyond all rows.
_NEVER = 2**63


@dataclass(frozen=True)
class Observed:
    """A design that went through the first events of an experiment, and the number of the last one."""

    design: Design
    last: int = 0


def load(experiment: Experiment, *, late: bool = False) -> Observed:
    """The present evidence: what is stored, and the events since.

    Nobody waits for a replay: while `evidence_stale` says that one runs, this is the present counts alone.

    ``late``: with everything that came after the decision, for estimates.
    """
    if experiment.evidence_stale:
        return Observed(_design(experiment, wins_matrix(experiment)))
    observed = stored(experiment)
    if experiment.state == Experiment.State.CONCLUDED and not late:
        return observed
    n_known = observed.design.n_policies
    new = logged(not_in_the_evidence(experiment.pk))
    observed = observe(observed, new, late=late, runs_on=runs_on_to(experiment))
    if observed.design.n_policies > n_known:
        # Who has just joined has a name by now.
        names = policy_names(experiment)[: observed.design.n_policies]
        observed.design.labels = tuple(each.name for each in names)
    return observed


def shown(experiment: Experiment) -> Observed:
    """The evidence that all pages, files and messages show: as the planner has left it, so that they agree.

    While `evidence_stale` says that it is recomputed, it is the present counts alone.
    """
    return load(experiment) if experiment.evidence_stale else stored(experiment)


def stored(experiment: Experiment) -> Observed:
    """The evidence as the planner has left it."""
    row = Evidence.objects.filter(experiment=experiment).first()
    if row is None or not row.last:
        return Observed(_design(experiment))
    later = ShowingEvent.objects.filter(
        Q(number__isnull=True) | Q(number__gt=row.last),
        experiment=experiment,
        comparison__isnull=True,
        kind=Kind.JOINED,
    )
    n_policies = experiment.policies.exclude(pk__in=later.values("policy")).count()
    wins = np.zeros((n_policies, n_policies))
    for i, j, won in row.wins:
        wins[i, j] = won
    return Observed(_design(experiment, wins, row.progress), row.last)


def replay(
    experiment: Experiment,
    events: Sequence[Logged] | None = None,
    *,
    each: Callable[[Observed, Logged], bool] = lambda *_: True,
) -> Observed:
    """The evidence of these events, by default of all that have a part in it, from nothing."""
    events = logged_so_far(experiment) if events is None else events
    return observe(Observed(_design(experiment)), events, each=each, runs_on=runs_on_to(experiment))


def observe(
    start: Observed,
    events: Sequence[Logged],
    *,
    each: Callable[[Observed, Logged], bool] = lambda *_: True,
    late: bool = False,
    runs_on: int = 0,
) -> Observed:
    """Have a design go through events in their order, until it stops; with ``late``, to the last one.

    It does not stop before the event of the row ``runs_on``.

    ``each`` is called after each of them; if it returns ``False``, no more follow.
    """
    _recall(start, events)
    observed = start
    stopped = observed.design.stopped
    for event in events:
        if stopped and not late and event.row > runs_on:
            break
        follow(observed.design, event)
        observed = Observed(observed.design, observed.last + 1)
        # A showing that begins counts against every claim, and decides nothing.
        stopped = event.kind != Kind.BEGUN and observed.design.stopped
        if not each(observed, event):
            break
    return observed


def _recall(observed: Observed, events: Sequence[Logged]) -> None:
    """Make ended showings known to a stored design, as far as these events change them."""
    changed = {event.comparison for event in events if event.kind in {Kind.REOPENED, Kind.REVISED}}
    changed.difference_update(observed.design.open_showings)
    if not changed or not observed.last:
        return
    known = ShowingEvent.objects.filter(
        comparison__in=changed,
        number__lte=observed.last,
        showing__isnull=False,
    )
    for comparison, showing in known.order_by("number").values_list("comparison_id", "showing"):
        observed.design.remember(comparison, showing or {})


def _design(
    experiment: Experiment, wins: Any | None = None, progress: dict[str, Any] | None = None
) -> Design:
    """The design with these summed outcomes, or before the first one."""
    n_policies = count_at_first(experiment) if wins is None else len(wins)
    space, labels = labelled_space(experiment, n_policies)
    settings = design_settings(experiment)
    if wins is None:
        return Design(space=space, labels=labels, **settings)
    return Design.from_counts(space, wins, progress=progress, labels=labels, **settings)


def design_seed(experiment: Experiment) -> list[int]:
    """The seed of the next picks: a function of the experiment and of how many it has planned."""
    return [experiment.seed, experiment.planned_count]


def design_settings(experiment: Experiment) -> dict[str, Any]:
    """The settings of the experiment as its design takes them."""
    own = {"seed": design_seed(experiment), "budget": experiment.budget}
    return Rules.of(experiment).design() | own


def in_the_evidence(experiment: Experiment, after: int = 0) -> QuerySet[ShowingEvent]:
    """The events of the evidence that come after this number, in their order."""
    return ShowingEvent.objects.filter(experiment=experiment, number__gt=after).order_by("number")


def not_in_the_evidence(experiment_id: int) -> QuerySet[ShowingEvent]:
    """The events that the planner has not numbered yet.

    In the order in which they were written. An event that is committed late comes after others that were
    written after it: nobody could see it meanwhile.
    """
    return ShowingEvent.objects.filter(experiment=experiment_id, number__isnull=True).order_by("pk")


def logged(events: QuerySet[ShowingEvent]) -> list[Logged]:
    """These events, as `observe` takes them."""
    rows = events.annotate(
        shown=Coalesce("comparison", 0),
        i=Coalesce("comparison__policy_i__index", "policy__index", 0),
        j=Coalesce("comparison__policy_j__index", "policy__parent__index", "policy__index", 0),
    ).values_list("pk", "shown", "i", "j", "kind", "outcome", "least", "most", "policy_id")
    found = [Logged(*row) for row in rows]
    joined = [event.policy for event in found if event.policy and event.kind == Kind.JOINED]
    levels: defaultdict[int | None, list[str]] = defaultdict(list)
    if joined:
        of_joined = Policy.objects.filter(pk__in=joined).order_by("levels__factor__position")
        for policy, level in of_joined.values_list("pk", "levels__name"):
            levels[policy].append(level)
    return [event._replace(levels=tuple(levels[event.policy])) for event in found] if joined else found


def logged_so_far(experiment: Experiment) -> list[Logged]:
    """All events that have a part in the evidence: after the conclusion no more of them."""
    events = logged(in_the_evidence(experiment))
    if experiment.state != Experiment.State.CONCLUDED:
        events += logged(not_in_the_evidence(experiment.pk))
    return events


def runs_on_to(experiment: Experiment) -> int:
    """The row of the event before which the design does not stop, whatever it has established.

    What came between a conclusion and the next arrival, or the next improvement, counts from there on. In the
    challenge of a gate another claim may be named first, and decides nothing.
    """
    if Gate.objects.filter(challenge=experiment).exists():
        return _NEVER
    # By the index of the few events that have no comparison.
    events = ShowingEvent.objects.filter(experiment=experiment, comparison__isnull=True)
    own = events.exclude(kind=Kind.RETIRED)
    return own.order_by("-pk").values_list("pk", flat=True).first() or 0


def counted_in(observed: Observed, at: str) -> Q:
    """The rows whose comparison has its outcome in this evidence; ``at``: the path to the comparison."""
    told = ShowingEvent.objects.filter(comparison=OuterRef(at), kind=Kind.TOLD, number__lte=observed.last)
    return Q(Exists(told))


def state_of(observed: Observed) -> dict[str, Any]:
    """The evidence as `Evidence` stores it."""
    wins, progress = observed.design.wins, observed.design.progress
    # In the order of their numbers: a design that was loaded knows them in another order.
    progress["showings"] = sorted(progress["showings"], key=lambda showing: showing[0])
    return {
        "last": observed.last,
        "wins": [[int(i), int(j), float(wins[i, j])] for i, j in np.argwhere(wins)],
        "progress": progress,
    }
