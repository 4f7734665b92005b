"""The rubric of a language model that judges, and the name under which its agreement with people is known."""

from __future__ import annotations

import hashlib

from django.conf import settings

from engine.models import Experiment
from engine.selectors.capabilities import DEMO_BACKENDS

# Raised whenever engine.judges.llm asks in other words: agreement was measured with the old ones.
WORDING = 1

DEFAULT_RUBRIC = """\
A response is better if it does what the task asks: it is correct, answers all of it, and keeps to the form \
asked for.
Of two responses that do so equally well, the clearer one is better. \
Length, tone and confidence are no merits of their own."""


def rubric_of(experiment: Experiment) -> str:
    """The experiment's rubric; where it has none, what its annotators are told, or else what goes for most
    tasks.
    """
    return experiment.rubric.strip() or experiment.guidelines.strip() or DEFAULT_RUBRIC


def why_no_judge() -> str:
    """The reason why no language model can judge here, and the remedy; empty if one can."""
    if settings.JUDGE_BACKEND in {"", *DEMO_BACKENDS}:
        return (
            "No language model that can judge is configured. The embedded models cannot judge: "
            "set JUDGE_BACKEND to vllm or openai, and JUDGE_MODEL."
        )
    return ""


def may_tie(experiment: Experiment) -> bool:
    """True if a tie is offered: where people may say that neither is better."""
    return experiment.allow_tie or experiment.allow_both_bad


def identity(experiment: Experiment) -> str:
    """A fingerprint of the model that judges and of all that it is told besides the comparison itself."""
    parts = (
        str(WORDING),
        settings.JUDGE_BACKEND,
        settings.JUDGE_MODEL,
        experiment.question,
        rubric_of(experiment),
        str(may_tie(experiment)),
    )
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()
