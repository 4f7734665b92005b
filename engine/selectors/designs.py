"""The design of an experiment with its evidence, and the snapshots of that evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    Count,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
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
from engine.models import Experiment, Factor, PairCount, ReplayPoint, Snapshot
from engine.selectors.compiled import EXPERIMENT, EXPERIMENTS, Compiled
from engine.selectors.counts import (
    Completion,
    completed,
    in_flight_matrix,
    wins_and_newer,
    wins_matrix,
)

# A difference of sums of thirds may be off by so much.
_ROUNDING = 1e-9


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
    return [(factor, level) for (factor, of_it), level in zip(factors, levels, strict=True) if len(of_it) > 1]


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
    for experiment_id, factor, level in _LEVELS(experiments=levels) if levels else []:
        # A factor of a draft may have no level yet.
        levels[experiment_id].setdefault(factor, []).extend([] if level is None else [level])
    return levels


_LEVELS = Compiled(
    lambda: (
        Factor.objects.filter(experiment__pk__in=EXPERIMENTS)
        .order_by("position", "levels__position")
        .values_list("experiment_id", "name", "levels__name")
    ),
    keeps_plan=False,
    for_pages=True,
)


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
    """A design with all evidence of an experiment, and the number of the last judgment in it, 0 where there
    is none.

    There is one definition of the moments at which evidence is observed. They are after each comparison, in
    the order of the judgments that completed them, up to the one with which the experiment stops. The
    planner, a replay after an undo, an audit and a re-import all call `observe`, so that they agree bit by
    bit.
    """

    design: Design
    last_judgment: int = 0


def observe(
    start: Observed, completions: Iterable[Completion], *, each: Callable[[Observed], bool] = lambda _: True
) -> Observed:
    """Tell a design the outcomes of comparisons in their order, until it stops.

    ``each`` is called after each of them; if it returns ``False``, no more are told. Reads nothing from the
    database.
    """
    observed = start
    for completion in completions:
        if observed.design.stopped:
            break
        observed.design.tell(completion.i, completion.j, completion.outcome)
        observed = Observed(observed.design, completion.judgment)
        if not each(observed):
            break
    return observed


def design(experiment: Experiment) -> Design:
    """The experiment's design with all evidence, and with the comparisons that are in flight."""
    return with_in_flight(experiment, observed(experiment).design)


def with_in_flight(experiment: Experiment, design: Design) -> Design:
    """The same design, told of the comparisons whose outcome is still to come and ready to choose pairs."""
    design.resume(in_flight_matrix(experiment), design_seed(experiment))
    return design


def with_late(experiment: Experiment, design: Design) -> Design:
    """The same design with all counts, including comparisons that were judged after it had stopped."""
    return Design.from_counts(
        design.space,
        wins_matrix(experiment),
        progress=design.progress,
        labels=design.labels,
        **design_settings(experiment),
    )


def observed(experiment: Experiment) -> Observed:
    """The present evidence: that of the latest snapshot and of what was judged since, or else a replay."""
    return continued(experiment) or replayed(experiment)


def continued(experiment: Experiment, latest: Snapshot | None = None) -> Observed | None:
    """The evidence of the latest snapshot, told what was judged since.

    ``None`` where a replay is needed: there is no snapshot, or it is stale. Also where a judgment with a
    smaller number than its last one was committed after it. What is judged after the conclusion has no part
    in the finding.

    ``latest``: the latest snapshot, where the caller has it already.
    """
    found = _found(experiment, latest or latest_snapshot(experiment))
    if found is None:
        return None
    noted, newer = found
    return observe(noted, [] if experiment.state == Experiment.State.CONCLUDED else newer)


def noted(experiment: Experiment, latest: Snapshot) -> Observed | None:
    """The evidence as the latest snapshot has it, or ``None`` as from `continued`."""
    found = _found(experiment, latest)
    return None if found is None else found[0]


def _found(experiment: Experiment, latest: Snapshot | None) -> tuple[Observed, list[Completion]] | None:
    return None if latest is None or experiment.evidence_stale else since(experiment, latest)


