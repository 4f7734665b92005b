"""Tasks that joined an experiment, or were left out of it, and what a claim is about then."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from django.db.models import QuerySet

from engine.core import Claim
from engine.domain.claim_settings import CERTIFIED
from engine.domain.showings import Kind
from engine.domain.wording import moment, number
from engine.models import Comparison, Experiment, Task


def tasks_present(experiment: Experiment) -> QuerySet[Task]:
    """The tasks that were not left out."""
    return experiment.tasks.filter(left_at=None)


def tasks_changed(experiment: Experiment) -> list[str]:
    """Sentences on each change of the tasks, and on the meaning of the risk; none without a change."""
    tasks = experiment.tasks.all()
    joined = Counter(at for at in tasks.values_list("joined_at", flat=True) if at)
    left = Counter(at for at in tasks.values_list("left_at", flat=True) if at)
    if not (changes := sorted({*joined, *left})):
        return []
    anew = _moments_of_stages(experiment)
    judged = experiment.comparisons.filter(state=Comparison.State.JUDGED)
    n_judged, found = judged.count(), []
    for at in changes:
        n, what = (joined[at], "joined") if at in joined else (left[at], "was left out")
        before = judged.filter(judged_at__lt=at).count()
        of = f"after {before:,} of the {number(n_judged, 'comparison')}"
        counts = "; the claim counts those since then alone" if at in anew else ""
        found.append(f"{number(n, 'task')} {what} {moment(at)}, {of}{counts}.")
    return [*found, *filter(None, [risk_of_changes(experiment)])]


def risk_of_changes(experiment: Experiment) -> str:
    """The meaning of the risk where comparisons on other tasks count; empty where none do."""
    if experiment.stopping != CERTIFIED or not (n := n_counted_on(experiment)):
        return ""
    if experiment.claim == Claim.BEST_IF_ANY:
        return f"The risk is that of ruling out a policy that beats every other one {_TIMES}."
    beats = "beats" if experiment.claim == Claim.BEST else "beats by more than the margin"
    risk = f"{100 * min(1.0, experiment.delta * (n + 1)):.3g}%"
    return (
        f"The risk, that of naming a policy that one and the same other policy {beats} {_TIMES}, is at most "
        f"{risk}, if the tasks did not change because of answers."
    )


def added_risk(experiment: Experiment) -> float:
    """The risk that changes of the tasks add to a conclusion that counts comparisons from before them."""
    if experiment.claim == Claim.BEST_IF_ANY:
        return 0.0
    return experiment.delta * n_counted_on(experiment)


def n_counted_on(experiment: Experiment) -> int:
    """The number of changes of the tasks since the claim began to count."""
    tasks = experiment.tasks.exclude(joined_at=None, left_at=None)
    moments = {at for both in tasks.values_list("joined_at", "left_at") for at in both if at}
    last = max(_moments_of_stages(experiment), default=None)
    return sum(last is None or at > last for at in moments)


def _moments_of_stages(experiment: Experiment) -> set[datetime]:
    return set(experiment.showing_events.filter(kind=Kind.STAGE).values_list("created_at", flat=True))


# What is proved of a mean that changes: docs/proofs.md, "Tasks that change".
_TIMES = "on the tasks of each of these times"
