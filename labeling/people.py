"""What is known of each annotator's work."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from scipy.stats import binomtest

from engine import selectors
from engine.models import Check, Experiment, Flag, Judgment

# Low, as it is looked at again and again and for everybody at once.
_SIDE_BIAS_P = 0.001


@dataclass(frozen=True)
class AnnotatorRow:
    """One annotator's line on the dashboard. ``left`` counts among ``sided``: the answers that chose a side."""

    name: str
    judged: int
    median_seconds: float | None
    left: int
    sided: int
    left_p: float
    repeats: int
    repeats_agreed: int
    gold: int
    gold_passed: int
    flags: int

    @property
    def left_bias(self) -> bool:
        return self.left_p < _SIDE_BIAS_P


def annotator_rows(experiment: Experiment) -> list[AnnotatorRow]:
    """Everybody who judged, with counts, median time, the left-bias test, and how their checks went."""
    judgments = defaultdict(list)
    standing = selectors.standing_judgments(experiment.pk).filter(annotator__isnull=False)
    for name, choice, shown_at, created_at in standing.values_list(
        "annotator__username", "choice", "shown_at", "created_at"
    ):
        seconds = None if shown_at is None else (created_at - shown_at).total_seconds()
        judgments[name].append((choice, seconds))
    checks = defaultdict(list)
    answered = Check.objects.filter(experiment=experiment, passed__isnull=False)
    for name, kind, passed in answered.values_list("annotator__username", "kind", "passed"):
        checks[name, kind].append(passed)
    flags = list(
        Flag.objects.filter(comparison__experiment=experiment).values_list("annotator__username", flat=True)
    )
    return [
        _row(
            name,
            judgments[name],
            checks[name, Check.Kind.REPEAT],
            checks[name, Check.Kind.GOLD],
            flags.count(name),
        )
        for name in sorted(judgments)
    ]


def _row(
    name: str,
    judgments: list[tuple[str, float | None]],
    repeats: list[bool],
    gold: list[bool],
    flags: int,
) -> AnnotatorRow:
    seconds = [each for _, each in judgments if each is not None]
    left = sum(choice == Judgment.Choice.LEFT for choice, _ in judgments)
    sided = left + sum(choice == Judgment.Choice.RIGHT for choice, _ in judgments)
    return AnnotatorRow(
        name=name,
        judged=len(judgments),
        median_seconds=median(seconds) if seconds else None,
        left=left,
        sided=sided,
        left_p=float(binomtest(left, sided).pvalue) if sided else 1.0,
        repeats=len(repeats),
        repeats_agreed=sum(repeats),
        gold=len(gold),
        gold_passed=sum(gold),
        flags=flags,
    )
