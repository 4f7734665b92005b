"""A language model that judges, for tests: what it answers is a function of the two texts in the order it
reads them.
"""

import json
import re
from collections.abc import Callable

from django.conf import settings

from engine.generation.base import GenerationRequest
from engine.judges import llm_worker
from engine.models import Experiment, Opinion
from engine.services.opinions import ask_opinions, change_llm_judge
from tests.backends import ScriptedBackend, number_in, user_of

Reads = Callable[[str, str], str]


def verdict(letter: str, reason: str = "It is better.") -> str:
    return json.dumps({"reason": reason, "verdict": letter})


def texts_of(request: GenerationRequest) -> tuple[str, str]:
    """The first and the second response, as the model reads them."""
    parts = [
        re.search(
            rf"\[RESPONSE {letter} (\w+)\]\n(.*?)\n\[END OF RESPONSE {letter} \1\]",
            user_of(request),
            re.DOTALL,
        )
        for letter in "AB"
    ]
    return parts[0][2], parts[1][2]


def judge_that(reads: Reads) -> ScriptedBackend:
    return ScriptedBackend(lambda request: reads(*texts_of(request)))


def prefers_larger(first: str, second: str) -> str:
    """Consistent: the larger number in either order; a tie if they are equal."""
    one, other = number_in(first), number_in(second)
    if one == other:
        return verdict("tie")
    return verdict("A" if one > other else "B")


def prefers_first(first: str, second: str) -> str:
    return verdict("A")


def shadow(experiment: Experiment, rubric: str = "", budget: int = 500) -> None:
    change_llm_judge(experiment_id=experiment.pk, stage="shadow", rubric=rubric, budget=budget)


def vote(experiment: Experiment, rubric: str = "", budget: int = 500) -> None:
    change_llm_judge(experiment_id=experiment.pk, stage="votes", rubric=rubric, budget=budget)


def opine(experiment: Experiment, reads: Reads = prefers_larger, batches: int = 50) -> ScriptedBackend:
    """Ask about everything that wants an opinion, and have it answered."""
    backend = judge_that(reads)
    for _ in range(batches):
        ask_opinions(experiment_id=experiment.pk, most=settings.JUDGE_BATCH)
        if not llm_worker.give_opinions(worker="j", backend=backend):
            break
    return backend


def opinions_of(experiment: Experiment) -> list[Opinion]:
    return list(Opinion.objects.filter(comparison__experiment=experiment).order_by("pk"))
