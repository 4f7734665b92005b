"""Judgments that stand, and the counts that they add up to."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import GreaterThanOrEqual

from engine.core.contradictions import ties_within
from engine.domain.outcome_of_answers import joint_outcome
from engine.models import (
    Assignment,
    Comparison,
    Experiment,
    Judgment,
    PairCount,
    Response,
)

Pair = tuple[int, int]
# Nobody looks at two copies of a text: they are held back until their turn
# (`services.identical_texts.settle_by_rule`).
FOR_PEOPLE = Q(plan__by_rule__isnull=True)
HELD_BACK = Q(plan__by_rule__isnull=False, state=Comparison.State.PLANNED)


def with_both_texts(at: str = "") -> Q:
    """Comparisons with two known responses; past votes may lack them.

    ``at``: the path that leads to the comparison, such as ``comparison__``.
    """
    return Q(**{f"{at}response_{side}__state": Response.State.DONE for side in "ij"})


def count_of(rows: QuerySet[Any]) -> Coalesce:
    """The number of these rows, as a part of another query; 0 without any."""
    numbers = rows.order_by().values(one=Value(1)).annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(numbers), 0)


def in_experiment(experiment: Any, how: str = "") -> Q:
    """Answers or flags in an experiment, at comparisons and at checks. ``how``: ``__in``, of several."""
    return Q(**{f"{at}__experiment{how}": experiment for at in ("comparison", "assignment")}, _connector=Q.OR)


def standing(judgments: QuerySet[Judgment]) -> QuerySet[Judgment]:
    """The judgments that were not taken back."""
    return judgments.filter(standing=True)


def standing_judgments(experiment_id: int) -> QuerySet[Judgment]:
    """The judgments of an experiment's comparisons that were not taken back."""
    return standing(Judgment.objects.filter(comparison__experiment_id=experiment_id))


def choices(experiment: Experiment) -> list[str]:
    """The answers that this experiment offers its annotators."""
    offered = [Judgment.Choice.LEFT, Judgment.Choice.RIGHT]
    if experiment.allow_tie:
        offered.append(Judgment.Choice.TIE)
    if experiment.allow_both_bad:
        offered.append(Judgment.Choice.BOTH_BAD)
    return [str(choice) for choice in offered]


def next_number(experiment: Experiment) -> int:
    """The number of the experiment's next comparison, from 1. Past votes and picks share the numbers."""
    return experiment.past_votes + experiment.planned_count + 1


def comparison_count(experiment_id: int) -> int:
    """The number of judged comparisons that stand."""
    return comparison_counts([experiment_id])[experiment_id]


def comparison_counts(experiment_ids: Collection[int]) -> dict[int, int]:
    """The number of judged comparisons that stand of each experiment by its id, in one query."""
    rows = PairCount.objects.filter(experiment__in=experiment_ids).values_list("experiment_id").order_by()
    return dict.fromkeys(experiment_ids, 0) | dict(rows.annotate(total=Sum("comparisons")))


def tasks_compared(experiment: Experiment) -> int:
    """The number of tasks with a judged comparison."""
    judged = Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
    return judged.values("task").distinct().count()


def ahead_in(experiments: Collection[Experiment]) -> dict[int, dict[str, int]]:
    """The comparisons that are planned and those that are ready, by state, of each experiment by its id."""
    rows = (
        Comparison.objects.filter(
            FOR_PEOPLE,
            experiment__in=[each.pk for each in experiments],
            state__in=[Comparison.State.PLANNED, Comparison.State.READY],
        )
        .values_list("experiment_id", "state")
        .annotate(n=Count("pk"))
        .order_by()
    )
    found: dict[int, dict[str, int]] = {each.pk: {} for each in experiments}
    for experiment_id, state, n in rows:
        found[experiment_id][state] = n
    return found


def waiting(experiment: Experiment) -> QuerySet[Comparison]:
    """What waits for annotators: planned or ready, and skipped by nobody.

    A check takes the pair that it stands before from the stock as a comparison would: else fewer pairs would
    be planned behind it, which tells it.
    """
    checks = Assignment.objects.filter(in_place_of=OuterRef("pk"), state=Assignment.State.OPEN)
    taken = Q(Exists(checks))
    if (n_judges := needed(experiment)) > 1:
        given = Assignment.objects.filter(comparison=OuterRef("pk"))
        votes = Judgment.objects.filter(
            comparison=OuterRef("pk"), annotator__isnull=True, restores__isnull=True
        )
        taken &= Q(GreaterThanOrEqual(count_of(given) + count_of(votes) + 1, n_judges))
    return Comparison.objects.filter(
        ~taken,
        FOR_PEOPLE,
        experiment=experiment,
        state__in=[Comparison.State.PLANNED, Comparison.State.READY],
        skips=0,
    )


