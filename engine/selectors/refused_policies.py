"""Policies whose requests the server refuses: they wait until somebody tries again."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Count, Max, Min

from engine.models import Response

# So many refused responses, and none written since the first of them, halt a policy.
MOST_REFUSED = 5


@dataclass(frozen=True)
class Refused:
    """Refused responses of one policy.

    Attributes
    ----------
    n
        The responses that wait for somebody to say: again.
    reason
        Why, in words of our own; ``said``: the server's words, for editors.
    halted
        Nothing more is asked for in the policy's experiment.
    """

    experiment_id: int
    policy_id: int
    index: int
    n: int
    reason: str
    said: str
    halted: bool


def refused(experiment_ids: Collection[int] | None = None) -> list[Refused]:
    """The policies with refused responses, of these experiments or of all."""
    # Few rows: an index holds those that wait.
    rows = Response.objects.filter(state=Response.State.WAITING, refused_at__isnull=False)
    if experiment_ids is not None:
        rows = rows.filter(policy__experiment__in=experiment_ids)
    found = (
        rows.order_by()
        .values("policy", "policy__experiment", "policy__index")
        .annotate(n=Count("pk"), first=Min("refused_at"), last=Max("pk"))
    )
    words = rows.in_bulk([row["last"] for row in found])
    works = {
        row["policy"]
        for row in found
        if row["n"] >= MOST_REFUSED
        and Response.objects.filter(
            policy=row["policy"], state=Response.State.DONE, done_at__gte=row["first"]
        ).exists()
    }
    return [
        Refused(
            experiment_id=row["policy__experiment"],
            policy_id=row["policy"],
            index=row["policy__index"],
            n=row["n"],
            reason=words[row["last"]].failure_reason,
            said=words[row["last"]].said,
            halted=row["n"] >= MOST_REFUSED and row["policy"] not in works,
        )
        for row in sorted(found, key=lambda row: row["policy"])
        if row["last"] in words
    ]


def halted_experiments() -> set[int]:
    """The experiments with a halted policy."""
    return {each.experiment_id for each in refused() if each.halted}
