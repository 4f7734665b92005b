"""Seconds until the first page of the comparisons that contain a text.

    python -m benchmarks.text_search
    DATABASE_URL=postgres://… python -m benchmarks.text_search --comparisons 500000

Each comparison has two responses of 60 words, drawn from 20,000 as people's words are: the n-th with a chance
of 1/n. Three texts are looked for: part of a word that twenty responses have, a word that most have, and one
that none has. Also says how long 10,000 responses take to be stored, with the index and without. On a test
database of its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from benchmarks.installation import scratch_database

_N_WORDS = 20_000
_AT_ONCE = 20_000
_PLANTED = 20


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comparisons", type=int, default=100_000)
    parser.add_argument("--stored", type=int, default=10_000, help="responses stored to measure that")
    options = parser.parse_args(arguments)
    with scratch_database():
        row = measure(options.comparisons, options.stored)
    for name, value in row.items():
        print(f"{name:32}{value}")
    print(json.dumps(row))


def texts(seed: int) -> Iterator[str]:
    """Made-up texts of 60 words."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(_N_WORDS)]
    weights = list(accumulate(1 / rank for rank in range(1, _N_WORDS + 1)))
    while True:
        yield " ".join(rng.choices(words, cum_weights=weights, k=60))


def measure(n: int, stored: int) -> dict[str, Any]:
    """Fill the database, and look for texts in it."""
    from django.db import connection

    from engine.models import Comparison, Response
    from engine.models.full_text import install_after_migrate
    from engine.selectors.browsing import Selection, page_of, selected_comparisons

    experiment, policies, task = _experiment()
    made = texts(0)
    first = next(made).split()[0]
    for start in range(0, n, _AT_ONCE):
        size = min(_AT_ONCE, n - start)
        responses = Response.objects.bulk_create(
            Response(policy=policies[k % 2], task=task, seed=k, state="done", text=next(made))
            for k in range(2 * size)
        )
        Comparison.objects.bulk_create(
            Comparison(
                experiment=experiment,
                number=start + k + 1,
                policy_i=policies[0],
                policy_j=policies[1],
                task=task,
                response_i=responses[2 * k],
                response_j=responses[2 * k + 1],
                i_on_left=True,
                state="judged",
                outcome=1.0,
            )
            for k in range(size)
        )
    for pk in Response.objects.order_by("?").values_list("pk", flat=True)[:_PLANTED]:
        Response.objects.filter(pk=pk).update(text="A haystack, and an unneedled thread.")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")

    def page(text: str) -> int:
        return len(page_of(selected_comparisons(experiment, Selection(text=text))).comparisons)

    found = {"rare": "needle", "common": first, "missing": "zzzyzzzy"}
    row: dict[str, Any] = {"database": connection.vendor, "comparisons": n}
    for name, text in found.items():
        row[f"{name} (rows)"] = page(text)
        row[f"{name} (seconds)"] = min(_seconds(lambda text=text: page(text)) for _ in range(3))  # type: ignore[misc]

    def store() -> None:
        Response.objects.bulk_create(
            Response(policy=policies[0], task=task, seed=k, state="done", text=next(made))
            for k in range(stored)
        )

    row[f"{stored:,} stored, indexed (seconds)"] = _seconds(store)
    _without_index()
    row[f"{stored:,} stored, bare (seconds)"] = _seconds(store)
    install_after_migrate()
    return row


def _experiment() -> tuple[Any, list[Any], Any]:
    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
    from engine.services.drafts import create_experiment

    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Benchmark",
            factors=[FactorSpec("Prompt", "prompt", {"A": {"text": "Be A."}, "B": {"text": "Be B."}})],
            tasks=[TaskSpec("Write sixty words.")],
        )
    )
    task = experiment.tasks.get()
    return experiment, list(experiment.policies.all()), task


def _without_index() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP INDEX engine_response_trigrams")
        else:
            for event in ("added", "changed", "deleted"):
                cursor.execute(f"DROP TRIGGER engine_response_trigrams_{event}")


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return round(time.perf_counter() - start, 3)


if __name__ == "__main__":
    main()
