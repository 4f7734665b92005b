"""The two experiments of the demo: one for people, one that the rule judge runs by itself.

People read what SmolLM2 writes, where it is installed; else what the built-in model writes.
"""

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
_SAMPLING = FactorSpec(
    name="Sampling", kind="sampling", levels={"T = 0.7": {"temperature": 0.7, "max_tokens": 64}}
)

_GOLD = [
    GoldSpec(
        prompt="What is 12 + 29?",
        better="41",
        worse="31",
        explanation="A right answer beats a wrong one: 12 and 29 are 41.",
    )
]


_EVERYDAY_TASKS = (
    "How do I make a good cup of tea?",
    "How can I fall asleep faster?",
    "I want to start running. How do I begin?",
    "How do I remove a coffee stain from a shirt?",
    "How can I save water at home?",
    "My plant has yellow leaves. What can I do?",
    "I have a job interview tomorrow and I am nervous.",
    "What should I pack for a weekend at the sea?",
    "How do I tell a friend that I cannot come to her party?",
    "How can I remember people's names?",
    "How do I keep my desk tidy?",
    "I forgot my password. What do I do now?",
    "How can I eat more vegetables?",
    "How do I learn the words of a new language?",
    "How do I cook rice?",
    "My neighbour plays loud music at night. What can I say?",
    "How can I spend less time on my phone?",
    "How do I write a thank-you note to my aunt?",
    "What can I do on a rainy Sunday with a child?",
    "How do I choose a present for a colleague?",
    "My bicycle makes a strange noise. What should I check?",
    "How do I take a good picture of the moon?",
    "How can I get up earlier in the morning?",
    "How do I make friends in a new town?",
    "How can I keep bread fresh?",
    "I have a headache after a long day of work. What helps?",
    "How do I give a short speech at a birthday?",
    "How can I heat my home with less energy?",
    "How do I clean a window without streaks?",
    "My train is late and I will miss a meeting. What should I write?",
    "How can I drink less coffee?",
    "How do I prepare for a hike in the mountains?",
    "How do I ask my boss for a day off?",
    "How can I read more books?",
    "How do I make a simple soup?",
    "I lost my keys. What should I do first?",
    "How do I teach a dog to sit?",
    "How can I calm down before a test?",
    "How do I plan a small garden?",
    "How do I say sorry to a friend?",
)


_EVERYDAY_GOLD = [
    GoldSpec(
        prompt="How do I boil an egg?",
        better=("1. Put the egg into boiling water.\n2. Wait seven minutes.\n3. Cool it under cold water."),
        worse="Eggs of the evening boil over in my egg, and the door is a pleasant reply to all the water.",
        explanation="A response that makes sense and helps beats one that does neither.",
    )
]


def human_spec() -> ExperimentSpec:
    """Two prompts × three strategies on tasks that a person can check at a glance."""
    return ExperimentSpec(
        name=HUMAN_EXPERIMENT,
        factors=[_PROMPTS, _STRATEGIES, _GUARDRAIL, _SAMPLING],
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


def everyday_spec() -> ExperimentSpec:
    """Four ways to answer everyday questions, written by SmolLM2; clear-cut enough for 30 to 100 clicks."""
    calm, wild = "Calm", "Wild"
    sentence, kind, steps = "One sentence", "Kind, with a next step", "Three steps"
    return ExperimentSpec(
        name=HUMAN_EXPERIMENT,
        factors=[
            FactorSpec(
                name="System prompt",
                kind="prompt",
                # The words that the model knows from its training.
                levels={
                    "Usual": {"text": "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}
                },
            ),
            FactorSpec(
                name="Way of answering",
                kind="strategy",
                levels={
                    sentence: {"instruction": "Answer in one short sentence."},
                    kind: {
                        "instruction": (
                            "Be kind. Answer in two or three sentences, and end with what to do next."
                        )
                    },
                    steps: {"instruction": "Answer with a numbered list of three short steps."},
                },
            ),
            FactorSpec(
                name="Sampling",
                kind="sampling",
                levels={
                    calm: {"temperature": 0.3, "top_p": 0.9, "max_tokens": 160},
                    wild: {"temperature": 1.4, "max_tokens": 160},
                },
            ),
        ],
        tasks=[TaskSpec(prompt=task) for task in _EVERYDAY_TASKS],
        settings={
            "question": "Which response would you rather get?",
            "guidelines": (
                "Somebody asks an everyday question. Choose the response that you would rather get: one that "
                "makes sense, helps, and is pleasant to read.\n\n"
                "The model is a very small one, so neither response may be good. Choose the better one all "
                "the same. If they are equally good, say so. If you cannot tell, skip."
            ),
            "claim": "good_enough",
            "epsilon": 0.15,
            "delta": 0.1,
            "budget": 400,
            "seed": 1,
            "backend": Experiment.Backend.SMOLLM2,
            "excluded": [
                {"Way of answering": sentence, "Sampling": wild},
                {"Way of answering": kind, "Sampling": wild},
            ],
            "space": "unstructured",
            "allow_tie": True,
            "tell_outcome": True,
            "practice": len(_EVERYDAY_GOLD),
        },
        gold=_EVERYDAY_GOLD,
    )


def rule_spec(*, backend: str = "") -> ExperimentSpec:
    """As the paper's real experiments: two prompts × three strategies, judged by reference answers.

    ``backend``: the one that writes; empty: any.
    """
    return ExperimentSpec(
        name=RULE_EXPERIMENT,
        factors=[_PROMPTS, _STRATEGIES, _GUARDRAIL, _SAMPLING],
        tasks=_tasks("sum"),
        settings={
            "judge": Experiment.Judge.RULE,
            "delta": 0.05,
            "budget": 3000,
            "seed": 2,
            "backend": backend,
        },
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
