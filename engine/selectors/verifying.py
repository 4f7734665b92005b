"""Stored rows of an experiment that do not agree with each other."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Count, F, Q

from engine.domain.judgment_record import COLUMNS, chained, line_digest
from engine.domain.policy_space import code_of
from engine.domain.showings import Kind
from engine.domain.texts import digest
from engine.models import Comparison, Experiment, Response
from engine.selectors import blinding, counts, designs, pools, record

# In nats of evidence: a judgment more or less changes it by a hundredth and more.
_DIGITS = 1e-6


def faults_of(experiment: Experiment) -> Iterator[str]:
    """Derive everything again that is stored and can be derived; yield a sentence for each difference.

    Counts follow from the judgments that stand, and outcomes and the evidence from the log of showings. The
    digests follow from the texts, and sides and checks from the secrets.
    """
    yield from _counts(experiment)
    yield from _comparisons(experiment)
    yield from _evidence(experiment)
    yield from _texts(experiment)
    yield from _familiar(experiment)
    yield from _record(experiment)
    yield from blinding.verify_blinding(experiment).differences


def _counts(experiment: Experiment) -> Iterator[str]:
    true, stored = counts.counts_from_judgments(experiment), counts.pair_counts(experiment)
    for i, j in sorted(true.keys() | stored.keys()):
        was, is_ = stored.get((i, j), (0.0, 0)), true.get((i, j), (0.0, 0))
        if was != is_:
            yield (
                f"{code_of(i)} against {code_of(j)} has wins and comparisons {was}, but its judgments make "
                f"{is_}. manage.py rebuild_counts mends it."
            )


def _comparisons(experiment: Experiment) -> Iterator[str]:
    standing = Count("judgments", filter=Q(judgments__standing=True))
    counted = experiment.comparisons.annotate(n=standing)
    for comparison in counted.filter(state=Comparison.State.JUDGED, n=0):
        yield f"Comparison {comparison.pk} counts as judged, but no judgment of it stands."
    for comparison in counted.filter(n__gt=F("experiment__overlap")):
        yield f"Comparison {comparison.pk} has {comparison.n} judgments, more than the experiment asks for."


def _evidence(experiment: Experiment) -> Iterator[str]:
    said = _said_by_the_log(experiment)
    for pk, number, outcome in experiment.comparisons.values_list("pk", "number", "outcome").iterator():
        if said.get(pk) != outcome:
            yield f"Comparison {number} has the outcome {outcome}, and by the log of showings {said.get(pk)}."
    if experiment.evidence_stale:
        return  # It will be replayed anyway.
    stored = designs.stored(experiment)
    replayed = designs.replay(experiment, designs.logged(designs.in_the_evidence(experiment)))
    if not alike(designs.state_of(stored), designs.state_of(replayed)):
        yield "The evidence is not that of the events of its log, one by one in their order."


def _said_by_the_log(experiment: Experiment) -> dict[int, float | None]:
    """The outcome of each comparison for the estimates, by the last event of its showing."""
    events = experiment.showing_events.exclude(kind=Kind.BEGUN).order_by("pk")
    return dict(events.values_list("comparison_id", "outcome").iterator())


def _familiar(experiment: Experiment) -> Iterator[str]:
    told = pools.shown_by_familiarity(experiment)[pools.Familiarity.UNEQUALLY_SEEN]
    if told and experiment.equally_seen_only and pools.is_finite(experiment):
        yield f"{told} pairs were shown whose two texts their annotators had not seen equally often."


def _record(experiment: Experiment) -> Iterator[str]:
    concluded = record.concluded_record(experiment)
    if concluded is not None and concluded != (now := record.record_of(experiment)):
        yield (
            f"The {now.judgments} judgments are not the {concluded.judgments} of the conclusion: their chain "
            f"ends in {now.digest}, and the log says {concluded.digest}. Hold an export of that time against "
            "them (--export) to see the first line that differs."
        )


def differences_from(experiment: Experiment, rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Hold the rows of an export, voided judgments included, against their digests and the database.

    Yields a sentence for the first row that differs from what its digest says, from the database, or is
    missing; and one if the chain over the rows is not the one of the conclusion.
    """
    stored, digests = record.lines(experiment), []
    for number, row in enumerate(rows, start=1):
        if row["line_digest"] != line_digest(*(row[name] for name in COLUMNS)):
            yield f"Row {number}, judgment {row['judgment_id']}, is not the line of its digest."
            return
        if row["in_evidence"] != "True":
            continue
        digests.append(row["line_digest"])
        uuid, digest = next(stored, ("", ""))
        if row["judgment_uuid"] != uuid:
            yield f"Row {number} is judgment {row['judgment_uuid']}, where the database has {uuid or 'none'}."
            return
        if row["line_digest"] != digest:
            yield f"Row {number}, judgment {row['judgment_id']}, is not what the database says."
            return
    if next(stored, None) is not None:
        yield f"The database has judgments after the last row, number {len(digests)} in the evidence."
    concluded = record.concluded_record(experiment)
    if concluded is not None and concluded != record.Record(len(digests), chained(digests)):
        yield "The rows are not the judgments of the conclusion, by the digest that the log has of them."


def alike(one: Any, other: Any) -> bool:
    """True if two stored states of evidence are the same, but for the last digits of their numbers.

    Another kind of processor takes other steps to a logarithm or a sum, and may round otherwise.
    """
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_DIGITS, abs_tol=_DIGITS)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def _texts(experiment: Experiment) -> Iterator[str]:
    written = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    for pk, text, stored in written.values_list("pk", "text", "digest").iterator():
        if digest(text) != stored:
            yield f"The text of response {pk} is not the one of its digest."
