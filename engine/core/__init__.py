"""LLM-PO's experiment design: ask for a pair of policies, tell the outcome, read the decision.

Pure numpy and scipy: nothing here knows of the web application, of queues or of language models. The same files are
the package ``llmpo_core`` of the distribution llmpo-core, so modules import each other relatively.
"""

from .design import Design
from .planner import Forecast, Plan, forecast, forecast_rest
from .problem import BradleyTerry, Factorial, Unstructured
from .ranking import Place, Rate, Standing
from .sampling import Sampler, Situation, Stateless
from .types import Claim, ClaimState, Decision, StopReason

__version__ = "0.2.0"

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
    "Situation",
    "Standing",
    "Stateless",
    "StopReason",
    "Unstructured",
    "forecast",
    "forecast_rest",
]
