"""Calls of several threads at once, each with a database connection of its own."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run every call in a thread of its own, released together; their results, or the first error."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            barrier.wait()
            return call()
        finally:
            connection.close()

    pool = ThreadPoolExecutor(len(calls))
    futures = [pool.submit(run, call) for call in calls]
    pool.shutdown(wait=False)
    # A wait for a lock of this same thread would never end.
    return [future.result(timeout=120) for future in futures]


def blocked(call: Callable[[], Any]) -> Future[Any]:
    """Start a call in another thread, and return once it waits for a lock that this one holds."""

    def run() -> Any:
        try:
            return call()
        finally:
            connection.close()

    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = "
        "'Lock'"
    )
    for _ in range(1000):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(waiting)
            if cursor.fetchone()[0]:
                return future
        if future.done():
            pytest.fail(f"It waited for nothing and returned {future.result()!r}.")
        time.sleep(0.01)
    pytest.fail("It neither waits for a lock nor returns.")


def with_helpers(main: list[Callable[[], int]], helpers: list[Callable[[], Any]]) -> int:
    """Run the main calls at once, and the helpers over and over beside them; the sum of the main results."""
    over = threading.Event()

    def until_over(work: Callable[[], Any]) -> int:
        while not over.is_set():
            work()
            time.sleep(0.005)
        return 0

    def work_through() -> int:
        try:
            return sum(at_once(main))
        finally:
            over.set()

    done, *_ = at_once([work_through, *(lambda work=work: until_over(work) for work in helpers)])
    return int(done)
