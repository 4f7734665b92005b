"""Tasks that joined an experiment, or were left out of it, and what a claim is about then."""

from collections import Counter
from datetime import datetime

from django.db.models import Q, QuerySet

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
    changes = sorted({*joined, *left})
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
    n, improved = n_counted_on(experiment), _was_improved(experiment)
    if experiment.stopping != CERTIFIED or not (n or improved):
        return ""
    why = "An improvement chose some of the tasks alone, by answers too. " if improved else ""
    times = _ALL if improved else _TIMES
    if experiment.space != Experiment.Space.UNSTRUCTURED:
        return f"{why}The risk holds if levels have the same effects {times}."
    if experiment.claim == Claim.BEST_IF_ANY:
        return f"{why}The risk is that of ruling out a policy that beats every other one {times}."
    margin = "" if experiment.claim == Claim.BEST else " by more than the margin"
    if improved:
        return f"{why}So the risk is that of naming a policy although another one beats it{margin} {times}."
    risk = f"{100 * min(1.0, experiment.delta * (n + 1)):.3g}%"
    return (
        f"The risk, that of naming a policy that one and the same other policy beats{margin} {_TIMES}, is at "
        f"most {risk}, if the tasks did not change because of answers."
    )


def added_risk(experiment: Experiment) -> tuple[float, float]:
    """The risk that changes of the tasks add to a conclusion that counts comparisons from before them.

    To its own, with stages before it that were given up; and to that of all conclusions so far.
    """
    if experiment.claim == Claim.BEST_IF_ANY:
        return 0.0, 0.0
    rules = {name: getattr(experiment, name) for name in ("claim", "delta", "epsilon")}
    before = experiment.conclusions.filter(**rules).last()
    began = max(_moments_of_stages(experiment), default=None)
    own = _counted_on(experiment, min(before.created_at, began) if before and began else None)
    return experiment.delta * own, experiment.delta * _counted_on(experiment, None)


def n_counted_on(experiment: Experiment) -> int:
    """The number of changes of the tasks since the claim began to count."""
    return _counted_on(experiment, max(_moments_of_stages(experiment), default=None))


def _counted_on(experiment: Experiment, since: datetime | None) -> int:
    """The number of changes of the tasks after which comparisons counted on."""
    tasks = experiment.tasks.exclude(joined_at=None, left_at=None)
    moments = {at for both in tasks.values_list("joined_at", "left_at") for at in both if at}
    return sum(since is None or at > since for at in moments - _moments_of_stages(experiment))


def _was_improved(experiment: Experiment) -> bool:
    """True if an improvement has had a part in what the claim counts."""
    found = experiment.improvements.filter(Q(used__gt=0) | Q(writings__isnull=False))
    if began := max(_moments_of_stages(experiment), default=None):
        found = found.filter(Q(ended_at=None) | Q(ended_at__gt=began))
    return found.exists()


def _moments_of_stages(experiment: Experiment) -> set[datetime]:
    return set(experiment.showing_events.filter(kind=Kind.STAGE).values_list("created_at", flat=True))


# What is proved of a mean that changes: docs/proofs.md, "Tasks that change".
_TIMES = "on the tasks of each of these times"
_ALL = "on each single task"