def pair_counts(experiment: Experiment) -> dict[Pair, tuple[float, int]]:
    """``{(i, j): (wins of i, comparisons)}`` for the pairs i < j, by policy index."""
    rows = experiment.pair_counts.values_list("policy_i__index", "policy_j__index", "wins_i", "comparisons")
    return {(i, j): (wins, n) for i, j, wins, n in rows}


def needed(experiment: Experiment) -> int:
    """The number of judgments that give a comparison its outcome; identical texts need but one."""
    return experiment.overlap if experiment.judge == Experiment.Judge.HUMAN else 1


def wins_and_ties(experiment: Experiment) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Summed outcomes, and ties (`engine.core.contradictions.misfit`), of each two policies: shapes (K, K).

    Both come from one query, so that no judgment that arrives in between makes them disagree.
    """
    n_policies = experiment.policies.count()
    wins, undecided = np.zeros((n_policies, n_policies)), np.zeros((n_policies, n_policies))
    share = 4.0 * F("outcome") * (1.0 - F("outcome"))
    rows = (
        Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
        .values_list("policy_i__index", "policy_j__index")
        .annotate(judged=Count("pk"), won=Sum("outcome"), between=Sum(share))
    )
    for i, j, n_judged, won, between in rows:
        wins[i, j], wins[j, i] = won, n_judged - won
        undecided[i, j] = undecided[j, i] = between
    return wins, ties_within(wins, undecided)


def counts_from_judgments(experiment: Experiment) -> dict[Pair, tuple[float, int]]:
    """The same as :func:`pair_counts`, counted afresh from the judgments that stand; pairs without any are
    left out.
    """
    judged: dict[int, tuple[int, int, int, list[float]]] = {}
    rows = standing_judgments(experiment.pk).filter(comparison__state=Comparison.State.JUDGED)
    for comparison, i, j, via, outcome in rows.order_by("pk").values_list(
        "comparison_id", "comparison__policy_i__index", "comparison__policy_j__index", "via", "outcome"
    ):
        n_needed = 1 if via in Judgment.UNSEEN else needed(experiment)
        judged.setdefault(comparison, (i, j, n_needed, []))[3].append(outcome)
    return tallied(
        (i, j, joint_outcome([*said, *[0.5] * (n_needed - len(said))], experiment.overlap_rule))
        for i, j, n_needed, said in judged.values()
    )


def tallied(outcomes: Iterable[tuple[int, int, float]]) -> dict[Pair, tuple[float, int]]:
    """``{(i, j): (wins of i, comparisons)}`` of outcomes ``(i, j, D)``."""
    wins: defaultdict[Pair, float] = defaultdict(float)
    comparisons: Counter[Pair] = Counter()
    for i, j, outcome in outcomes:
        wins[i, j] += outcome
        comparisons[i, j] += 1
    return {pair: (wins[pair], n) for pair, n in comparisons.items()}


def wins_matrix(experiment: Experiment) -> npt.NDArray[np.float64]:
    """K×K: entry (i, j) is the sum of outcomes of i against j."""
    return _as_matrix(experiment.policies.count(), pair_counts(experiment))


def _as_matrix(n_policies: int, counted: Mapping[Pair, tuple[float, int]]) -> npt.NDArray[np.float64]:
    wins = np.zeros((n_policies, n_policies))
    for (i, j), (wins_i, n) in counted.items():
        wins[i, j] = wins_i
        wins[j, i] = n - wins_i
    return wins


def in_flight_matrix(experiment: Experiment) -> npt.NDArray[np.int64]:
    """K×K, symmetric: comparisons of each pair whose outcome is still to come."""
    index = {policy.pk: policy.index for policy in experiment.policies.all()}
    in_flight = np.zeros((len(index), len(index)), dtype=np.int64)
    pending = experiment.comparisons.filter(state__in=Comparison.PENDING).order_by()
    for first, second, n in pending.values_list("policy_i", "policy_j").annotate(n=Count("pk")):
        i, j = index[first], index[second]
        in_flight[i, j] = in_flight[j, i] = n
    return in_flight
