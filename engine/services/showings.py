"""Writes the log of showings: each act on a comparison, in the transaction of the act.

The comparison is locked by the caller. So its events have the order in which things happened to it, and
nobody sees the end of a showing before its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db.models import F

from engine.domain.showings import Answer, Fate, Kind, Phase, Showing, events, showing_of
from engine.models import Comparison, Experiment, Judgment, PairCount, ShowingEvent, clock
from engine.selectors import counts

# The fields of a comparison that `resettled` may change.
FIELDS = ("state", "outcome", "judged_at", "discard_reason", "showing", "least", "most")


@dataclass(frozen=True)
class Change:
    """All that settling a comparison adds: rows of the log, and wins of i and comparisons to the counts."""

    events: list[ShowingEvent]
    won: float
    judged: int


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
    comparison.save(update_fields=FIELDS)
    ShowingEvent.objects.bulk_create(rows)


def settle(
    comparison: Comparison,
    *,
    reason: str,
    over: bool = False,
    annotator: int | None = None,
) -> None:
    """Bring a locked comparison, its pair's counts and the log up to date with its judgments and skips.

    ``reason``: why it is discarded, if none of its judgments stands and nobody will give one. ``over``:
    nobody will, however few have. ``annotator``: who has just judged it.
    """
    answers = answers_to([comparison.pk])[comparison.pk]
    change = resettled(comparison, answers, reason=reason, over=over)
    comparison.save(update_fields=[*FIELDS, "skips"])
    ShowingEvent.objects.bulk_create(change.events)
    if change.won or change.judged:
        count(comparison, change.won, change.judged, annotator=annotator)


def count(comparison: Comparison, won: float, judged: int, *, annotator: int | None) -> None:
    """Change the counts of a comparison's pair by so much; ``annotator``: who has just judged it."""
    pair = PairCount.objects.filter(
        experiment=comparison.experiment_id, policy_i=comparison.policy_i_id, policy_j=comparison.policy_j_id
    )
    last = {} if annotator is None else {"last_annotator": annotator}
    n_changed = pair.update(wins_i=F("wins_i") + won, comparisons=F("comparisons") + judged, **last)
    if n_changed != 1:
        raise RuntimeError(f"{comparison} has {n_changed} pair counts instead of one; run rebuild_counts.")


def resettled(
    comparison: Comparison, answers: Sequence[Answer], *, reason: str, over: bool = False
) -> Change:
    """As `settle`, but the caller stores the comparison, the log and the counts."""
    experiment = comparison.experiment
    after = showing_of(
        answers,
        needed=1 if comparison.plan.get("by_rule") else counts.needed(experiment),
        skips=comparison.skips,
        rule=experiment.overlap_rule,
        over=over,
    )
    was = comparison.outcome
    rows = become(comparison, after)
    if after.phase is Phase.OPEN:
        comparison.judged_at = None
        if comparison.state not in Comparison.PENDING:
            # All who were to judge it had it, and nobody else gets it now that one of them has it again.
            comparison.state = Comparison.State.LEASED
    elif after.outcome is None:
        comparison.state, comparison.discard_reason = Comparison.State.DISCARDED, reason
        comparison.judged_at = None
    else:
        comparison.state, comparison.discard_reason = Comparison.State.JUDGED, ""
        comparison.judged_at = comparison.judged_at or clock.now()
    won = (after.outcome or 0.0) - (was or 0.0)
    return Change(rows, won, (after.outcome is not None) - (was is not None))


def answers_to(comparison_ids: Collection[int]) -> dict[int, list[Answer]]:
    """The answers to each of these comparisons, in the order in which they were given."""
    found: dict[int, list[Answer]] = {pk: [] for pk in comparison_ids}
    rows = Judgment.objects.filter(comparison__in=comparison_ids).order_by("pk")
    for comparison, annotator, judge, outcome, fate in rows.values_list(
        "comparison_id", "annotator_id", "judge", "outcome", "void__fate"
    ):
        person = annotator or judge
        found[comparison].append(Answer(person, outcome, Fate(fate) if fate else Fate.STANDS))
    return found


def told(experiment: Experiment, comparisons: Iterable[Comparison]) -> Iterator[ShowingEvent]:
    """The log of comparisons that come with their outcome."""
    for each in comparisons:
        common = {"experiment": experiment, "comparison": each}
        yield ShowingEvent(**common, kind=Kind.BEGUN)
        yield ShowingEvent(
            **common, kind=Kind.TOLD, outcome=each.outcome, least=each.outcome, most=each.outcome
        )
