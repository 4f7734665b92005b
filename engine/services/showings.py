"""Writes the log of showings.

The comparison is locked by the caller. So its events have the order in which things happened to it, and
nobody sees the end of a showing before its beginning.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count

from engine.domain.showings import Answer, Fate, Kind, Phase, Showing, events, showing_of
from engine.models import Assignment, Comparison, Experiment, Judgment, PairCount, ShowingEvent
from engine.selectors import counts
from engine.services.bulk import save_all
from engine.services.locks import locked_experiment

# The fields of a comparison that `settle` may change.
_FIELDS = ("state", "outcome", "judged_at", "discard_reason", "showing", "least", "most")


WAS_VOIDED = "Its judgment was voided by hand."


class _Given(NamedTuple):
    """A judgment of a comparison: its number and time, whose it is, and what the showing has of it."""

    number: int
    at: datetime
    annotator: int | None
    answer: Answer


@transaction.atomic
def settle_assignments(*, experiment: Experiment) -> None:
    """Take in what people did since the last time, in a locked experiment.

    A click only stores its answer, so that it does the same for a check as for a comparison. Outcomes, counts
    and the log follow here: before each round of planning, and before anything that must see all answers.
    """
    changed = Assignment.objects.filter(experiment=experiment, settled=False)
    rows = list(changed.values_list("pk", "state", "comparison_id"))
    if not rows:
        return
    comparisons = Comparison.objects.filter(pk__in={comparison for *_, comparison in rows} - {None})
    settle(experiment, list(comparisons.order_by("pk").select_for_update(no_key=True)))
    # Locked only now: answers would wait for all of this. One that came meanwhile has put its row into
    # another state, and waits for the next time.
    for state in {state for _, state, _ in rows}:
        found = Assignment.objects.filter(pk__in=[pk for pk, was, _ in rows if was == state], state=state)
        by_number = found.order_by("pk").select_for_update(no_key=True).values("pk")
        Assignment.objects.filter(pk__in=by_number).update(settled=True)


@transaction.atomic
def settle_now(*, experiment_id: int) -> None:
    """Take in what people did since the last round, for somebody who reads all of it."""
    settle_assignments(experiment=locked_experiment(experiment_id))


def settle(experiment: Experiment, comparisons: Sequence[Comparison]) -> bool:
    """Bring locked comparisons, the counts of their pairs and the log up to date with their judgments and
    skips; returns whether an outcome changed.
    """
    judgments = _judgments_of(comparisons)
    skips = _skips_of(comparisons)
    begun: list[ShowingEvent] = []
    settled: list[tuple[int, list[ShowingEvent]]] = []
    counted: defaultdict[tuple[int, int], _Count] = defaultdict(_Count)
    for comparison in comparisons:
        given = judgments[comparison.pk]
        comparison.experiment, comparison.skips = experiment, skips.get(comparison.pk, 0)
        begun += begin(comparison)
        was = comparison.outcome
        settled.append((given[-1].number if given else 0, _resettle(comparison, given)))
        if was != comparison.outcome:
            counted[comparison.policy_i_id, comparison.policy_j_id].add(was, comparison.outcome, given[-1])
    save_all(Comparison, comparisons, [*_FIELDS, "skips"])
    # In the order of the answers.
    settled.sort(key=lambda each: each[0])
    ShowingEvent.objects.bulk_create([*begun, *(event for _, events in settled for event in events)])
    if counted:
        _count(experiment, counted)
    return bool(counted)


@dataclass
class _Count:
    """The change of a pair's counts; ``last``: the last judgment that completed a comparison."""

    won: float = 0.0
    judged: int = 0
    last: _Given | None = None

    def add(self, was: float | None, outcome: float | None, latest: _Given) -> None:
        self.won += (outcome or 0.0) - (was or 0.0)
        self.judged += (outcome is not None) - (was is not None)
        if was is None and (self.last is None or self.last.number < latest.number):
            self.last = latest


def begin(comparison: Comparison) -> list[ShowingEvent]:
    """The beginning of a locked comparison's showing, to be stored with it; empty if it had begun."""
    return become(comparison, Showing(Phase.OPEN)) if not comparison.showing else []


