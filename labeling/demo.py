"""The two experiments of the demo: one for people, one that the rule judge runs by itself."""

import json
import random
from dataclasses import replace
from pathlib import Path

from django.conf import settings

from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.generation import smollm2
from engine.models import Experiment

# What SmolLM2 wrote for the first experiment: for each policy, its responses in the order of the tasks.
_RECORDED = Path(__file__).parent / "demo_responses.json"
HUMAN_EXPERIMENT = "Which way of answering do people prefer?"
RULE_EXPERIMENT = "Adding numbers, judged by rule"

# How often each policy of the second experiment adds rightly.
_SKILLS = {
    "Careful · Step by step": 0.95,
    "Careful · Direct": 0.8,
    "Careful · Answer first": 0.75,
    "Hurried · Step by step": 0.6,
    "Hurried · Direct": 0.5,
    "Hurried · Answer first": 0.4,
}

_TASKS = (
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

_GOLD = [
    GoldSpec(
        prompt="How do I boil an egg?",
        better=("1. Put the egg into boiling water.\n2. Wait seven minutes.\n3. Cool it under cold water."),
        worse="Eggs of the evening boil over in my egg, and the door is a pleasant reply to all the water.",
        explanation="A response that makes sense and helps beats one that does neither.",
    )
]


def writes_responses() -> bool:
    """True if a backend of this machine writes the responses of the first experiment."""
    return settings.GENERATION_BACKEND != Experiment.Backend.SMOLLM2 or smollm2.installed()


def human_spec() -> ExperimentSpec:
    """Four ways to answer everyday questions, written by SmolLM2: now, or earlier if it is not installed."""
    return _written_now() if writes_responses() else _recorded(_written_now())


def _recorded(spec: ExperimentSpec) -> ExperimentSpec:
    responses: dict[str, list[str]] = json.loads(_RECORDED.read_text(encoding="utf-8"))
    own = ("excluded", "space")
    n_tasks = min(map(len, responses.values()))
    return replace(
        spec,
        tasks=spec.tasks[:n_tasks],
        factors=[FactorSpec(name="Policy", kind="imported", levels={name: {} for name in responses})],
        settings={name: value for name, value in spec.settings.items() if name not in own}
        | {"responses": Experiment.Responses.IMPORTED},
        ready_made=[
            ReadyMade(task, policy, text)
            for policy, texts in responses.items()
            for task, text in enumerate(texts)
        ],
    )


def _written_now() -> ExperimentSpec:
    """Clear-cut enough for 30 to 100 clicks."""
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
        tasks=[TaskSpec(prompt=task) for task in _TASKS],
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
            "excluded": [
                {"Way of answering": sentence, "Sampling": wild},
                {"Way of answering": kind, "Sampling": wild},
            ],
            "space": "unstructured",
            "allow_tie": True,
            "tell_outcome": True,
            "practice": len(_GOLD),
        },
        gold=_GOLD,
    )


def rule_spec() -> ExperimentSpec:
    """Ready-made answers of six policies to sums, judged by reference answers."""
    rng = random.Random(7)  # noqa: S311
    sums = [divmod(number, 100) for number in rng.sample(range(10_000), 200)]
    return ExperimentSpec(
        name=RULE_EXPERIMENT,
        factors=[FactorSpec(name="Policy", kind="imported", levels={name: {} for name in _SKILLS})],
        tasks=[TaskSpec(prompt=f"What is {a} + {b}?", reference=str(a + b)) for a, b in sums],
        settings={
            "judge": Experiment.Judge.RULE,
            "responses": Experiment.Responses.IMPORTED,
            "delta": 0.05,
            "budget": 3000,
            "seed": 2,
        },
        ready_made=[
            ReadyMade(task, policy, str(a + b + (rng.random() > skill) * rng.choice((-10, -1, 1, 10))))
            for task, (a, b) in enumerate(sums)
            for policy, skill in _SKILLS.items()
        ],
    )
