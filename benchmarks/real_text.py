"""The paper's real experiments on text that ``benchmarks.tinylm`` wrote and the rule judge compares.

Six policies, two system prompts × three strategies, answer held-out tasks of the paper's four kinds.
"""

import json
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.simulated import Instance
from benchmarks.tinylm.runtime import Writer
from benchmarks.tinylm.tasks import tasks_of
from engine.core.allocation import best_policy
from engine.core.types import BoolArray, FloatArray
from engine.domain.conversations import chat
from engine.judges.rule import is_correct, judge

PERSONAS = {
    "careful": "You are a careful tutor. Check every step.",
    "hasty": "You are in a hurry. Just guess quickly.",
}
STRATEGIES = {
    "direct": "Answer directly.",
    "steps": "Think step by step, then give the answer.",
    "after": "Give the answer first, then explain.",
}
POLICIES = tuple(product(PERSONAS, STRATEGIES))
# For tasks that need steps, the judge prefers the response that shows them.
PREFER = {
    "object_counting": "steps",
    "word_unscrambling": "concise",
    "second_word_letter": "concise",
    "sum": "steps",
}
TEMPERATURE, MAX_TOKENS = 0.7, 64
BATCH = 128

# Policy, task, and number of the response among that policy's responses to the task.
Place = tuple[int, int, int]
Pool = dict[Place, str]


@dataclass(frozen=True)
class Judged:
    """The judge's preferences between the policies on one kind of task, over every pair of responses.

    Attributes
    ----------
    mu
        Shape (K, K): mean outcome of i against j, a coin counting ½.
    standard_error
        Shape (K, K): of that mean, as an estimate for all tasks of the kind.
    accuracy
        Shape (K,): share of correct responses.
    """

    mu: FloatArray
    standard_error: FloatArray
    accuracy: FloatArray

    @property
    def oracle(self) -> BoolArray:
        """Shape (K,): the best set, which is the best policy and those not significantly worse (95%)."""
        best = int(best_policy(self.mu))
        not_worse: BoolArray = self.mu[best] - 1.96 * self.standard_error[best] <= 0.5
        return not_worse

    def instance(self, n_runs: int, seed: int) -> Instance:
        """So many runs, each with the policies in an order of its own.

        Draw a task and then a response of each policy, uniformly and with replacement, and judge them: the
        outcomes are independent with mean `mu`. Bernoulli draws have the same law.
        """
        rng = np.random.default_rng(seed)
        order = rng.permuted(np.tile(np.arange(len(POLICIES)), (n_runs, 1)), axis=1)
        return Instance(self.mu[order[:, :, None], order[:, None, :]], self.oracle[order], None, {})


def write_pool(kinds: Sequence[str], n_tasks: int, n_samples: int, folder: Path, executor: Executor) -> None:
    """Have the model write what `folder` lacks, and show the progress."""
    folder.mkdir(parents=True, exist_ok=True)
    pools = {kind: read_pool(folder, kind) for kind in kinds}
    batches: list[tuple[str, list[Place]]] = []
    for kind, pool in pools.items():
        wanted = product(range(len(POLICIES)), range(n_tasks), range(n_samples))
        missing = [place for place in wanted if place not in pool]
        batches += [(kind, missing[i : i + BATCH]) for i in range(0, len(missing), BATCH)]
    with tqdm(total=sum(len(places) for _, places in batches), desc="responses", unit="") as progress:
        for (kind, places), texts in zip(batches, executor.map(_write, batches), strict=True):
            pools[kind].update(zip(places, texts, strict=True))
            save_json(_path(folder, kind), [[*place, text] for place, text in pools[kind].items()])
            progress.update(len(places))


def read_pool(folder: Path, kind: str) -> Pool:
    """The responses of a kind that were written so far."""
    path = _path(folder, kind)
    if not path.exists():
        return {}
    return {
        (policy, task, sample): text for policy, task, sample, text in json.loads(path.read_text("utf-8"))
    }


def judge_pool(kind: str, n_tasks: int, n_samples: int, folder: Path) -> Judged:
    """Compare every two policies on every task, each response of one with each of the other."""
    pool = read_pool(folder, kind)
    tasks = tasks_of(kind, n_tasks)
    K, samples = len(POLICIES), range(n_samples)
    outcome = np.full((K, K, n_tasks), 0.5)
    for (i, j), (task, item) in product(combinations(range(K), 2), enumerate(tasks)):
        outcome[i, j, task] = np.mean(
            [
                _outcome(pool[i, task, a], pool[j, task, b], item.reference, PREFER[kind])
                for a, b in product(samples, samples)
            ]
        )
        outcome[j, i, task] = 1.0 - outcome[i, j, task]
    correct = [
        [is_correct(pool[k, task, a], item.reference) for task, item in enumerate(tasks) for a in samples]
        for k in range(K)
    ]
    return Judged(
        outcome.mean(axis=2), outcome.std(axis=2, ddof=1) / np.sqrt(n_tasks), np.mean(correct, axis=1)
    )


def save_json(path: Path, value: object) -> None:
    """Replace the file whole, so that an interruption leaves the one before."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(value), "utf-8")
    draft.replace(path)


def _path(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.json"


@cache
def _writer() -> Writer:
    return Writer()


def _write(batch: tuple[str, list[Place]]) -> list[str]:
    kind, places = batch
    tasks = tasks_of(kind, 1 + max(task for _, task, _ in places))
    asked = [(tasks[task].prompt, *POLICIES[policy]) for policy, task, _ in places]
    return _writer().write(
        [chat(f"{task}\n\n{STRATEGIES[strategy]}", PERSONAS[persona]) for task, persona, strategy in asked],
        [(task * 1000 + sample) * len(POLICIES) + policy for policy, task, sample in places],
        TEMPERATURE,
        MAX_TOKENS,
    )


@cache
def _coins() -> tuple[int, int]:
    """Seeds with which the judge's coin falls left, and right."""

    def side(seed: int) -> str:
        return judge(left="", right="", reference="x", prefer="concise", seed=seed).choice

    seeds = range(100)
    return next(s for s in seeds if side(s) == "left"), next(s for s in seeds if side(s) == "right")


def _outcome(left: str, right: str, reference: str, prefer: str) -> float:
    choices = [
        judge(left=left, right=right, reference=reference, prefer=prefer, seed=seed).choice
        for seed in _coins()
    ]
    return choices.count("left") / 2
