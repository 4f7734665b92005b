"""Tasks that joined an experiment, or were left out of it, and what a claim is about then."""

from __future__ import annotations

from collections import Counter

from engine.core import Claim
from engine.domain.showings import Kind
from engine.domain.wording import moment, number
from engine.models import Comparison, Experiment


def tasks_changed(experiment: Experiment) -> list[str]:
    """Sentences on each change of the tasks, and on the meaning of the risk; none without a change."""
    tasks = experiment.tasks.all()
    joined = Counter(at for at in tasks.values_list("joined_at", flat=True) if at)
    left = Counter(at for at in tasks.values_list("left_at", flat=True) if at)
    if not (changes := sorted({*joined, *left})):
        return []
    anew = set(experiment.showing_events.filter(kind=Kind.STAGE).values_list("created_at", flat=True))
    judged = experiment.comparisons.filter(state=Comparison.State.JUDGED)
    n_judged, found = judged.count(), []
    for at in changes:
        n, what = (joined[at], "joined") if at in joined else (left[at], "was left out")
        before = judged.filter(judged_at__lt=at).count()
        of = f"after {before:,} of the {number(n_judged, 'comparison')}"
        counts = "; the claim counts those since then alone" if at in anew else ""
        found.append(f"{number(n, 'task')} {what} {moment(at)}, {of}{counts}.")
    if changes[-1] not in anew and experiment.stopping == "certified":
        found.append(_RISKS[Claim(experiment.claim)])
    return found


# What is proved of a mean that changes: docs/proofs.md, "Tasks that change".
_TIMES = "on the tasks of each of these times"
_RISKS = {
    Claim.GOOD_ENOUGH: (
        "The risk is that of naming a policy than which one and the same other policy is better by more than "
        f"the margin {_TIMES}."
    ),
    Claim.BEST: f"The risk is that of naming a policy that one and the same other policy beats {_TIMES}.",
    Claim.BEST_IF_ANY: f"The risk is that of ruling out a policy that beats every other one {_TIMES}.",
}
