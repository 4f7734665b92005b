"""Starting points for new experiments."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.domain.specs import ExperimentSpec, FactorSpec


@dataclass(frozen=True)
class Start:
    """A name for the address, a title, and the description to start from."""

    slug: str
    title: str
    text: str
    spec: ExperimentSpec


_PROMPTS = FactorSpec(
    "System prompt",
    "prompt",
    {
        "Plain": {"text": "You are a helpful assistant."},
        "Careful": {"text": "You are a careful assistant. Check every step before you answer."},
    },
)
_STRATEGIES = FactorSpec(
    "Strategy",
    "strategy",
    {
        "Direct": {"instruction": "Answer directly."},
        "Step by step": {"instruction": "Think step by step, then give the answer."},
        "Answer, then explain": {"instruction": "Give the answer first, then explain it."},
    },
)
_TEMPERATURES = FactorSpec(
    "Sampling",
    "sampling",
    {
        name: {"temperature": value, "max_tokens": 256}
        for name, value in {"Cool": 0.2, "Warm": 0.7, "Hot": 1.0}.items()
    },
)

STARTS = (
    Start(
        "prompts",
        "Compare system prompts",
        "One question: which system prompt is better? Two to start from; add as many as you have.",
        ExperimentSpec("", [_PROMPTS], []),
    ),
    Start(
        "prompts-temperatures",
        "Prompts × temperatures",
        "Two system prompts, each more or less free in its words: six policies.",
        ExperimentSpec("", [_PROMPTS, _TEMPERATURES], []),
    ),
    Start(
        "prompts-strategies",
        "2 prompts × 3 strategies",
        "Two system prompts crossed with three ways to reason: six policies, as in the paper.",
        ExperimentSpec("", [_PROMPTS, _STRATEGIES], []),
    ),
    Start(
        "blank", "From scratch", "An empty page; add what you want to compare.", ExperimentSpec("", [], [])
    ),
)


def comparing_models(names: Iterable[str]) -> ExperimentSpec:
    """These connections, all with one prompt."""
    models = FactorSpec("Model", "model", {name: {"name": name} for name in names})
    prompt = FactorSpec("System prompt", "prompt", {"Plain": _PROMPTS.levels["Plain"]})
    return ExperimentSpec("", [models, prompt], [])


def start_named(slug: str) -> Start | None:
    return next((start for start in STARTS if start.slug == slug), None)