def become(comparison: Comparison, after: Showing) -> list[ShowingEvent]:
    """Put a locked comparison's showing into this state; the caller stores it and these rows of the log."""
    before = Showing(Phase(comparison.showing), comparison.outcome, comparison.least, comparison.most)
    comparison.showing, comparison.outcome = after.phase, after.outcome
    comparison.least, comparison.most = after.least, after.most
    return [
        ShowingEvent(
            experiment_id=comparison.experiment_id,
            comparison=comparison,
            kind=event.kind,
            outcome=event.outcome,
            least=event.least,
            most=event.most,
        )
        for event in events(before, after)
    ]


def let_go(comparison: Comparison, reason: str) -> None:
    """Discard a locked comparison that ends without an outcome for a reason that may depend on it."""
    comparison.state, comparison.discard_reason = Comparison.State.DISCARDED, reason
    rows = become(comparison, Showing(Phase.TOLD, None, 0.0, 1.0))
    comparison.save(update_fields=_FIELDS)
    ShowingEvent.objects.bulk_create(rows)


def _count(experiment: Experiment, counted: Mapping[tuple[int, int], _Count]) -> None:
    """Change the counts of these pairs of policies i < j."""
    rows = PairCount.objects.filter(experiment=experiment).order_by("pk").select_for_update(no_key=True)
    by_pair = {(row.policy_i_id, row.policy_j_id): row for row in rows}
    if missing := counted.keys() - by_pair:
        raise RuntimeError(f"Policies {sorted(missing)} have no counts; run rebuild_counts.")
    for pair, total in counted.items():
        row = by_pair[pair]
        row.wins_i += total.won
        row.comparisons += total.judged
        if total.last and total.last.annotator:
            row.last_annotator_id = total.last.annotator
    save_all(PairCount, [by_pair[pair] for pair in counted], ["wins_i", "comparisons", "last_annotator"])


def _resettle(comparison: Comparison, given: Sequence[_Given]) -> list[ShowingEvent]:
    after = showing_of(
        [each.answer for each in given],
        needed=1 if comparison.plan.get("by_rule") else counts.needed(comparison.experiment),
        skips=comparison.skips,
        rule=comparison.experiment.overlap_rule,
    )
    rows = become(comparison, after)
    if after.phase is Phase.OPEN:
        comparison.judged_at = None
        if comparison.state not in Comparison.PENDING:
            # All who were to judge it had it, and nobody else gets it now that one of them has it again.
            comparison.state = Comparison.State.ASSIGNED
    elif after.outcome is None:
        comparison.state, comparison.judged_at = Comparison.State.DISCARDED, None
        n = comparison.skips
        comparison.discard_reason = f"Skipped by {n} annotator(s)." if n else WAS_VOIDED
    else:
        comparison.state, comparison.discard_reason = Comparison.State.JUDGED, ""
        comparison.judged_at = comparison.judged_at or given[-1].at
    return rows


def _skips_of(comparisons: Collection[Comparison]) -> dict[int, int]:
    skipped = Assignment.objects.filter(comparison__in=comparisons, state=Assignment.State.SKIPPED)
    return dict(skipped.order_by().values_list("comparison").annotate(n=Count("pk")))


def _judgments_of(comparisons: Collection[Comparison]) -> dict[int, list[_Given]]:
    """The judgments of each of these comparisons, in the order in which they were given."""
    found: dict[int, list[_Given]] = {comparison.pk: [] for comparison in comparisons}
    rows = Judgment.objects.filter(comparison__in=comparisons).order_by("pk")
    for comparison, pk, at, annotator, judge, outcome, fate in rows.values_list(
        "comparison_id", "pk", "created_at", "annotator_id", "judge", "outcome", "void__fate"
    ):
        answer = Answer(annotator or judge, outcome, Fate(fate) if fate else Fate.STANDS)
        found[comparison].append(_Given(pk, at, annotator, answer))
    return found


def told(experiment: Experiment, comparisons: Iterable[Comparison]) -> Iterator[ShowingEvent]:
    """The log of comparisons that come with their outcome."""
    for each in comparisons:
        common = {"experiment": experiment, "comparison": each}
        yield ShowingEvent(**common, kind=Kind.BEGUN)
        yield ShowingEvent(
            **common, kind=Kind.TOLD, outcome=each.outcome, least=each.outcome, most=each.outcome
        )
