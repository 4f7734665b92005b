"""Processes that would outlive the one that started them."""

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
from engine.generation.child_processes import Lifeline
child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
line = Lifeline([child.pid])
print(child.pid, flush=True)
"""


# As a library does it: two children that are forked one after the other within one long call.
LOADING = """
import multiprocessing, os, signal, time
from engine.generation.child_processes import NewChildren

def child():
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    time.sleep(600)

def started(n):
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    print(process.pid, flush=True)
    while len(children._held) < n:
        time.sleep(0.01)

earlier = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
earlier.start()
"""


def children_of(program: str) -> list[int]:
    """The children of a process that started them and then ended."""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
        check=False,
    )
    return [int(line) for line in ended.stdout.splitlines()]


def child_of(ending: str) -> int:
    """The child of a process that started it and then ended in this way."""
    [child] = children_of(STARTED + ending)
    return child


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


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
BLOCK = "with NewChildren() as children:\n    started(1)\n    started(2)\n"


@pytest.mark.parametrize("ending", [f"    {KILL}", KILL], ids=["within the block", "after it"])
def test_new_children_end_with_it_from_their_start_on(ending):
    """A worker that was killed while its model loaded left vLLM's process behind."""
    children = children_of(LOADING + BLOCK + ending)
    assert len(children) == 2
    for child in children:
        wait_until(lambda child=child: has_ended(child), 60, "the child outlived its process")


@pytest.mark.parametrize(
    "program",
    [
        f"{BLOCK}children.let_go()\n{KILL}",
        "try:\n    with NewChildren() as children:\n        started(1)\n        raise KeyError\n"
        f"except KeyError:\n    {KILL}",
    ],
    ids=["let go", "failed"],
)
def test_new_children_are_left_alone_once_let_go_and_where_the_block_fails(program):
    children = children_of(LOADING + program)
    assert children
    for child in children:
        assert not has_ended(child)
        os.kill(child, signal.SIGKILL)
