"""The expected size of an experiment from the moment at which policies join it."""

from __future__ import annotations

from typing import Any

from engine.models import Experiment, Policy
from engine.selectors import people
from engine.selectors.counts import comparison_count
from engine.selectors.remaining import remaining_after_joining
from labeling.dashboard.figures import hours_each
from labeling.formatting import rough_hours
from labeling.setup.sizes import USUAL_PEOPLE, USUAL_SECONDS, in_words


def size_of_joining(
    experiment: Experiment, parent: Policy, *, n_combinations: int, parent_leaves: bool
) -> dict[str, Any] | None:
    """The comparisons and hours, in the words of the setup page; ``None`` where one policy would be alone.

    ``n_combinations``: those of the other levels, with each of which the new level may join.
    """
    left = experiment.budget - comparison_count(experiment.pk)

    def after(n_new: int = 1, *, losers_leave: bool = True) -> Any:
        return remaining_after_joining(
            experiment, parent, n_new, losers_leave=losers_leave, parent_leaves=parent_leaves
        )

    if (remaining := after()) is None:
        return None
    others = []
    if experiment.winner_id:
        others.append(("If those who lost stay", after(losers_leave=False)))
    if n_combinations > 1:
        others.append(("With every combination of the other levels", after(n_combinations)))
    size: dict[str, Any] = {
        "comparisons": in_words(remaining, left),
        "others": [{"label": label, "comparisons": in_words(each, left)} for label, each in others],
    }
    if experiment.judge == Experiment.Judge.HUMAN:
        each = hours_each(experiment) or experiment.overlap * USUAL_SECONDS / 3600
        size["n_people"] = people.annotators(experiment.pk).count() or USUAL_PEOPLE
        size["hours"] = in_words(remaining.times(each), left * each, rough_hours)
        size["hours_each"] = rough_hours((remaining.likely or left) * each / size["n_people"])
    return size
