"""The expected size of an experiment from the moment at which policies join it."""

import itertools
from collections.abc import Sequence
from typing import Any

from engine.domain.policy_space import Combination
from engine.models import Experiment, Factor, Policy
from engine.selectors import people
from engine.selectors.counts import comparison_count
from engine.selectors.policies import combinations_of
from engine.selectors.remaining import remaining_after_joining
from labeling.dashboard.figures import hours_each
from labeling.formatting import rough_hours
from labeling.setup.sizes import USUAL_PEOPLE, USUAL_SECONDS, in_words


def size_of_joining(
    experiment: Experiment, parent: Policy, factors: Sequence[Factor], chosen: Factor, *, parent_leaves: bool
) -> dict[str, Any] | None:
    """The comparisons and hours of a new level of the chosen factor, in the words of the setup page; ``None``
    where one policy would be alone.
    """
    left = experiment.budget - comparison_count(experiment.pk)
    origin = combinations_of(experiment)[parent.index]
    one = [tuple("" if each == chosen else name for each, name in zip(factors, origin, strict=True))]
    every = list(
        itertools.product(
            *([""] if each == chosen else [level.name for level in each.levels.all()] for each in factors)
        )
    )

    def after(new: Sequence[Combination] = one, *, losers_leave: bool = True) -> Any:
        return remaining_after_joining(
            experiment, parent, new, losers_leave=losers_leave, parent_leaves=parent_leaves
        )

    if (remaining := after()) is None:
        return None
    others = []
    if experiment.winner_id:
        others.append(("If those who lost stay", after(losers_leave=False)))
    if len(every) > 1:
        others.append(("With every combination of the other levels", after(every)))
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
