"""A made-up arena: votes on pairs of policies, drawn at random from a Bradley-Terry model with ties."""

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.importing.votes import Vote, Winner

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def arena(
    n_votes: int,
    *,
    policies: int = 60,
    tasks: int = 13,
    ties: float = 0.4,
    spread: float = 0.6,
    texts: bool = True,
    seed: int = 1,
) -> list[Vote]:
    """The votes, oldest first, with everything that a file may hold; ``spread``: that of the strengths."""
    rng = random.Random(seed)
    strengths = [rng.gauss(0, spread) for _ in range(policies)]
    votes = []
    for n in range(n_votes):
        a, b = rng.sample(range(policies), 2)
        task = rng.randrange(tasks)
        a_wins = rng.random() < 1 / (1 + math.exp(strengths[b] - strengths[a]))
        winner = Winner.TIE if rng.random() < ties else Winner.A if a_wins else Winner.B
        response_a, response_b = (
            f"Answer of {policy} to task {task}. {'So it is. ' * 20}" if texts else None for policy in (a, b)
        )
        votes.append(
            Vote(
                place=f"line {n + 1}",
                task=f"Task {task}?",
                policy_a=f"model-{a}",
                policy_b=f"model-{b}",
                winner=winner,
                response_a=response_a,
                response_b=response_b,
                annotator=f"judge {rng.randrange(40)}",
                judged_at=_BEGINNING + timedelta(seconds=n),
                a_on_left=rng.random() < 0.5,
            )
        )
    return votes


def as_record(vote: Vote) -> dict[str, Any]:
    """A vote as a row of a table, as JSON has it."""
    sides = {True: "left", False: "right", None: ""}
    return {
        "task": vote.task,
        "policy_a": vote.policy_a,
        "policy_b": vote.policy_b,
        "winner": vote.winner.value,
        "response_a": vote.response_a,
        "response_b": vote.response_b,
        "annotator": vote.annotator,
        "judged_at": vote.judged_at.isoformat() if vote.judged_at else "",
        "side_a": sides[vote.a_on_left],
    }
