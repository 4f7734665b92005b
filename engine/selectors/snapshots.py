"""Snapshots of the evidence: the newest one, and the race that they make."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from django.db.models import Case, Count, F, IntegerField, OuterRef, QuerySet, Subquery, When, Window
from django.db.models.functions import Mod, RowNumber

from engine.models import Experiment, Snapshot
from engine.selectors import designs
from engine.selectors.designs import Observed


def latest_snapshot(experiment: Experiment) -> Snapshot | None:
    """The newest evidence that was written down, with its leader; ``None`` before the first."""
    return experiment.snapshots.select_related("best").order_by("-pk").first()


def at_one_moment(experiment: Experiment) -> tuple[Observed, Snapshot | None]:
    """The evidence as it is shown, and the newest snapshot: the planner writes both together."""
    while True:
        snapshot = latest_snapshot(experiment)
        observed = designs.shown(experiment)
        if latest_snapshot(experiment) == snapshot:
            return observed, snapshot


def standing_wins(observed: Observed) -> npt.NDArray[np.float64]:
    """Shape (K, K): the summed outcomes of i against j in this evidence, without what was voided."""
    wins = observed.design.wins
    for i, j, voided in observed.design.progress["left_out"]:
        wins[i, j] -= voided
    return wins


def latest_snapshots(experiments: Collection[Experiment]) -> dict[int, Snapshot]:
    """The newest snapshot of each experiment by its id, in one query; without the large evidence."""
    newest = Snapshot.objects.filter(experiment=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    asked = Experiment.objects.filter(pk__in=[each.pk for each in experiments]).order_by()
    found = Snapshot.objects.filter(pk__in=asked.values_list(Subquery(newest))).select_related("best")
    return {each.experiment_id: each for each in found.defer("evidence", "peak_evidence")}


class RacePoint(NamedTuple):
    """The number of rivals that were open after some number of comparisons."""

    comparisons: int
    open_rivals: int


def races_of(experiments: Collection[Experiment], most: int) -> dict[int, list[RacePoint]]:
    """The open rivals of each experiment, by its id: at most ``most`` points, evenly spread, the first and
    the last among them. Three queries for all.
    """
    found: dict[int, list[RacePoint]] = {each.pk: [] for each in experiments}
    shown = _evenly_spread(Snapshot.objects.filter(experiment__in=found), most)
    for experiment_id, *point in shown.values_list("experiment_id", "comparisons", "open_rivals"):
        found[experiment_id].append(RacePoint(*point))
    return found


def race_of(experiment: Experiment, most: int = 200) -> list[Snapshot]:
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
