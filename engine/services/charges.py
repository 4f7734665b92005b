"""Writes the ledger of what was spent on models."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.domain.list_prices import Money
from engine.domain.profiles import Provider
from engine.domain.replies import Usage
from engine.models import Charge, Connection
from engine.selectors.spending import cost_of


@dataclass(frozen=True, slots=True)
class Spent:
    """A model's reply, used or not.

    ``model``: the connection's name, or with ``of_worker`` the worker's model, whose name somebody may have
    given to a connection of theirs.
    """

    model: str
    usage: Usage
    purpose: Charge.Purpose
    experiment_id: int | None = None
    policy_id: int | None = None
    response_id: int | None = None
    of_worker: bool = False


def book(replies: Iterable[Spent]) -> Money:
    """Write the replies that had tokens into the ledger, at the prices of now; returns their known cost.

    Call it in the transaction that stores what the replies are for.
    """
    counted = [reply for reply in replies if reply.usage.is_known]
    if not counted:
        return Money()
    names = {reply.model for reply in counted}
    found = Connection.objects.filter(name__in=names)
    connections = {(each.name, each.provider == Provider.WORKER): each for each in found}
    charges = [_charge(reply, connections.get((reply.model, reply.of_worker))) for reply in counted]
    Charge.objects.bulk_create(charges)
    return Money.of((each.currency, each.cost) for each in charges if each.cost is not None)


def _charge(reply: Spent, connection: Connection | None) -> Charge:
    cost = None if connection is None else cost_of(connection, reply.usage)
    return Charge(
        model=reply.model[:200],
        connection=connection,
        purpose=reply.purpose,
        experiment_id=reply.experiment_id,
        policy_id=reply.policy_id,
        response_id=reply.response_id,
        prompt_tokens=reply.usage.prompt,
        cached_tokens=reply.usage.cached,
        completion_tokens=reply.usage.completion,
        thinking_tokens=reply.usage.thinking,
        cost=cost,
        currency="" if connection is None or cost is None else connection.currency,
    )
