"""LLM-PO's experiment design: ask for a pair of policies, tell the outcome, read the decision.

Pure numpy and scipy: nothing here knows of the web application, of queues or of language models.
"""

from engine.core.design import Design
from engine.core.formula import closed_form
from engine.core.planner import Forecast, Plan, Simulations, forecast, forecast_rest
from engine.core.problem import BradleyTerry, Factorial, Unstructured
from engine.core.ranking import Place, Rate, Standing
from engine.core.sampling import Sampler, Situation, Stateless
from engine.core.types import Claim, ClaimState, Decision, StopReason

__all__ = [
    "BradleyTerry",
    "Claim",
    "ClaimState",
    "Decision",
    "Design",
    "Factorial",
    "Forecast",
    "Place",
    "Plan",
    "Rate",
    "Sampler",
    "Simulations",
    "Situation",
    "Standing",
    "Stateless",
    "StopReason",
    "Unstructured",
    "closed_form",
    "forecast",
    "forecast_rest",
]
