"""The number of responses in hand follows what is measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.generation.batch_size import BatchSize


def settle(size: BatchSize, rate: Callable[[int], float], rounds: int = 40) -> int:
    """Let it measure an engine whose tokens per second depend on the size."""
    for _ in range(rounds):
        size.measured(tokens=int(1000 * rate(size.now)), seconds=1000.0)
    return size.now


@pytest.mark.parametrize(
    ("rate", "settled"),
    [
        (lambda n: 10 * n, 256),  # a GPU that is not full yet
        (lambda n: 10 * min(n, 64), 64),  # saturated
        (lambda n: 1000, 32),  # one at a time behind the scenes
        (lambda n: 10 * n if n <= 128 else 5 * n / 2, 128),  # thrashing beyond
    ],
)
def test_it_settles_where_more_brings_nothing(rate, settled):
    assert settle(BatchSize(32, 256), rate) == settled


def test_it_finds_a_new_place_when_the_work_changes():
    size = BatchSize(32, 256)
    assert settle(size, lambda n: 10 * min(n, 64)) == 64
    assert settle(size, lambda n: 10 * n, rounds=200) == 256


def test_it_stays_within_its_limits():
    assert settle(BatchSize(32, 100), lambda n: n) == 100
    assert settle(BatchSize(32, 8), lambda n: n) == 8


def test_noise_of_a_tenth_does_not_drive_it_far():
    size = BatchSize(32, 256)
    noise = iter([1.1, 0.9] * 100)
    assert settle(size, lambda n: 1000 * next(noise), rounds=45) <= 128


def test_nothing_measured_nothing_changed():
    size = BatchSize(32, 256)
    size.measured(tokens=0, seconds=1.0)
    size.measured(tokens=5, seconds=0.0)
    assert (size.now, size.tokens_per_second) == (32, None)
