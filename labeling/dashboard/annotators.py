"""Statistics of the judges: each annotator, each kind of judge, and all together."""

from dataclasses import dataclass
from typing import Any

from scipy import special

from engine.models import Assignment, Experiment, Judgment, User
from engine.selectors import annotators
from engine.selectors.admission import failed
from engine.selectors.agreement import Answer
from engine.selectors.alike_and_drift import Alike, Drift, habits
from engine.selectors.missing import capped

# Low, because the test is repeated often and for every annotator.
_SIDE_BIAS_P = 0.001
# Fewer answers say little about a habit.
_ENOUGH_ANSWERS = 20
_NEARLY_ALL = 0.95


@dataclass(frozen=True)
class Sides:
    """The number of left choices among the answers with a side, and its p-value for a fair coin."""

    left: int
    sided: int

    @property
    def p(self) -> float:
        rarer = min(self.left, self.sided - self.left)
        return min(1.0, 2.0 * float(special.bdtr(rarer, self.sided, 0.5)))

    @property
    def p_text(self) -> str:
        if self.p < 0.0001:
            return "p < 0.0001"
        return f"p = {self.p:.4f}" if self.p < 0.01 else f"p = {self.p:.2f}"

    @property
    def biased(self) -> bool:
        return self.p < _SIDE_BIAS_P


@dataclass(frozen=True)
class AnnotatorRow:
    """One annotator's line on the dashboard. Checks are counted as (answered, passed)."""

    name: str
    judged: int
    median_seconds: float | None
    sides: Sides
    repeats: tuple[int, int]
    gold: tuple[int, int]
    flags: int
    skips: int
    reading: annotators.Reading
    alike: list[Alike]
    drift: Drift | None

    @property
    def doubts(self) -> list[str]:
        """The reasons to doubt this annotator's good faith or attention, each with its figure."""
        found = [
            self.hasty and f"answers too fast: {self.hasty}",
            self.always_longer and f"nearly always chooses the longer response: {self.always_longer}",
            self.sides.biased
            and f"favours one side: left in {self.sides.left} of {self.sides.sided}, {self.sides.p_text}",
            *(
                f"same answers as {each.other}: {each.same} of {each.shared} pairs, where other people agree "
                f"in {each.usual:.0%}"
                for each in self.alike
            ),
        ]
        if self.drift is not None:
            (right, n), (right_now, n_now) = self.drift.before, self.drift.after
            found.append(f"gets worse: right in {right_now} of the latest {n_now}, in {right} of {n} before")
        return [doubt for doubt in found if doubt]

    @property
    def hasty(self) -> str:
        """The figure, where most of their newest answers came faster than anybody reads; else empty."""
        read = self.reading
        if read.timed < _ENOUGH_ANSWERS or 2 * read.hasty <= read.timed:
            return ""
        return f"{read.hasty} of {read.timed} faster than reading"

    @property
    def always_longer(self) -> str:
        """The figure, where nearly all of their newest answers went to the longer response; else empty."""
        read = self.reading
        if read.uneven < _ENOUGH_ANSWERS or read.longer < _NEARLY_ALL * read.uneven:
            return ""
        return f"{read.longer} of {read.uneven} for the longer one"


def ended_rows(experiment: Experiment) -> list[dict[str, str]]:
    """Everybody who gets no more pairs, and why: because of gold items, or of how many they left."""
    reasons = {
        name: f"skipped or left {left} of {shown} pairs."
        for name, (left, shown) in capped(experiment).items()
    }
    for name, gold in failed(experiment).items():
        used = (
            "Their answers are not used." if gold.judged == gold.admission else "What they answered counts."
        )
        reasons[name] = f"answered {gold.right} of {gold.judged} gold items correctly. {used}"
    return [{"name": name, "reason": reason} for name, reason in sorted(reasons.items())]


def annotator_rows(
    experiment: Experiment,
    tallies: annotators.Tallies,
    shared: list[dict[str, Answer]],
    only: User | None = None,
) -> list[AnnotatorRow]:
    """Everybody who judged, or ``only`` one of them: counts, median time, checks, and reasons for doubt.

    ``tallies``: of the same people. ``shared``: what `engine.selectors.agreement.shared_answers` says of the
    experiment.
    """
    checks = annotators.check_results(experiment, only)
    flags = annotators.flags_by_annotator(experiment, only)
    skips = annotators.skips_by_annotator(experiment, only)
    reading = annotators.reading_by_annotator(experiment, tallies.by_annotator)
    marks = habits(experiment, shared)
    return [
        AnnotatorRow(
            name=name,
            judged=judged.judged,
            median_seconds=judged.median_seconds,
            sides=Sides(judged.left, judged.left + judged.right),
            repeats=checks.get((name, Assignment.Kind.REPEAT), (0, 0)),
            gold=_gold(checks, name),
            flags=flags.get(name, 0),
            skips=skips.get(name, 0),
            reading=reading.get(name, annotators.Reading()),
            alike=marks.alike.get(name, []),
            drift=marks.drift.get(name),
        )
        for name, judged in tallies.by_annotator.items()
    ]


def _gold(checks: dict[tuple[str, str], tuple[int, int]], name: str) -> tuple[int, int]:
    """The gold items that somebody answered, and those of them that they answered correctly."""
    of_kinds = [
        checks.get((name, kind), (0, 0)) for kind in (Assignment.Kind.ADMISSION, Assignment.Kind.GOLD)
    ]
    answered, passed = (sum(each) for each in zip(*of_kinds, strict=True))
    return answered, passed


def judge_rows(tallies: annotators.Tallies) -> list[dict[str, Any]]:
    """Each kind of judge, and all together where there are several."""
    rows: list[dict[str, Any]] = [
        {
            "name": str(Judgment.Judge(kind).label),
            "judged": judged.judged,
            "median_seconds": judged.median_seconds,
            "sides": Sides(judged.left, judged.left + judged.right),
        }
        for kind, judged in tallies.by_kind.items()
    ]
    if len(rows) > 1:
        sides = Sides(sum(row["sides"].left for row in rows), sum(row["sides"].sided for row in rows))
        judged = sum(row["judged"] for row in rows)
        rows.append({"name": "All", "judged": judged, "median_seconds": None, "sides": sides})
    return rows
