"""The two experiments of the demo: one for people, one that the rule judge runs by itself."""

from __future__ import annotations

from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.generation.tinylm.tasks import sample_tasks
from engine.models import Experiment

HUMAN_EXPERIMENT = "Which way of answering do people prefer?"
RULE_EXPERIMENT = "Adding numbers, judged by rule"

_PROMPTS = FactorSpec(
    name="System prompt",
    kind="prompt",
    levels={
        "Careful tutor": {"text": "You are a careful tutor. Check every step."},
        "In a hurry": {"text": "You are in a hurry. Just guess quickly."},
    },
)
_STRATEGIES = FactorSpec(
    name="Strategy",
    kind="strategy",
    levels={
        "Direct": {"instruction": "Answer directly."},
        "Step by step": {"instruction": "Think step by step, then give the answer."},
        "Answer, then explain": {"instruction": "Give the answer first, then explain."},
    },
)
_GUARDRAIL = FactorSpec(
    name="Guardrail",
    kind="guardrail",
    levels={"Clean language": {"instruction": "Never use offensive language."}},
)

_GOLD = [
    GoldSpec(
        prompt="What is 12 + 29?",
        better="41",
        worse="31",
        explanation="A right answer beats a wrong one: 12 and 29 are 41.",
    )
]


def human_spec() -> ExperimentSpec:
    """Two prompts × three strategies on tasks that a person can check at a glance."""
    return ExperimentSpec(
        name=HUMAN_EXPERIMENT,
        factors=[_PROMPTS, _STRATEGIES, _GUARDRAIL, _sampling(0.7)],
        tasks=_tasks("sum") + _tasks("word_unscrambling"),
        settings={
            "question": "Which response would you rather get?",
            "guidelines": (
                "A right answer beats a wrong one. Between two right ones, prefer the one that you would "
                "rather get: clear, and no longer than it needs to be.\n\n"
                'Example: for "What is 12 + 29?", "41" beats "31", and it is for you to say whether "41" or '
                '"2+9=11, carry 1. 1+2+1=4. Answer: 41" is better.\n\n'
                "If they are equally good, say so. If you cannot tell, skip."
            ),
            "delta": 0.05,
            "budget": 2000,
            "seed": 1,
            "allow_tie": True,
            "repeat_rate": 0.05,
            "practice": len(_GOLD),
        },
        gold=_GOLD,
    )


def rule_spec() -> ExperimentSpec:
    """As the paper's real experiments: two prompts × three strategies, judged by reference answers."""
    return ExperimentSpec(
        name=RULE_EXPERIMENT,
        factors=[_PROMPTS, _STRATEGIES, _GUARDRAIL, _sampling(0.7)],
        tasks=_tasks("sum"),
        settings={"judge": Experiment.Judge.RULE, "delta": 0.05, "budget": 3000, "seed": 2},
    )


def _sampling(temperature: float) -> FactorSpec:
    return FactorSpec(
        name="Sampling",
        kind="sampling",
        levels={f"T = {temperature}": {"temperature": temperature, "max_tokens": 64}},
    )


def _tasks(kind: str) -> list[TaskSpec]:
    """Held-out puzzles; sums are worded so that people understand them too."""
    return [
        TaskSpec(
            prompt=f"What is {item.prompt.replace(' ', ' + ')}?" if kind == "sum" else item.prompt,
            reference=item.reference,
        )
        for item in sample_tasks(kind, 200, seed=7)
    ]
