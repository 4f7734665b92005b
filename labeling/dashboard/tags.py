"""Results by tag, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from engine.domain.policy_space import PolicyName
from engine.models import Experiment, Policy
from engine.selectors.breakdown import ENOUGH, Won, by_tag, by_task
from engine.selectors.browsing import tags_of
from engine.selectors.designs import policy_names


@dataclass(frozen=True)
class TagRow:
    """One tag.

    Attributes
    ----------
    tasks, comparisons
        How many were compared, and how often.
    own
        The result of the experiment's leader there; ``None`` where it was not compared.
    first
        The policy that won the largest share there; ``None`` where each has too few comparisons to say.
    """

    tag: str
    tasks: int
    comparisons: int
    own: Won | None
    first: tuple[PolicyName, Won] | None


def tag_rows(experiment: Experiment, leader: Policy | None) -> list[TagRow]:
    """Each tag that was compared, sorted; none where no task has a tag."""
    if leader is None or not tags_of(experiment):
        return []
    names = policy_names(experiment)
    rows = []
    for part in by_tag(by_task(experiment)):
        enough = [(policy, won) for policy, won in part.policies.items() if won.comparisons >= ENOUGH]
        # Where shares are equal, the tag with more comparisons goes first.
        first = max(enough, key=lambda each: (each[1].share, each[1].comparisons), default=None)
        rows.append(
            TagRow(
                tag=part.tag,
                tasks=len(part.tasks),
                comparisons=part.comparisons,
                own=part.policies.get(leader.index),
                first=None if first is None else (names[first[0]], first[1]),
            )
        )
    return rows
