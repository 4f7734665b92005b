"""Money, and prices of vendors' models from the table that comes with genai-prices; nothing is looked up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from engine.domain.profiles import VENDORS, Provider

# Providers that the table names; it knows a few others by address.
_NAMES: Mapping[Provider, str] = {
    Provider.OPENAI: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GOOGLE: "google",
    Provider.MISTRAL: "mistral",
    Provider.BEDROCK: "aws",
    Provider.AZURE: "azure",
    Provider.OPENROUTER: "openrouter",
}
# All prices of the table are in it.
CURRENCY = "USD"


class Money(dict[str, float]):
    """Amounts by currency, which do not add up; empty where no cost is known."""

    @classmethod
    def of(cls, amounts: Iterable[tuple[str, float]]) -> Money:
        """The sum of amounts, each with its currency."""
        total = cls()
        for currency, amount in amounts:
            total[currency] = total.get(currency, 0.0) + amount
        return total

    def times(self, factor: float) -> Money:
        """So many times as much."""
        return Money({currency: factor * amount for currency, amount in self.items()})

    def __str__(self) -> str:
        return " and ".join(f"{_digits(amount)} {name}" for name, amount in sorted(self.items()))

    def of_limit(self, limit: float) -> str:
        """The amounts, each with what it may be at most."""
        most = _digits(limit)
        each = (f"{_digits(amount)} of {most} {name}" for name, amount in sorted(self.items()))
        return " and ".join(each) or f"nothing of {most}"


def _digits(amount: float) -> str:
    """Cents, or two digits of an amount that is smaller."""
    decimals = 2 if amount <= 0 or amount >= 0.1 else 1 - math.floor(math.log10(amount))
    return f"{amount:,.{decimals}f}"


@dataclass(frozen=True, slots=True)
class Proposed:
    """Prices of a million tokens, in dollars, of short prompts where long ones cost more."""

    prompt: float
    cached: float | None
    completion: float


def propose(provider: Provider, model_id: str, address: str, *, now: datetime) -> Proposed | None:
    """The list prices of a model; ``None`` where the table does not know it."""
    if provider is Provider.WORKER:
        return None
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - takes a second, and few need it

    name = _NAMES.get(provider)
    url = None if name else address or VENDORS[provider].address
    try:
        _, model = get_snapshot().find_provider_model(model_id, None, name, url)
    except LookupError:
        return None
    prices = model.get_prices(now)
    prompt, completion = (_base(getattr(prices, f"{side}_mtok", None)) for side in ("input", "output"))
    if prompt is None or completion is None:
        return None
    return Proposed(prompt, _base(getattr(prices, "cache_read_mtok", None)), completion)


def _base(price: Any) -> float | None:
    """A price that may grow with the length of the prompt, for a short one."""
    found = getattr(price, "base", price)
    return float(found) if isinstance(found, (Decimal, int, float)) else None
