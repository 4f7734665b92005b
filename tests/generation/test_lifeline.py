"""Processes that would outlive the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.workers import has_ended, wait_until

pytestmark = pytest.mark.slow

# A child in a session of its own, which nothing else would end, and its number.
STARTED = """
import os, signal, subprocess, sys
from engine.generation.lifeline import Lifeline
child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
line = Lifeline([child.pid])
print(child.pid, flush=True)
"""


def child_of(ending: str) -> int:
    """The child of a process that started it and then ended in this way."""
    ended = subprocess.run(
        [sys.executable, "-c", STARTED + ending],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
        check=False,
    )
    return int(ended.stdout)


@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os._exit(1)",
        "raise SystemExit",
        # As a container runtime or a shell does it: the whole group at once.
        "os.killpg(0, signal.SIGKILL)",
    ],
)
def test_they_end_with_it_however_it_ends(ending):
    child = child_of(ending)
    wait_until(lambda: has_ended(child), 60, "the child outlived its process")


def test_they_are_left_alone_once_let_go():
    # It waits for the shell, which would have ended the child by then.
    child = child_of("line.let_go(); os.kill(os.getpid(), signal.SIGKILL)")
    assert not has_ended(child)
    os.kill(child, signal.SIGKILL)
