"""The judged comparisons of one policy: its rivals, both responses, and the outcomes."""

from dataclasses import dataclass

from django.db.models import Case, Count, F, Q, QuerySet, Sum, When

from engine.models import Comparison, Policy, Response, Task

# The newest comparisons among which examples of different tasks are looked for.
_RECENT = 20
_SHOWN = 3
# Fewer comparisons say little about a task.
_ENOUGH = 3


@dataclass(frozen=True)
class Duel:
    """One judged comparison, seen from one of its policies.

    Attributes
    ----------
    own, other
        The responses of the policy and of its rival.
    rival
        Index of the other policy.
    outcome
        Of this policy, in [0, 1].
    """

    comparison: Comparison
    own: Response
    other: Response
    rival: int
    outcome: float


def duels_of(policy: Policy) -> QuerySet[Comparison]:
    """The judged comparisons of a policy. Others may still be shown to annotators, so they are left out."""
    return Comparison.objects.filter(
        Q(policy_i=policy) | Q(policy_j=policy),
        experiment=policy.experiment_id,
        state=Comparison.State.JUDGED,
    ).select_related("task", "policy_i", "policy_j", "response_i", "response_j")


def duel(comparison: Comparison, policy: Policy) -> Duel:
    """A judged comparison from the side of one of its policies.

    Raises
    ------
    ValueError
        The comparison has no outcome yet.
    """
    outcome = comparison.outcome
    if outcome is None:
        raise ValueError(f"Comparison {comparison.pk} has no outcome: it is {comparison.state}.")
    if comparison.policy_i_id == policy.pk:
        return Duel(
            comparison, comparison.response_i, comparison.response_j, comparison.policy_j.index, outcome
        )
    return Duel(
        comparison, comparison.response_j, comparison.response_i, comparison.policy_i.index, 1.0 - outcome
    )


def examples(policy: Policy, *, won: bool) -> list[Duel]:
    """The newest comparisons that a policy won, or lost, each about another task."""
    above, below = Q(outcome__gt=0.5), Q(outcome__lt=0.5)
    wanted = Q(Q(policy_i=policy), above if won else below) | Q(Q(policy_j=policy), below if won else above)
    rows = duels_of(policy).filter(wanted).order_by("-pk")
    by_task: dict[int, Comparison] = {}
    for row in rows[:_RECENT]:
        by_task.setdefault(row.task_id, row)
    return [duel(row, policy) for row in list(by_task.values())[:_SHOWN]]


@dataclass(frozen=True)
class TaskResult:
    """A policy at one task. ``share``: the part of its comparisons that it won; a tie is half a win."""

    task: Task
    comparisons: int
    share: float


def weakest_tasks(policy: Policy) -> list[TaskResult]:
    """The tasks where a policy won the smallest share of its comparisons, without those where it won all."""
    won = Case(When(policy_i=policy, then=F("outcome")), default=1.0 - F("outcome"))
    rows = (
        duels_of(policy)
        .order_by()
        .values("task")
        .annotate(n=Count("pk"), share=Sum(won) / Count("pk"))
        .filter(n__gte=_ENOUGH, share__lt=1.0)
        .order_by("share", "-n", "task")[:_SHOWN]
    )
    found = {row["task"]: (row["n"], row["share"]) for row in rows}
    tasks = Task.objects.in_bulk(list(found))
    return [TaskResult(tasks[task], n, float(share)) for task, (n, share) in found.items()]
