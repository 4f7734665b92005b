"""A world to improve prompts in: answers have traits, people a known taste, and the writer a script."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.generation.base import GenerationRequest
from engine.models import Comparison, Experiment, Improvement, Proposal, Response, User
from engine.selectors.improvements import open_votes
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.improvements import add_proposals, claim_writing, note_writer_failure
from engine.services.judging import record_answer
from engine.services.planning import advance
from tests.backends import ScriptedBackend, system_of, user_of
from tests.factories import SECRET, add_member, assign_all, write_responses

# What people like: each trait adds so much to the log-odds of being preferred.
TASTE = {"short": 0.9, "warm": 0.8, "asks": 0.7}
FACTOR = "System prompt"


def answer(request: GenerationRequest) -> str:
    """An answer with the traits that its prompt asks for, and a number that makes every text a new one."""
    prompt = system_of(request).casefold()
    parts = ["Thank you so much for asking!"] if "warm" in prompt else []
    parts.append(f"Answer {request.seed:010d} to: {user_of(request)}")
    if "short" not in prompt:
        parts.append("Furthermore, " + "it has to be considered that this is so, " * 12 + "indeed.")
    if "question" in prompt:
        parts.append("Shall I say more?")
    return " ".join(parts)


def liking(text: str) -> float:
    """How much people like an answer, in log-odds."""
    traits = {
        "short": len(text) < 200,
        "warm": "Thank you" in text,
        "asks": text.endswith("?"),
    }
    return sum(TASTE[name] for name, there in traits.items() if there)


def make_world(
    annotators: Iterable[User], *, n_tasks: int = 24, gold: Sequence[GoldSpec] = (), **settings
) -> Experiment:
    """Two prompts that people like equally little, running, with nothing judged."""
    prompts = {"Formal": "You are a formal clerk.", "Exact": "You are an exact assistant."}
    spec = ExperimentSpec(
        name="Letters",
        factors=[FactorSpec(FACTOR, "prompt", {name: {"text": text} for name, text in prompts.items()})],
        tasks=[TaskSpec(f"Please tell me all about subject {n}") for n in range(n_tasks)],
        settings={"seed": 0, "claim": "good_enough", "allow_tie": False} | settings,
        gold=gold,
    )
    experiment = create_experiment(spec=spec)
    Experiment.objects.filter(pk=experiment.pk).update(secret=SECRET)
    for user in annotators:
        add_member(experiment, user)
    start(experiment_id=experiment.pk)
    plan_and_answer(experiment)
    experiment.refresh_from_db()
    return experiment


def plan_and_answer(experiment: Experiment) -> None:
    advance(experiment_id=experiment.pk)
    if Response.objects.filter(state=Response.State.WAITING).exists():
        write_responses(ScriptedBackend(answer))


def judge(experiment: Experiment, user: User, rng: np.random.Generator) -> bool:
    """Judge the next pair by the taste; False where nothing is ready."""
    held = assign_all(experiment_id=experiment.pk, annotator=user, n_wanted=1)
    if not held:
        return False
    shown = held[0].comparison
    gap = liking(shown.left.text) - liking(shown.right.text)
    choice = "left" if rng.random() < 1.0 / (1.0 + math.exp(-gap)) else "right"
    record_answer(experiment_id=experiment.pk, token=held[0].token, annotator=user, choice=choice)
    return True


Script = Callable[[str, list[Comparison], int], list[str]]
_CHANGES = (
    "Write at great length.",
    "Be short.",
    "Use many technical terms.",
    "Be warm.",
    "Never use a comma.",
    "End with a question.",
    "Answer like a pirate.",
    "Use the passive voice.",
)


def one_change_at_a_time(rng: np.random.Generator) -> Script:
    """A writer that adds one sentence to its parent: three in eight of its ideas are good."""

    def write(parent: str, votes: list[Comparison], n: int) -> list[str]:
        new = [change for change in _CHANGES if change not in parent]
        return [f"{parent} {new[place]}" for place in rng.permutation(len(new))[:n]]

    return write


def ask_writer(improvement: Improvement, script: Script) -> list[Proposal]:
    """Have the writer write what is wanted now, as a worker would."""
    wanted = claim_writing(improvement_id=improvement.pk)
    found: list[Proposal] = []
    for parent, n in (wanted or {}).items():
        origin = improvement.experiment.policies.get(index=parent)
        votes = open_votes(improvement, origin)
        texts = script(origin.levels.get(factor=improvement.factor).value["text"], votes, n)
        facts = {"sent": f"Improve on {len(votes)} votes.", "opened": [each.task_id for each in votes]}
        if texts:
            written = [(text, "People said so.") for text in texts]
            found += add_proposals(improvement_id=improvement.pk, parent=parent, written=written, **facts)
        else:
            why = "It has no more ideas."
            note_writer_failure(
                improvement_id=improvement.pk, parent=parent, reason=why, exhausted=True, **facts
            )
    return found


def run_to_the_end(
    improvement: Improvement,
    people: list[User],
    script: Script,
    rng: np.random.Generator,
    each: Callable[[], None] = lambda: None,
) -> Improvement:
    """Have people judge and the writer write until the improvement has ended."""
    experiment = improvement.experiment
    for turn in range(20 * improvement.clicks):
        improvement.refresh_from_db()
        if improvement.state != Improvement.State.OPEN:
            return improvement
        ask_writer(improvement, script)
        if not judge(experiment, people[turn % len(people)], rng):
            plan_and_answer(experiment)
        each()
    raise AssertionError("it did not end")
