"""The workers that count as alive, as every page and alarm sees it."""

import ast
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from engine.models import WorkerPulse
from engine.selectors import workers

pytestmark = pytest.mark.django_db


def seen(name: str, seconds_ago: float, **details: object) -> None:
    seen_at = timezone.now() - timedelta(seconds=seconds_ago)
    WorkerPulse.objects.create(queue="generation", worker=name, seen_at=seen_at, details=details)


PATIENCE = settings.CLAIM_SECONDS + 3 * settings.SWEEP_SECONDS


@pytest.mark.parametrize(
    ("seconds_ago", "details", "alive"),
    [
        (0, {}, True),
        (PATIENCE - 5, {}, True),
        (PATIENCE + 5, {}, False),
        (PATIENCE + 5, {"loading": True}, True),
        (899, {"loading": True}, True),
        (905, {"loading": True}, False),
        (PATIENCE + 5, {"loading": False}, False),
    ],
)
def test_a_worker_is_alive_while_its_silence_has_a_reason(seconds_ago, details, alive):
    seen("w", seconds_ago, **details)
    assert workers.latest("generation").alive is alive
    assert workers.is_alive("generation") is alive


def test_of_several_the_one_that_is_alive_counts():
    seen("dead", 300)
    seen("loading", 400, loading=True)
    assert workers.latest("generation").name == "loading"
    assert [worker.name for worker in workers.seen("generation")] == ["dead", "loading"]


def test_one_that_was_never_seen_is_not_alive():
    seen("w", 0)
    assert workers.latest("analysis") is None
    assert not workers.is_alive("analysis")


def test_nobody_else_reads_pulses():
    users = set()
    for package in ("engine", "labeling"):
        for path in (Path(settings.BASE_DIR) / package).rglob("*.py"):
            names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
            if "WorkerPulse" in names:
                users.add(str(path.relative_to(settings.BASE_DIR)))
    assert users == {"engine/selectors/workers.py", "engine/services/workers.py"}, "the latter writes them"
