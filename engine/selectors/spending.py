"""The cost of generation, and the part of it that was not used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Avg, Count, Q, Sum

from engine.models import (
    Comparison,
    Experiment,
    Response,
)
from engine.selectors.opinions import judging_cost


@dataclass(frozen=True)
class Waste:
    """Generated responses that were never judged."""

    generated: int
    unused: int
    unused_tokens: int

    @property
    def share(self) -> float:
        """The share of generated responses that were never judged, in [0, 1]."""
        return self.unused / self.generated if self.generated else 0.0


def waste(experiment: Experiment) -> Waste:
    """The responses that no judgment has used; after the decision, none ever will."""
    written = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    judged = Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
    unused = written.exclude(pk__in=judged.values("response_i")).exclude(pk__in=judged.values("response_j"))
    return Waste(
        generated=written.count(),
        unused=unused.count(),
        unused_tokens=unused.aggregate(total=Sum("completion_tokens"))["total"] or 0,
    )


def cost(experiment: Experiment) -> float:
    """The cost of the experiment's tokens, judging included, in the currency of the settings' prices."""
    tokens = Response.objects.filter(policy__experiment=experiment).aggregate(
        prompt=Sum("prompt_tokens"), completion=Sum("completion_tokens")
    )
    return price(tokens["prompt"] or 0, tokens["completion"] or 0) + judging_cost(experiment)


def price(prompt_tokens: int, completion_tokens: int) -> float:
    """The price of these tokens, in the currency of the settings."""
    prompt = prompt_tokens * settings.PRICE_PROMPT_TOKENS
    return (prompt + completion_tokens * settings.PRICE_COMPLETION_TOKENS) / 1e6


def is_priced() -> bool:
    """True if the settings name a price of tokens."""
    return bool(settings.PRICE_PROMPT_TOKENS or settings.PRICE_COMPLETION_TOKENS)


@dataclass(frozen=True)
class PolicySpending:
    """Tokens, time and cost of one policy's responses."""

    index: int
    responses: int
    failed: int
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
            prompt_tokens=row.get("prompt") or 0,
            completion_tokens=row.get("completion") or 0,
            latency_seconds=row.get("latency"),
        )
        for index, row in ((index, found.get(pk, {})) for pk, index in policies.items())
    ]
