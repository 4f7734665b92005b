"""Money spent, of which every sum reads the ledger of charges alone; and tokens and time of policies."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import (
    Avg,
    Count,
    F,
    FilteredRelation,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
)
from django.db.models.functions import Coalesce

from engine.domain.list_prices import Money
from engine.domain.replies import Usage
from engine.models import Charge, Connection, Experiment, Gate, Response, clock

DAY = timedelta(hours=24)
_KNOWN = Q(cost__isnull=False)


def cost_of(connection: Connection, usage: Usage) -> float | None:
    """The price of one reply's tokens in the connection's currency; ``None`` where price or tokens are
    unknown.
    """
    if None in {usage.prompt, usage.completion, connection.price_prompt, connection.price_completion}:
        return None
    of_cached = connection.price_cached if connection.price_cached is not None else connection.price_prompt
    fresh = max(0, (usage.prompt or 0) - (usage.cached or 0))
    parts = (
        (fresh, connection.price_prompt),
        (usage.cached or 0, of_cached),
        (usage.completion or 0, connection.price_completion),
    )
    return sum(tokens * (price or 0.0) for tokens, price in parts) / 1e6


# ---------------------------------------------------------------- limits


def overspent_connections() -> set[int]:
    """The connections whose limit of 24 hours is reached: nothing more is asked of them."""
    # A limit is in the currency of now.
    lately = Q(charges__at__gt=clock.now() - DAY, charges__currency=F("currency"))
    limited = Connection.objects.filter(daily_limit__isnull=False).order_by()
    recent = limited.annotate(lately=FilteredRelation("charges", condition=lately)).values("pk")
    spent = recent.annotate(spent=Coalesce(Sum("lately__cost"), Value(0.0)))
    return set(spent.filter(spent__gte=F("daily_limit")).values_list("pk", flat=True))


def overspent_experiments() -> set[int]:
    """The experiments whose limit of money is reached in any currency: nothing more is asked for them.

    All challenges of a gate share the limit of its experiment.
    """
    asked = Experiment.objects.exclude(state__in=[Experiment.State.DRAFT, Experiment.State.CONCLUDED])
    limited = asked.filter(Q(money_limit__isnull=False) | Q(gate__experiment__money_limit__isnull=False))
    spent = limited.order_by().annotate(own=_most_spent("pk"), shared=_most_spent("gate__experiment"))
    over = Q(own__gte=F("money_limit")) | Q(shared__gte=F("gate__experiment__money_limit"))
    return set(spent.filter(over).values_list("pk", flat=True))


def _most_spent(path: str) -> Coalesce:
    """The money spent by the experiment at this path and its gate's challenges, in the currency with most."""
    charges = Charge.objects.filter(_KNOWN, experiment__in=_with_gates(OuterRef(OuterRef(path))))
    sums = charges.order_by().values("currency").annotate(spent=Sum("cost")).order_by("-spent")
    return Coalesce(Subquery(sums.values("spent")[:1]), Value(0.0))


def _with_gates(pk: Any) -> QuerySet[Experiment, Any]:
    """An experiment and all challenges of its gate."""
    return Experiment.objects.order_by().filter(Q(pk=pk) | Q(gate__experiment=pk)).values("pk")


def money_trouble(experiment: Experiment) -> str:
    """The sentence on a limit of money that is reached; empty elsewhere."""
    if reached := _reached(experiment):
        return (
            f"The limit of money ({reached}) is reached, so no model is asked any more. "
            "Nothing is lost. Raise it on the tab Settings."
        )
    gate = Gate.objects.filter(challenge=experiment).select_related("experiment").first()
    if gate and (reached := _reached(gate.experiment)):
        return (
            f"The limit of money of {gate.experiment} and all challenges of its gate ({reached}) is reached. "
            "Nothing is lost. Raise it on that experiment's tab Settings."
        )
    return ""


def _reached(experiment: Experiment) -> str:
    """The limit of money that an experiment and all challenges of its gate have reached; empty if not."""
    limit = experiment.money_limit
    if limit is None:
        return ""
    spent = _sum(Charge.objects.filter(experiment__in=_with_gates(experiment.pk)))
    if max(spent.values(), default=0.0) < limit:
        return ""
    reached = Money({name: limit for name, amount in spent.items() if amount >= limit})
    return str(reached) or format(limit, ",.2f")


