"""A crowd of annotators in simulated time: is a pair always ready, and how much is generated in vain?

    python -m benchmarks.generation_buffer [--annotators 50] [--click 3] [--batch-seconds 2] [--runs 3]

The database, `advance`, leases, clicks, claims and stored texts are the real ones; only the clock, the
annotators and the model are simulated. Annotators look at a pair for a uniform time around ``--click``
seconds and choose by a Bradley-Terry model. The one generation worker delivers each batch as a whole,
``--batch-seconds`` after it claimed it, which is harder than delivering one by one. The one control worker
takes ``--advance-seconds`` for each `advance`.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.installation import installation
from benchmarks.instances import preference_matrix

N_POLICIES = 6
N_TASKS = 50
COLUMNS = [
    "conclusion",
    "comparisons",
    "seconds",
    "requests",
    "misses",
    "longest_wait",
    "most_buffered",
    "generated",
    "unused",
]


@dataclass
class Crowd:
    """The simulation: a clock, and what is due when."""

    annotators: int
    click_seconds: float
    batch_seconds: float
    batch_size: int
    advance_seconds: float
    warm_up_seconds: float
    spread: float
    budget: int
    seed: int
    seconds: float = 0.0
    requests: int = 0
    waits: list[float] = field(default_factory=list)
    most_buffered: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _writing: bool = False
    _advancing: bool = False
    _advance_again: bool = False

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.seconds + seconds, next(self._numbers), what))

    def run(self) -> dict[str, Any]:
        """Simulate one experiment from its start to its decision."""
        from engine.selectors.counts import comparison_count  # noqa: PLC0415
        from engine.services.experiments import start  # noqa: PLC0415

        self.rng = np.random.default_rng(self.seed)
        self.wins = preference_matrix(self.spread * np.linspace(1, -1, N_POLICIES))
        with self._clock():
            self.experiment = self._create()
            start(experiment_id=self.experiment.pk)
            self._advance()
            for user in self.users:
                self.at(self.rng.uniform(0, self.click_seconds), lambda user=user: self._ask(user, None))
            while self._events and not self._over():
                self.seconds, _, what = heapq.heappop(self._events)
                what()
            written, unused = self._written()
            return {
                "conclusion": self.experiment.conclusion,
                "right": self.experiment.winner is not None and self.experiment.winner.index == 0,
                "comparisons": comparison_count(self.experiment.pk),
                "seconds": round(self.seconds),
                "requests": self.requests,
                "misses": len(self.waits),
                "found": 1 - len(self.waits) / max(1, self.requests),
                "longest_wait": max(self.waits, default=0.0),
                "generated": written,
                "unused": unused,
                "unused_share": unused / max(1, written),
                "most_buffered": self.most_buffered,
            }

    def _written(self) -> tuple[int, int]:
        """The number of responses written, and the number of them that no judgment used."""
        from engine.models import Comparison, Response  # noqa: PLC0415

        written = Response.objects.filter(policy__experiment=self.experiment, state=Response.State.DONE)
        judged = Comparison.objects.filter(experiment=self.experiment, state=Comparison.State.JUDGED)
        unused = written
        for half in ("response_i", "response_j"):
            unused = unused.exclude(pk__in=judged.values(half))
        return written.count(), unused.count()

    def _over(self) -> bool:
        self.experiment.refresh_from_db()
        return self.experiment.state != self.experiment.State.RUNNING

    @contextmanager
    def _clock(self) -> Iterator[None]:
        crowd, epoch = self, datetime(2026, 1, 1, tzinfo=UTC)

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return epoch + timedelta(seconds=crowd.seconds)

        # Below timezone.now, which the models' defaults hold on to.
        with patch("django.utils.timezone.datetime", Clock):
            yield

    def _create(self) -> Any:
        from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec  # noqa: PLC0415
        from engine.models import Membership, User  # noqa: PLC0415
        from engine.services.drafts import create_experiment  # noqa: PLC0415

        spec = ExperimentSpec(
            name=f"Crowd {self.seed}",
            factors=[FactorSpec("Prompt", "prompt", {f"{k}": {"text": f"{k}"} for k in range(N_POLICIES)})],
            tasks=[TaskSpec(f"Task {n}") for n in range(N_TASKS)],
            settings={"budget": self.budget, "seed": self.seed},
        )
        experiment = create_experiment(spec=spec)
        self.users = User.objects.bulk_create(
            User(username=f"{self.seed}-{n}") for n in range(self.annotators)
        )
        Membership.objects.bulk_create(Membership(experiment=experiment, user=user) for user in self.users)
        return experiment

    def _ask(self, user: Any, since: float | None) -> None:
        """``since``: when this annotator began to wait, if they do."""
        from engine.services.serving import desk  # noqa: PLC0415

        counts = self.seconds >= self.warm_up_seconds
        if since is None and counts:
            self.requests += 1
        lease = next(iter(desk(experiment=self.experiment, annotator=user, n_wanted=1).pairs), None)
        if lease is None:
            since = self.seconds if since is None else since
            self.at(0.25, lambda: self._ask(user, since))
            return
        if since is not None and counts:
            self.waits.append(self.seconds - since)
        self.at(self.click_seconds * self.rng.uniform(0.5, 1.5), lambda: self._click(user, lease))

    def _click(self, user: Any, lease: Any) -> None:
        from engine.services.judging import judge_leased  # noqa: PLC0415

        comparison = lease.comparison
        i_wins = self.rng.random() < self.wins[comparison.policy_i.index, comparison.policy_j.index]
        judge_leased(
            experiment_id=self.experiment.pk,
            token=lease.token,
            annotator=user,
            choice="left" if i_wins == comparison.i_on_left else "right",
        )
        if self._advancing:
            self._advance_again = True
        else:
            self._advancing = True
            self.at(self.advance_seconds, self._advance)
        self._ask(user, None)

    def _advance(self) -> None:
        from engine.models import Comparison  # noqa: PLC0415
        from engine.services.planning import advance  # noqa: PLC0415

        advance(experiment_id=self.experiment.pk)
        buffered = Comparison.objects.filter(experiment=self.experiment, state__in=["planned", "ready"])
        self.most_buffered = max(self.most_buffered, buffered.count())
        self._advancing, self._advance_again = self._advance_again, False
        if self._advancing:
            self.at(self.advance_seconds, self._advance)
        if not self._writing:
            self._write()

    def _write(self) -> None:
        from engine.services.generation import claim_responses  # noqa: PLC0415

        claim = claim_responses(worker="simulated", limit=self.batch_size)
        self._writing = bool(claim.responses)
        if self._writing:
            self.at(self.batch_seconds, lambda: self._deliver(claim))

    def _deliver(self, claim: Any) -> None:
        from engine.services.generation import Written, store_outcomes  # noqa: PLC0415

        outcomes = [
            # Two responses of one text would be judged a tie without anybody.
            Written(response.pk, f"text {response.pk}", "simulated", 10, 20, "stop", self.batch_seconds)
            for response in claim.responses
        ]
        store_outcomes(claim=claim.token, outcomes=outcomes)
        self._write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--annotators", type=int, default=50)
    parser.add_argument("--click", type=float, default=3.0, dest="click_seconds")
    parser.add_argument("--batch-seconds", type=float, default=2.0)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--advance-seconds", type=float, default=0.1)
    parser.add_argument("--warm-up", type=float, default=60.0, dest="warm_up_seconds")
    parser.add_argument(
        "--spread", type=float, default=0.5, help="the best policy's score; the worst one's is minus that"
    )
    parser.add_argument("--budget", type=int, default=20_000, help="comparisons at most")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = vars(parser.parse_args())
    runs, first_seed = arguments.pop("runs"), arguments.pop("seed")
    results = []
    print("  ".join(f"{column:>14}" for column in [*COLUMNS, "found", "unused share"]))
    with installation():
        for number in range(runs):
            result = Crowd(**arguments, seed=first_seed + number).run()
            cells = [f"{result[column]:>14}" for column in COLUMNS]
            cells += [f"{result['found']:>14.2%}", f"{result['unused_share']:>14.2%}"]
            print("  ".join(cells), flush=True)
            results.append(result)
    requests = sum(result["requests"] for result in results)
    total = {
        "benchmark": "generation_buffer",
        **arguments,
        "runs": runs,
        "found": 1 - sum(result["misses"] for result in results) / max(1, requests),
        "unused_share": sum(r["unused"] for r in results) / sum(r["generated"] for r in results),
        "wrong": sum(not result["right"] for result in results),
    }
    print(json.dumps(total))


if __name__ == "__main__":
    main()
