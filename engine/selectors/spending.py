"""The cost of generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Avg, Count, Q, Sum

from engine.models import Experiment, Response


def price(prompt_tokens: int, completion_tokens: int) -> float:
    """The price of these tokens, in the currency of the settings."""
    prompt = prompt_tokens * settings.PRICE_PROMPT_TOKENS
    return (prompt + completion_tokens * settings.PRICE_COMPLETION_TOKENS) / 1e6


def is_priced() -> bool:
    """True if the settings name a price of tokens."""
    return bool(settings.PRICE_PROMPT_TOKENS or settings.PRICE_COMPLETION_TOKENS)


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

    @property
    def tokens_each(self) -> float | None:
        """The mean number of tokens in a response; ``None`` without a response."""
        return self.completion_tokens / self.responses if self.responses else None

    @property
    def cost(self) -> float:
        """In the currency of the settings' prices."""
        return price(self.prompt_tokens, self.completion_tokens)


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
        )
        for index, row in ((index, found.get(pk, {})) for pk, index in policies.items())
    ]
