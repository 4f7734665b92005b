"""LLM-PO's experiment design: ask for a pair of policies, tell the outcome, read the decision.

Pure numpy and scipy: nothing here knows of the web application, of queues or of language models. The same
files are the package ``llmpo_core`` of the distribution llmpo-core, so modules import each other relatively.

Throughout, K is the number of policies, P = K (K - 1) / 2 that of unordered pairs, and d that of features. R
is the number of runs side by side: a live experiment is one run, a simulation has many. Arguments `i`, `j`
are two policies, or, as arrays of shape (R,), two policies in every run. `runs` in `keep` is a mask of shape
(R,), true for the runs to go on with. Outcomes lie in [0, 1], and `wins[i, j]` is the sum of those of i
against j. Strengths are log-odds, and evidence is the natural logarithm of an e-value, in nats. [LLM-PO] is
the paper. Of the application's documents, docs/algorithm.md has its equations, and docs/proofs.md the proofs
of what goes beyond it.
"""

from .design import Design
from .forecasts import SPREADS, Plan, forecast, random_strengths
from .improvement import Improvement
from .ranking import Place, Rate, Standing
from .sampling import Sampler, Situation, Stateless
from .spaces import BradleyTerry, Factorial, Unstructured
from .succession import Succession
from .types import Answers, Claim, ClaimState, Conclusion, Decision, Missing, Remaining, StopReason

__version__ = "0.2.0"

__all__ = [
    "SPREADS",
    "Answers",
    "BradleyTerry",
    "Claim",
    "ClaimState",
    "Conclusion",
    "Decision",
    "Design",
    "Factorial",
    "Improvement",
    "Missing",
    "Place",
    "Plan",
    "Rate",
    "Remaining",
    "Sampler",
    "Situation",
    "Standing",
    "Stateless",
    "StopReason",
    "Succession",
    "Unstructured",
    "forecast",
    "random_strengths",
]
