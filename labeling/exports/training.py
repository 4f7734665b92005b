"""Pairs of texts and single texts for training, each once, with the verdict of the judgments."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import F

from engine.domain.conversations import Message
from engine.models import Comparison, Experiment
from engine.selectors import browsing
from engine.selectors.browsing import Selection, texts_of
from labeling.exports.judgments import one_snapshot

_TEXTS_AT_ONCE = 500


@dataclass(frozen=True)
class Preference:
    """Two different texts to one task, and the one that the majority chose.

    Attributes
    ----------
    margin
        Share of the comparisons that chose it, less the share that chose the other, in (0, 1].
    comparisons
        How many there were of these two texts, ties among them.
    """

    task: tuple[Message, ...]
    chosen: str
    rejected: str
    margin: float
    comparisons: int


@dataclass(frozen=True)
class Rated:
    """One text to one task, and whether it was chosen more often than rejected."""

    task: tuple[Message, ...]
    completion: str
    label: bool


@dataclass
class _Tally:
    """Sums of 2D - 1 of comparisons, and two responses that have the texts."""

    first: int
    second: int
    lead: float = 0.0
    n: int = 0


def preferences(experiment: Experiment, selection: Selection) -> Iterator[Preference]:
    """Each two texts once, in the order of their first comparison: the majority's choice first.

    Two texts without a majority, and equal or empty ones, are left out.
    """
    with one_snapshot():
        decided = (tally for tally in _tallied(experiment, selection).values() if tally.lead)
        while some := list(islice(decided, _TEXTS_AT_ONCE)):
            texts = texts_of({pk for tally in some for pk in (tally.first, tally.second)})
            for tally in some:
                (task, first), (_, second) = texts[tally.first], texts[tally.second]
                if first.strip() and second.strip():
                    chosen, rejected = (first, second) if tally.lead > 0 else (second, first)
                    yield Preference(task, chosen, rejected, abs(tally.lead) / tally.n, tally.n)


def rated(experiment: Experiment, selection: Selection) -> Iterator[Rated]:
    """Each text once that was chosen more often than rejected, or less often; empty ones are left out."""
    with one_snapshot():
        leads: dict[tuple[int, str], tuple[int, float]] = {}
        for (task_id, *digests), tally in _tallied(experiment, selection).items():
            for digest, response, lead in zip(
                digests, (tally.first, tally.second), (tally.lead, -tally.lead), strict=True
            ):
                known, before = leads.get((task_id, digest), (response, 0.0))
                leads[task_id, digest] = known, before + lead
        decided = (each for each in leads.values() if each[1])
        while some := list(islice(decided, _TEXTS_AT_ONCE)):
            texts = texts_of({pk for pk, _ in some})
            for pk, lead in some:
                task, text = texts[pk]
                if text.strip():
                    yield Rated(task, text, lead > 0)


def _tallied(experiment: Experiment, selection: Selection) -> dict[tuple[int, str, str], _Tally]:
    """Tallies by task and digests. Texts are read when a row is written: thousands of them may be long."""
    tallies: dict[tuple[int, str, str], _Tally] = {}
    comparisons = (
        browsing.selected_comparisons(experiment, selection)
        .filter(state=Comparison.State.JUDGED)
        .exclude(response_i__digest=F("response_j__digest"))
        .order_by("pk")
        .values_list(
            "task_id", "response_i__digest", "response_j__digest", "response_i_id", "response_j_id", "outcome"
        )
    )
    rows: Iterable[tuple[int, str, str, int, int, Any]] = comparisons.iterator(chunk_size=2000)
    for task, digest_i, digest_j, response_i, response_j, outcome in rows:
        (first, one), (second, other) = sorted([(digest_i, response_i), (digest_j, response_j)])
        tally = tallies.setdefault((task, first, second), _Tally(one, other))
        tally.lead += (2.0 * outcome - 1.0) * (1.0 if first == digest_i else -1.0)
        tally.n += 1
    return tallies