# ---------------------------------------------------------------- sums


def spent_in(experiment: Experiment) -> Money:
    """The money spent in an experiment, its trials included."""
    return _sum(Charge.objects.filter(experiment=experiment))


def spent_of_limit(experiment: Experiment) -> str:
    """The money spent and its limit, if any, in words; empty without either."""
    spent, limit = spent_in(experiment), experiment.money_limit
    return str(spent) if limit is None else spent.of_limit(limit)


def spent_by_purpose(experiment: Experiment) -> dict[str, Money]:
    """The money spent in an experiment, by the name of its purpose."""
    costs = _by("purpose", Charge.objects.filter(experiment=experiment))
    return {purpose.label: costs[purpose] for purpose in Charge.Purpose if purpose in costs}


def spent_with(connections: Collection[int], *, since: datetime | None = None) -> dict[int, Money]:
    """The money spent with each of these connections that cost any."""
    charges = Charge.objects.filter(connection__in=connections)
    return _by("connection", charges if since is None else charges.filter(at__gt=since))


def spent_lately() -> dict[tuple[str, str], float]:
    """The money spent within 24 hours, by the connection's name and the currency."""
    lately = Connection.objects.filter(charges__at__gt=clock.now() - DAY, charges__cost__isnull=False)
    rows = lately.order_by().values_list("name", "charges__currency")
    return {(name, currency): cost for name, currency, cost in rows.annotate(Sum("charges__cost"))}


def costs_of(response_ids: Collection[int]) -> dict[int, Money]:
    """The cost of each of these responses, with its guards and the attempts that failed."""
    return _by("response", Charge.objects.filter(response__in=response_ids))


def judging_spent(experiment: Experiment) -> tuple[int, int, Money]:
    """Tokens read and written for opinions, and their cost, over all attempts and judges."""
    opinions = Charge.objects.filter(experiment=experiment, purpose=Charge.Purpose.OPINION)
    tokens = opinions.aggregate(read=Sum("prompt_tokens"), written=Sum("completion_tokens"))
    return tokens["read"] or 0, tokens["written"] or 0, _sum(opinions)


def _sum(charges: QuerySet[Charge]) -> Money:
    return Money(charges.filter(_KNOWN).order_by().values_list("currency").annotate(Sum("cost")))


def _by(key: str, charges: QuerySet[Charge]) -> dict[Any, Money]:
    found: dict[Any, Money] = defaultdict(Money)
    rows = charges.filter(_KNOWN).order_by().values_list(key, "currency")
    for value, currency, cost in rows.annotate(Sum("cost")):
        found[value][currency] = cost
    return dict(found)


def cost_in_sql(response: str) -> tuple[Subquery, Coalesce]:
    """The cost of the response at this path and its currency; empty where none is known, or in two."""
    charges = Charge.objects.filter(_KNOWN, response=OuterRef(response)).order_by().values("response")
    found = charges.annotate(
        total=Sum("cost"), name=Min("currency"), currencies=Count("currency", distinct=True)
    ).filter(currencies=1)
    return Subquery(found.values("total")), Coalesce(Subquery(found.values("name")), Value(""))


def cost_each(experiment: Experiment) -> Money | None:
    """The mean cost of a response in a draft's trial; ``None`` without one, or where a cost is unknown."""
    tried = Response.objects.filter(
        policy__experiment=experiment, trial__isnull=False, state=Response.State.DONE
    )
    costs = costs_of(ids := list(tried.values_list("pk", flat=True)))
    if not ids or len(costs) < len(ids):
        return None
    return Money.of(each for cost in costs.values() for each in cost.items()).times(1 / len(ids))


@dataclass(frozen=True)
class PolicySpending:
    """Tokens, time and cost of one policy's responses; its guards' cost and failed attempts' included.

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
    cost: Money = field(default_factory=Money)

    @property
    def cost_of_1000(self) -> Money:
        """The cost of a thousand responses."""
        return self.cost.times(1000 / self.responses) if self.responses else Money()

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
        )
    }
    purposes = [Charge.Purpose.RESPONSE, Charge.Purpose.GUARD]
    costs = _by("policy", Charge.objects.filter(experiment=experiment, purpose__in=purposes))
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
            cost=costs.get(pk, Money()),
        )
        for pk, index, row in ((pk, index, found.get(pk, {})) for pk, index in policies.items())
    ]
