"""A planner that takes in what people do at once, for tests that look at outcomes, counts and the log.

It runs in the caller's transaction, after each act of an annotator, unless a test has `late_planner`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.db import transaction

from engine.services import judging, serving
from engine.services.locks import locked_experiment
from engine.services.showings import settle_assignments

is_prompt = True


def settle_now(experiment_id: int) -> None:
    """Settle what people did in an experiment."""
    with transaction.atomic():
        settle_assignments(experiment=locked_experiment(experiment_id))


@contextmanager
def late() -> Iterator[None]:
    """Leave everything to rounds of planning."""
    global is_prompt  # noqa: PLW0603 - one for all tests
    was, is_prompt = is_prompt, False
    try:
        yield
    finally:
        is_prompt = was


def _promptly(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def prompt(**given: Any) -> Any:
        done = act(**given)
        if is_prompt:
            settle_now(given["experiment_id"] if "experiment_id" in given else given["experiment"].pk)
        return done

    return prompt


def install() -> None:
    """Settle after each act. To be called before any test imports the acts by their names."""
    judging.record_answer = _promptly(judging.record_answer)
    for name in ("desk", "skip", "take_back"):
        setattr(serving, name, _promptly(getattr(serving, name)))
