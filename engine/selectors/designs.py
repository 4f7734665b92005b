"""The design of an experiment with its evidence, and the snapshots of that evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, Mod, RowNumber

from engine.core import Design, Factorial, StopReason
from engine.core.contradictions import Misfit, misfit, summed_ties
from engine.core.problem import BradleyTerry, Space
from engine.core.robustness import summed_wins
from engine.domain.policy_space import PolicyName, combinations, names_of, policy_space
from engine.domain.rules import Rules
from engine.domain.showings import Kind, Logged, follow
from engine.models import Evidence, Experiment, Factor, ShowingEvent, Snapshot
from engine.selectors.counts import in_flight_matrix, wins_matrix


def space(experiment: Experiment) -> Space:
    """The experiment's assumption about the preference probabilities; policy i is its row i."""
    return labelled_space(experiment)[0]


def labelled_space(experiment: Experiment) -> tuple[Space, list[str]]:
    """The space of `space`, and the names of its policies in sentences."""
    levels = _levels(experiment)
    policies = combinations(levels, experiment.excluded)
    labels = [each.name for each in names_of(levels, policies)]
    return policy_space(experiment.space, levels, policies), labels


def policy_names(experiment: Experiment) -> list[PolicyName]:
    """The names of the policies, by index."""
    return names_in([experiment])[experiment.pk]


def levels_told(experiment: Experiment, index: int) -> list[tuple[str, str]]:
    """The factors that vary, each with its level in the policy of this index."""
    levels = policy_names(experiment)[index].levels
    factors = _levels(experiment).items()
    return [
        (factor, level) for (factor, choices), level in zip(factors, levels, strict=True) if len(choices) > 1
    ]


def winner_name(experiment: Experiment) -> str:
    """The name of the policy that has won; empty where none has."""
    return policy_names(experiment)[experiment.winner.index].name if experiment.winner else ""


def names_in(experiments: Collection[Experiment]) -> dict[int, list[PolicyName]]:
    """The policies' names of each experiment by its id, in as many queries for one as for many."""
    levels = _levels_in(experiments)
    return {
        experiment.pk: names_of(
            levels[experiment.pk], combinations(levels[experiment.pk], experiment.excluded)
        )
        for experiment in experiments
    }


def _levels(experiment: Experiment) -> dict[str, list[str]]:
    return _levels_in([experiment])[experiment.pk]


def _levels_in(experiments: Collection[Experiment]) -> dict[int, dict[str, list[str]]]:
    levels: dict[int, dict[str, list[str]]] = {experiment.pk: {} for experiment in experiments}
    rows = Factor.objects.filter(experiment__in=levels).order_by("position", "levels__position")
    for experiment_id, factor, level in rows.values_list("experiment_id", "name", "levels__name"):
        # A factor of a draft may have no level yet.
        levels[experiment_id].setdefault(factor, []).extend([] if level is None else [level])
    return levels


def factorial_space(experiment: Experiment) -> Factorial | None:
    """The Bradley-Terry space of the levels; ``None`` if the policies do not separate the levels."""
    levels = _levels(experiment)
    try:
        factorial = policy_space("factorial", levels, combinations(levels, experiment.excluded))
    except ValueError:
        return None
    return factorial if isinstance(factorial, Factorial) else None


def design_seed(experiment: Experiment) -> list[int]:
    """The seed of the next picks: a function of the experiment and of how many it has planned."""
    return [experiment.seed, experiment.planned_count]


def design_settings(experiment: Experiment) -> dict[str, Any]:
    """The settings of the experiment as its design takes them."""
    own = {"seed": design_seed(experiment), "budget": experiment.budget}
    return Rules.of(experiment).design() | own


@dataclass(frozen=True)
class Observed:
    """A design that went through the first events of an experiment, and the number of the last one.

    Evidence is a fold over the numbered events of the log (:class:`engine.models.ShowingEvent`), up to the
    one with which the experiment stops. The planner, pages and a replay all call `observe`, so that they
    agree bit by bit.
    """

    design: Design
    last: int = 0


def observe(
    start: Observed, events: Iterable[Logged], *, each: Callable[[Observed, Logged], bool] = lambda *_: True
) -> Observed:
    """Have a design go through events in their order, until it stops. Reads nothing from the database.

    ``each`` is called after each of them; if it returns ``False``, no more follow.
    """
    observed = start
    stopped = observed.design.stopped
    for event in events:
        if stopped:
            break
        follow(observed.design, event)
        observed = Observed(observed.design, observed.last + 1)
        # A showing that begins counts against every claim, and decides nothing.
        stopped = event.kind != Kind.BEGUN and observed.design.stopped
        if not each(observed, event):
            break
    return observed


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
    rows = events.values_list(
        "pk", "comparison_id", "comparison__policy_i__index", "comparison__policy_j__index",
        "kind", "outcome", "least", "most",
    )  # fmt: skip
    return [Logged(*row) for row in rows]


