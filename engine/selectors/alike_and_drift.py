"""Habits that show only across answers: two accounts that answer alike, and answers that get worse.

Both come from pairs of responses that several people judged; drift also from gold pairs and repeats.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from engine.core.agreement import p_as_alike, p_of_fall
from engine.models import Experiment, Judgment
from engine.selectors.agreement import Answer

# Chance alone would show it less than once in a thousand experiments, or annotators.
_P = 0.001
_ENOUGH_SHARED = 20
# The share of equal answers of two honest people, where other people share too few pairs to measure it.
_ASSUMED = 0.9
_ENOUGH_OF_OTHERS = 50
_ENOUGH_IN_EACH_HALF = 10
# Answers of each annotator that are looked at for drift, the newest.
_NEWEST = 400


@dataclass(frozen=True)
class Alike:
    """Two accounts that give equal answers to the same responses more often than other people do.

    Attributes
    ----------
    other
        User name of the other account.
    same, shared
        Equal answers, and the pairs of responses that both judged.
    usual
        Share of equal answers of other people, in [0, 1], or the assumed one.
    """

    other: str
    same: int
    shared: int
    usual: float


@dataclass(frozen=True)
class Drift:
    """Right answers and all answers, in the earlier and in the later half.

    Right: as most other people answered, as gold says, or as the same person did before.
    """

    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True)
class Habits:
    """The marks of everybody in an experiment, by user name; only those who have one."""

    alike: dict[str, list[Alike]]
    drift: dict[str, Drift]


def habits(experiment: Experiment, shared: list[dict[str, Answer]]) -> Habits:
    """The accounts that answer alike, and the people whose answers get worse.

    ``shared``: from `engine.selectors.agreement.shared_answers`.
    """
    return Habits(alike=_alike(shared), drift=_drift(experiment, shared))


def _alike(shared: list[dict[str, Answer]]) -> dict[str, list[Alike]]:
    tallies: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for heard in shared:
        for one, other in combinations(sorted(heard), 2):
            tally = tallies[one, other]
            tally[0] += heard[one].outcome == heard[other].outcome
            tally[1] += 1
    all_same = sum(same for same, _ in tallies.values())
    all_shared = sum(n for _, n in tallies.values())
    tested = {pair: tally for pair, tally in tallies.items() if tally[1] >= _ENOUGH_SHARED}
    found: defaultdict[str, list[Alike]] = defaultdict(list)
    for (one, other), (same, n) in tested.items():
        rest = all_shared - n
        usual = (all_same - same) / rest if rest >= _ENOUGH_OF_OTHERS else _ASSUMED
        if p_as_alike(same, n, usual) < _P / len(tested):
            found[one].append(Alike(other, same, n, usual))
            found[other].append(Alike(one, same, n, usual))
    return dict(found)


def _drift(experiment: Experiment, shared: list[dict[str, Answer]]) -> dict[str, Drift]:
    signs: defaultdict[str, list[tuple[datetime, bool]]] = defaultdict(list)
    for heard in shared:
        for name, answer in heard.items():
            others = Counter(each.outcome for by, each in heard.items() if by != name).most_common(2)
            if len(others) == 1 or others[0][1] > others[1][1]:
                signs[name].append((answer.at, answer.outcome == others[0][0]))
    checked = Judgment.objects.filter(assignment__experiment=experiment, standing=True)
    for name, at, passed in checked.values_list("annotator__username", "created_at", "assignment__passed"):
        signs[name].append((at, bool(passed)))
    found = {}
    for name, seen in signs.items():
        right = [was_right for _, was_right in sorted(seen)[-_NEWEST:]]
        half = len(right) // 2
        drift = Drift((sum(right[:half]), half), (sum(right[half:]), len(right) - half))
        if half >= _ENOUGH_IN_EACH_HALF and p_of_fall(drift.before, drift.after) < _P:
            found[name] = drift
    return found
