"""The cost of generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Avg, Count, Q, Sum

from engine.models import Connection, Experiment, Opinion, Response, clock


def cost_of(
    connection: Connection, *, prompt: int | None, cached: int | None, completion: int | None
) -> float | None:
    """The price of one reply's tokens in the connection's currency; ``None`` where price or tokens are
    unknown.
    """
    if None in {prompt, completion, connection.price_prompt, connection.price_completion}:
        return None
    of_cached = connection.price_cached if connection.price_cached is not None else connection.price_prompt
    fresh = max(0, (prompt or 0) - (cached or 0))
    parts = (
        (fresh, connection.price_prompt),
        (cached or 0, of_cached),
        (completion or 0, connection.price_completion),
    )
    return sum(tokens * (price or 0.0) for tokens, price in parts) / 1e6


def currency_of(experiment: Experiment) -> str:
    """The currency of the known costs of an experiment's responses; empty where none is known."""
    priced = Response.objects.filter(policy__experiment=experiment, cost__isnull=False)
    currencies = priced.order_by("connection__currency").values_list("connection__currency", flat=True)
    return " and ".join(filter(None, currencies.distinct()))


_DAY = timedelta(hours=24)


def overspent_connections() -> set[int]:
    """The connections whose limit of 24 hours is reached: nothing more is asked of them."""
    limits = dict(Connection.objects.filter(daily_limit__isnull=False).values_list("pk", "daily_limit"))
    if not limits:
        return set()
    since = clock.now() - _DAY
    lately = Response.objects.filter(connection__in=limits, done_at__gte=since)
    spent = Counter(dict(lately.order_by().values_list("connection").annotate(Sum("cost"))))
    opinions = Opinion.objects.filter(created_at__gte=since, cost__isnull=False)
    by_name = opinions.order_by().values_list("comparison__experiment__judge_model").annotate(Sum("cost"))
    judges = dict(by_name)
    names = dict(Connection.objects.filter(pk__in=limits).values_list("pk", "name"))
    return {
        pk
        for pk, most in limits.items()
        if (spent[pk] or 0.0) + (judges.get(names[pk]) or 0.0) >= (most or 0.0)
    }


def overspent_experiments() -> set[int]:
    """The running experiments whose limit of money is reached: nothing more is asked for them."""
    running = Experiment.objects.filter(state=Experiment.State.RUNNING, money_limit__isnull=False)
    return {each.pk for each in running if spent_in(each) >= (each.money_limit or 0.0)}


def spent_in(experiment: Experiment) -> float:
    """The known cost of an experiment: of its responses and of the opinions of the model that judges."""
    # By the ids of the policies, without a join, as in `policy_spending`.
    policies = list(experiment.policies.values_list("pk", flat=True))
    responses = Response.objects.filter(policy__in=policies).aggregate(cost=Sum("cost"))["cost"]
    opinions = Opinion.objects.filter(comparison__experiment=experiment).aggregate(cost=Sum("cost"))["cost"]
    return (responses or 0.0) + (opinions or 0.0)


def money_trouble(experiment: Experiment) -> str:
    """The sentence on a limit of money that is reached; empty elsewhere."""
    limit = experiment.money_limit
    if limit is None or spent_in(experiment) < limit:
        return ""
    return (
        f"The limit of money ({limit:,.2f} {currency_of(experiment)}".rstrip()
        + ") is reached, so no more responses are written. Nothing is lost. Raise it on the tab Settings."
    )


def cost_each(experiment: Experiment) -> float | None:
    """The mean cost of a response in a draft's trial; ``None`` without one, or where a cost is unknown."""
    tried = Response.objects.filter(trial__experiment=experiment, state=Response.State.DONE)
    found = tried.aggregate(n=Count("pk"), known=Count("cost"), mean=Avg("cost"))
    return found["mean"] if found["n"] and found["n"] == found["known"] else None


@dataclass(frozen=True)
class PolicySpending:
    """Tokens, time and cost of one policy's responses.

    ``cut``: the responses that ended at their maximum of tokens. ``unanswered``: those that are no answer,
    as they are empty, filtered or refused.
    """

    index: int
    responses: int
    failed: int
    cut: int
    unanswered: int
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
            unanswered=Count("pk", filter=Q(state=Response.State.DONE, text="")),
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
            unanswered=row.get("unanswered", 0),
            prompt_tokens=row.get("prompt") or 0,
            completion_tokens=row.get("completion") or 0,
            latency_seconds=row.get("latency"),
            cost=row.get("cost"),
        )
        for index, row in ((index, found.get(pk, {})) for pk, index in policies.items())
    ]
