"""Results by tag, as a table."""

from typing import Any

from engine.models import Experiment, Policy
from engine.selectors.breakdown import ENOUGH, by_tag, by_task
from engine.selectors.browsing import tags_of
from engine.selectors.policies import policy_names


def tag_rows(experiment: Experiment, leader: Policy | None) -> list[dict[str, Any]]:
    """Each tag that was compared, sorted, with the result of the leader there and the policy that won the
    largest share; none where no task has a tag.
    """
    if leader is None or not tags_of(experiment):
        return []
    names = policy_names(experiment)
    rows = []
    for part in by_tag(by_task(experiment)):
        enough = [(policy, won) for policy, won in part.policies.items() if won.comparisons >= ENOUGH]
        # Where shares are equal, the tag with more comparisons goes first.
        first = max(enough, key=lambda each: (each[1].share, each[1].comparisons), default=None)
        rows.append(
            {
                "tag": part.tag,
                "tasks": len(part.tasks),
                "comparisons": part.comparisons,
                "own": part.policies.get(leader.index),
                "first": None if first is None else (names[first[0]], first[1]),
            }
        )
    return rows