def new_design(experiment: Experiment) -> Observed:
    """The design before the first event."""
    of, labels = labelled_space(experiment)
    return Observed(Design(space=of, labels=labels, **design_settings(experiment)))


def stored(experiment: Experiment) -> Observed:
    """The evidence as the planner has left it."""
    row = Evidence.objects.filter(experiment=experiment).first()
    if row is None or not row.last:
        return new_design(experiment)
    of, labels = labelled_space(experiment)
    wins = np.zeros((of.n_policies, of.n_policies))
    for i, j, won in row.wins:
        wins[i, j] = won
    design = Design.from_counts(of, wins, progress=row.progress, labels=labels, **design_settings(experiment))
    return Observed(design, row.last)


def recall(observed: Observed, events: Iterable[Logged]) -> None:
    """Make ended showings known to a stored design, as far as these events change them."""
    changed = {event.comparison for event in events if event.kind in {Kind.REOPENED, Kind.REVISED}}
    changed.difference_update(observed.design.open_showings)
    if not changed:
        return
    known = ShowingEvent.objects.filter(
        comparison__in=changed,
        number__lte=observed.last,
        showing__isnull=False,
    )
    for comparison, showing in known.order_by("number").values_list("comparison_id", "showing"):
        observed.design.remember(comparison, showing or {})


def design(experiment: Experiment) -> Design:
    """The experiment's design with all evidence, and with the comparisons that are in flight."""
    return with_in_flight(experiment, observed(experiment).design)


def with_in_flight(experiment: Experiment, design: Design) -> Design:
    """The same design, told of the comparisons whose outcome is still to come and ready to choose pairs."""
    design.resume(in_flight_matrix(experiment), design_seed(experiment))
    return design


def with_late(experiment: Experiment, design: Design) -> Design:
    """The same design with all that came after it had stopped, for estimates."""
    if experiment.state != Experiment.State.CONCLUDED and not design.stopped:
        return design
    late = logged(not_in_the_evidence(experiment.pk))
    if not late:
        return design
    observed = stored(experiment)
    recall(observed, late)
    for event in late:
        follow(observed.design, event)
    return observed.design


def observed(experiment: Experiment) -> Observed:
    """The present evidence: what is stored and the events since, or else a replay."""
    return continued(experiment) or replayed(experiment)


def continued(experiment: Experiment) -> Observed | None:
    """The stored evidence and the events since; ``None`` while it is being recomputed.

    What is judged after the conclusion has no part in the finding.
    """
    if experiment.evidence_stale:
        return None
    observed = stored(experiment)
    if experiment.state == Experiment.State.CONCLUDED:
        return observed
    events = logged(not_in_the_evidence(experiment.pk))
    recall(observed, events)
    return observe(observed, events)


def stored_if_current(experiment: Experiment) -> Observed | None:
    """The evidence as it is stored; ``None`` while it is being recomputed."""
    return None if experiment.evidence_stale else stored(experiment)


def known_design(experiment: Experiment) -> Design:
    """The design for a page. A page never waits for a replay: meanwhile it shows the counts alone."""
    return (continued(experiment) or counted(experiment)).design


def counted(experiment: Experiment) -> Observed:
    """The evidence of the present counts alone, until a replay is done."""
    of, labels = labelled_space(experiment)
    wins = wins_matrix(experiment)
    return Observed(Design.from_counts(of, wins, labels=labels, **design_settings(experiment)))


def replayed(experiment: Experiment) -> Observed:
    """The evidence of all events, from nothing."""
    events = logged(in_the_evidence(experiment))
    if experiment.state != Experiment.State.CONCLUDED:
        events += logged(not_in_the_evidence(experiment.pk))
    return observe(new_design(experiment), events)


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


def n_standing(design: Design) -> int:
    """The number of comparisons with an outcome that stands: none that were voided."""
    left_out: float = sum(won for _, _, won in design.progress["left_out"])
    return design.n_comparisons - round(left_out)


def counted_in(observed: Observed, at: str) -> Q:
    """The rows whose comparison has its outcome in this evidence; ``at``: the path to the comparison."""
    told = ShowingEvent.objects.filter(comparison=OuterRef(at), kind=Kind.TOLD, number__lte=observed.last)
    return Q(Exists(told))


