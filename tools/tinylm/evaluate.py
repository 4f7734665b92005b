"""Measure the shipped model on held-out tasks, through the backend that the application uses.

Usage::

    python -m tools.tinylm.evaluate              # the tables of docs/embedded-model.md
    python -m tools.tinylm.evaluate --speed      # tokens per second by batch size

Every cell takes the same ``--n`` held-out tasks with the same seeds, so that columns compare like with like.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.domain.conversations import chat
from engine.generation.base import GenerationRequest, GenerationResult, SamplingParams
from engine.generation.embedded import EmbeddedBackend
from engine.generation.tinylm import MODEL_FOLDER
from engine.generation.tinylm.tasks import KINDS, TaskItem, sample_tasks

STRATEGIES = {
    "direct": "Answer directly.",
    "steps": "Think step by step, then give the answer.",
    "after": "Give the answer first, then explain.",
}
PERSONAS = {
    "none": "",
    "careful": "You are a careful tutor. Check every step.",
    "hasty": "You are in a hurry. Just guess quickly.",
}
TEMPERATURES = (0.0, 0.7, 1.0, 1.3)
BATCH_SIZES = (1, 8, 32, 64)


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy: who answers, how, at what temperature."""

    persona: str
    strategy: str
    temperature: float


def extract_answer(text: str) -> str:
    """Final answer stated in a reply of any style, in lower case; empty if there is none."""
    stated = re.findall(r"answer(?: is|:)\s*([\w-]+)", text, flags=re.IGNORECASE)
    if stated:
        return stated[0].lower()
    first = re.match(r"\s*(?:Guess:\s*)?([\w-]+)\s*(?:[.!]|$)", text)
    return first.group(1).lower() if first else ""


def measure(backend: EmbeddedBackend, cell: Cell, items: Sequence[TaskItem]) -> float:
    """Share of the items that a policy answers correctly, each asked once with its place as seed."""
    sampling = SamplingParams(temperature=cell.temperature, max_tokens=64)
    requests = [
        GenerationRequest(
            key=i,
            messages=chat(f"{item.prompt}\n\n{STRATEGIES[cell.strategy]}", PERSONAS[cell.persona]),
            sampling=sampling,
            seed=i,
        )
        for i, item in enumerate(items)
    ]
    outcomes = [o for o in backend.generate(requests) if isinstance(o, GenerationResult)]
    return sum(extract_answer(o.text) == items[o.key].reference for o in outcomes) / len(items)


def print_accuracy(backend: EmbeddedBackend, n: int, temperatures: Sequence[float]) -> None:
    """Print one Markdown table: a row per task and temperature, a column per persona and strategy."""
    columns = [(persona, strategy) for persona in PERSONAS for strategy in STRATEGIES]
    print("| task | T | " + " | ".join(f"{persona}: {strategy}" for persona, strategy in columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for kind in KINDS:
        items = sample_tasks(kind, n, seed=0)
        for temperature in temperatures:
            cells = [Cell(persona, strategy, temperature) for persona, strategy in columns]
            shares = [f"{100 * measure(backend, cell, items):.0f}" for cell in cells]
            print(f"| {kind} | {temperature} | " + " | ".join(shares) + " |", flush=True)


def print_speed(backend: EmbeddedBackend) -> None:
    """Print tokens written per second of one core, by batch size, on step-by-step counting.

    The time is processor time of this process, because other processes run on the machine.
    """
    print("| rows at once | tokens/s | ms per response |")
    print("|---|---|---|")
    items = sample_tasks("object_counting", 256, seed=0)
    requests = [
        GenerationRequest(key=i, messages=chat(f"{item.prompt}\n\n{STRATEGIES['steps']}"), seed=i)
        for i, item in enumerate(items)
    ]
    list(backend.generate(requests[:1]))
    for size in BATCH_SIZES:
        batches = [requests[i : i + size] for i in range(0, 32 if size == 1 else len(requests), size)]
        started = time.process_time()
        results = [result for batch in batches for result in backend.generate(batch)]
        seconds = time.process_time() - started
        tokens = sum(r.completion_tokens for r in results if isinstance(r, GenerationResult))
        print(f"| {size} | {tokens / seconds:,.0f} | {1000 * seconds / len(results):.1f} |", flush=True)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=150, help="held-out tasks per cell")
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    parser.add_argument("--model", type=Path, default=MODEL_FOLDER)
    parser.add_argument("--speed", action="store_true", help="measure speed instead of accuracy")
    chosen = parser.parse_args()
    backend = EmbeddedBackend(chosen.model)
    if chosen.speed:
        print_speed(backend)
    else:
        print_accuracy(backend, chosen.n, chosen.temperatures)


if __name__ == "__main__":
    main()
