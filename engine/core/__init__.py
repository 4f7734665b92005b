"""LLM-PO's experiment design: ask for a pair of policies, tell the outcome, read the decision.

Pure numpy and scipy: nothing here knows of the web application, of queues or of language models.
"""

from engine.core.design import Design
from engine.core.problem import BradleyTerry, Factorial, Unstructured
from engine.core.types import Decision, StopReason

__all__ = ["BradleyTerry", "Decision", "Design", "Factorial", "StopReason", "Unstructured"]
