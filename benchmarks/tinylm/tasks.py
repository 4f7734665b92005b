"""Puzzles of the paper's four tasks that the model was not trained on, in the paper's wording."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TaskItem:
    """A task as a user would send it, with its reference answer."""

    prompt: str
    reference: str


def tasks_of(kind: str, n: int) -> list[TaskItem]:
    """The first `n` of the 150 tasks of a kind."""
    rows = json.loads(Path(__file__).with_name("tasks.json").read_text("ascii"))[kind]
    return [TaskItem(*row) for row in rows[:n]]