def since(experiment: Experiment, stored: Snapshot | ReplayPoint) -> tuple[Observed, list[Completion]] | None:
    """The evidence as it was stored, and what was judged since.

    ``None`` where the counts do not fit. Then a judgment with a smaller number than the last one in the
    evidence was committed after it, or voided.
    """
    every, newer = wins_and_newer(experiment, stored.last_judgment)
    wins = every - summed_wins(len(every), [(each.i, each.j, each.outcome) for each in newer])
    if round(wins.sum()) != stored.comparisons or wins.min() < -_ROUNDING:
        return None
    wins[wins < 0.0] = 0.0
    of, labels = labelled_space(experiment)
    design = Design.from_counts(
        of, wins, progress=stored.progress, labels=labels, **design_settings(experiment)
    )
    return Observed(design, stored.last_judgment), newer


def known_design(experiment: Experiment) -> Design:
    """The design for a page, which never waits for a replay: it shows that of the counts alone instead."""
    return (continued(experiment) or counted(experiment)).design


def counted(experiment: Experiment) -> Observed:
    """The evidence of the present counts alone, for use while a replay is still to come."""
    of, labels = labelled_space(experiment)
    wins = wins_matrix(experiment)
    return Observed(Design.from_counts(of, wins, labels=labels, **design_settings(experiment)))


def replayed(experiment: Experiment) -> Observed:
    """The evidence of every standing judgment, from nothing."""
    of, labels = labelled_space(experiment)
    return told_design(experiment, of, completed(experiment), labels=labels)


def told_design(
    experiment: Experiment,
    of: Space,
    completions: Iterable[Completion],
    *,
    labels: Sequence[str] | None = None,
) -> Observed:
    """A design with the experiment's settings told these comparisons. Reads nothing from the database."""
    return observe(Observed(Design(space=of, labels=labels, **design_settings(experiment))), completions)


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
    outcomes = [
        (each.i, each.j, each.outcome)
        for each in completed(experiment)
        if each.judgment <= observed.last_judgment
    ]
    return misfit(of, summed_wins(of.n_policies, outcomes), summed_ties(of.n_policies, outcomes))


def latest_snapshot(experiment: Experiment) -> Snapshot | None:
    """The newest evidence that was written down, with its leader; ``None`` before the first."""
    return next(iter(_LATEST(experiment=experiment.pk)), None)


_LATEST = Compiled(
    lambda: Snapshot.objects.filter(experiment=EXPERIMENT).select_related("best").order_by("-pk")[:1],
    keeps_plan=False,
    for_pages=True,
)


def latest_snapshots(experiments: Collection[Experiment]) -> dict[int, Snapshot]:
    """The newest snapshot of each experiment by its id, in one query; without the large evidence."""
    newest = Snapshot.objects.filter(experiment=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    asked = Experiment.objects.filter(pk__in=[each.pk for each in experiments]).order_by()
    found = Snapshot.objects.filter(pk__in=asked.values_list(Subquery(newest))).select_related("best")
    return {each.experiment_id: each for each in found.defer("evidence", "peak_evidence", "named", "streams")}


def paused_and_behind() -> list[int]:
    """The keys of paused experiments whose evidence is stale, or lacks judgments, as of pairs that were on a
    screen. Evidence that has come to a decision ends with it and lacks none.
    """
    of_it = {"experiment": OuterRef("pk")}
    latest = Snapshot.objects.filter(**of_it).order_by("-pk")
    pairs = PairCount.objects.filter(**of_it).order_by().values("experiment")
    judged = pairs.annotate(judged=Sum("comparisons")).values("judged")
    paused = Experiment.objects.filter(state=Experiment.State.PAUSED).annotate(
        told=Coalesce(Subquery(latest.values("comparisons")[:1]), 0),
        reason=Coalesce(Subquery(latest.values("reason")[:1]), Value("")),
        judged=Coalesce(Subquery(judged), 0),
    )
    behind = paused.filter(Q(evidence_stale=True) | (Q(reason="") & ~Q(told=F("judged"))))
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
