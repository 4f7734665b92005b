"""What generation has cost, and what of it was for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db.models import Sum

from engine.models import (
    Comparison,
    Experiment,
    Response,
)
from engine.selectors.opinions import judging_cost


@dataclass(frozen=True)
class Waste:
    """What was generated and never judged."""

    generated: int
    unused: int
    unused_tokens: int

    @property
    def share(self) -> float:
        return self.unused / self.generated if self.generated else 0.0


def waste(experiment: Experiment) -> Waste:
    """How much of what was written no judgment has used: after the decision, none ever will."""
    written = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    judged = Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
    unused = written.exclude(pk__in=judged.values("response_i")).exclude(pk__in=judged.values("response_j"))
    return Waste(
        generated=written.count(),
        unused=unused.count(),
        unused_tokens=unused.aggregate(total=Sum("completion_tokens"))["total"] or 0,
    )


def cost(experiment: Experiment) -> float:
    """What the experiment's tokens, judging included, cost at the prices of the settings, in their currency."""
    tokens = Response.objects.filter(policy__experiment=experiment).aggregate(
        prompt=Sum("prompt_tokens"), completion=Sum("completion_tokens")
    )
    prompt = (tokens["prompt"] or 0) * settings.PRICE_PROMPT_TOKENS
    written = (prompt + (tokens["completion"] or 0) * settings.PRICE_COMPLETION_TOKENS) / 1e6
    return written + judging_cost(experiment)
