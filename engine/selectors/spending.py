"""The cost of generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, Q, Sum

from engine.models import Connection, Experiment, Response


def cost_of(
    connection: Connection, *, prompt: int | None, cached: int | None, completion: int | None
) -> float | None:
    """The price of one reply's tokens in the connection's currency; ``None`` where price or tokens are
    unknown.
    """
    if None in {prompt, completion, connection.price_prompt, connection.price_completion}:
        return None
    of_cached = connection.price_cached if connection.price_cached is not None else connection.price_prompt
    fresh = (prompt or 0) - (cached or 0)
    parts = (
        (fresh, connection.price_prompt),
        (cached or 0, of_cached),
        (completion or 0, connection.price_completion),
    )
    return sum(tokens * (price or 0.0) for tokens, price in parts) / 1e6


def is_priced(experiment: Experiment) -> bool:
    """True if some response of the experiment has a known cost."""
    return Response.objects.filter(policy__experiment=experiment, cost__isnull=False).exists()


def overspent_connections() -> set[int]:
    """The connections whose limit of 24 hours is reached: nothing more is asked of them."""
    return set()


def overspent_experiments() -> set[int]:
    """The running experiments whose limit of money is reached: nothing more is asked for them."""
    return set()


@dataclass(frozen=True)
class PolicySpending:
    """Tokens, time and cost of one policy's responses.

    ``cut``: the responses that ended at their maximum of tokens.
    """

    index: int
    responses: int
    failed: int
    cut: int
    prompt_tokens: int
    completion_tokens: int
    latency_seconds: float | None
    cost: float | None

    @property
    def tokens_each(self) -> float | None:
        """The mean number of tokens in a response; ``None`` without a response."""
        return self.completion_tokens / self.responses if self.responses else None


def policy_spending(experiment: Experiment) -> list[PolicySpending]:
    """Tokens, time and cost of each policy's responses, by policy index."""
    policies = dict(experiment.policies.order_by("index").values_list("pk", "index"))
    # By the ids of the policies, without a join: PostgreSQL then counts with several processes.
    rows = Response.objects.filter(policy__in=list(policies)).order_by().values("policy")
    found: dict[int, Mapping[str, Any]] = {
        row["policy"]: row
        for row in rows.annotate(
            done=Count("pk", filter=Q(state=Response.State.DONE)),
            # Not those that the conclusion dropped before a worker had them.
            failed=Count("pk", filter=Q(state=Response.State.FAILED, attempts__gt=0)),
            cut=Count("pk", filter=Q(state=Response.State.DONE, finish_reason="length")),
            prompt=Sum("prompt_tokens"),
            completion=Sum("completion_tokens"),
            latency=Avg("latency_seconds"),
            cost=Sum("cost"),
        )
    }
    return [
        PolicySpending(
            index=index,
            responses=row.get("done", 0),
            failed=row.get("failed", 0),
            cut=row.get("cut", 0),
            prompt_tokens=row.get("prompt") or 0,
            completion_tokens=row.get("completion") or 0,
            latency_seconds=row.get("latency"),
            cost=row.get("cost"),
        )
        for index, row in ((index, found.get(pk, {})) for pk, index in policies.items())
    ]
