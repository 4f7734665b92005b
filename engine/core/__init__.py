"""LLM-PO's experiment design: ask for a pair of policies, tell the outcome, read the decision.

Pure numpy and scipy: nothing here knows of the web application, of queues or of language models.
"""

from engine.core.design import Design
from engine.core.planner import Forecast, Plan, forecast, forecast_rest
from engine.core.problem import BradleyTerry, Factorial, Unstructured
from engine.core.types import Decision, StopReason

__all__ = [
    "BradleyTerry",
    "Decision",
    "Design",
    "Factorial",
    "Forecast",
    "Plan",
    "StopReason",
    "Unstructured",
    "forecast",
    "forecast_rest",
]