def model_test(experiment: Experiment, observed: Observed) -> Misfit | None:
    """The test of the assumption that levels add up, on the comparisons of this evidence.

    ``None`` where there is nothing to test. Also where a claim that holds, or the finding that none is best,
    does not rest on that assumption. It takes up to a few tenths of a second.
    """
    design = observed.design
    of, decision = design.space, design.decision
    none_best = decision.claim is not None and decision.reason == StopReason.NO_SINGLE_BEST
    wanted = none_best or any(state.holds and state.assumes_model for state in decision.claims)
    if not isinstance(of, BradleyTerry) or not wanted:
        return None
    judged = experiment.comparisons.filter(counted_in(observed, "pk"), outcome__isnull=False)
    rows = judged.values_list("policy_i__index", "policy_j__index", "outcome")
    outcomes = [(i, j, outcome) for i, j, outcome in rows if outcome is not None]
    return misfit(of, summed_wins(of.n_policies, outcomes), summed_ties(of.n_policies, outcomes))


def latest_snapshot(experiment: Experiment) -> Snapshot | None:
    """The newest evidence that was written down, with its leader; ``None`` before the first."""
    return experiment.snapshots.select_related("best").order_by("-pk").first()


def latest_snapshots(experiments: Collection[Experiment]) -> dict[int, Snapshot]:
    """The newest snapshot of each experiment by its id, in one query; without the large evidence."""
    newest = Snapshot.objects.filter(experiment=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    asked = Experiment.objects.filter(pk__in=[each.pk for each in experiments]).order_by()
    found = Snapshot.objects.filter(pk__in=asked.values_list(Subquery(newest))).select_related("best")
    return {each.experiment_id: each for each in found.defer("evidence", "peak_evidence")}


def paused_and_behind() -> list[int]:
    """The keys of paused experiments whose evidence is stale, or lacks judgments, as of pairs that were on a
    screen. Evidence that has come to a decision ends with it and lacks none.
    """
    latest = Snapshot.objects.filter(experiment=OuterRef("pk")).order_by("-pk")
    new = ShowingEvent.objects.filter(experiment=OuterRef("pk"), number__isnull=True)
    paused = Experiment.objects.filter(state=Experiment.State.PAUSED).annotate(
        reason=Coalesce(Subquery(latest.values("reason")[:1]), Value("")),
    )
    behind = paused.filter(Q(evidence_stale=True) | Q(Exists(new), reason=""))
    return list(behind.order_by("pk").values_list("pk", flat=True))


class RacePoint(NamedTuple):
    """The number of rivals that were open after some number of comparisons."""

    comparisons: int
    open_rivals: int


def races(experiments: Collection[Experiment], most: int) -> dict[int, list[RacePoint]]:
    """The open rivals of each experiment, by its id: at most ``most`` points, evenly spread, the first and
    the last among them. Three queries for all.
    """
    found: dict[int, list[RacePoint]] = {each.pk: [] for each in experiments}
    shown = _evenly_spread(Snapshot.objects.filter(experiment__in=found), most)
    for experiment_id, *point in shown.values_list("experiment_id", "comparisons", "open_rivals"):
        found[experiment_id].append(RacePoint(*point))
    return found


def race(experiment: Experiment, most: int = 200) -> list[Snapshot]:
    """The evidence race: at most ``most`` snapshots, evenly spread, the first and the last among them."""
    return list(_evenly_spread(experiment.snapshots.select_related("best"), most))


def _evenly_spread(snapshots: QuerySet[Snapshot], most: int) -> QuerySet[Snapshot]:
    """At most ``most`` of each experiment's snapshots. The database thins them, as most clicks make one."""
    steps = most - 1
    counted = snapshots.values_list("experiment_id").annotate(n=Count("pk")).order_by()
    lasts = [When(experiment=pk, then=max(n - 1, 1)) for pk, n in counted]
    if not lasts:
        return snapshots.none()
    # Keep the first place of each step, which has a small remainder; in a short race every place has one.
    # The places come from an index alone: the rows are wide, and few of them are shown.
    numbered = (
        snapshots.annotate(place=Window(RowNumber(), partition_by="experiment", order_by="pk") - 1)
        .annotate(rest=Mod(F("place") * steps, Case(*lasts, output_field=IntegerField())))
        .filter(rest__lt=steps)
    )
    return snapshots.filter(pk__in=list(numbered.values_list("pk", flat=True))).order_by("pk")
