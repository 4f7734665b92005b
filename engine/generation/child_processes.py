"""Kills child processes when their parent dies."""

import multiprocessing
import subprocess
from collections.abc import Iterable
from threading import Event, Thread
from types import TracebackType
from typing import Self

# A line means that all went well; the end of the file, that its writer is gone.
_SCRIPT = 'read -r line || kill "$@"'
_LOOK_SECONDS = 0.1


class Lifeline:
    """Ends other processes (SIGTERM) as soon as this one is gone, however that came: kill -9 too.

    A shell waits at the end of a pipe whose other end only this process holds. It is in a session of its own,
    so that a signal to this process's whole group leaves it there to do its work.

    Parameters
    ----------
    pids
        The processes to end.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._shell = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, pids)],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def let_go(self) -> None:
        """Leave the processes alone from now on: they have ended, or somebody else ends them."""
        self._shell.communicate(b"\n")


class NewChildren:
    """A lifeline for the processes that multiprocessing starts within a ``with`` block, from their start on.

    A thread looks for them, as a library may start them at any moment of a long call. After the block they
    stay on the lifeline; after one that fails they are let go.
    """

    def __init__(self) -> None:
        self._lifeline: Lifeline | None = None
        self._others: set[int] = set()
        self._held: set[int] = set()
        self._over = Event()
        self._thread = Thread(target=self._watch, name="lifeline", daemon=True)

    def __enter__(self) -> Self:
        self._others = _children()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            self._look()
        else:
            self.let_go()

    def let_go(self) -> None:
        """As that of `Lifeline`."""
        if self._lifeline is not None:
            self._lifeline.let_go()
            self._lifeline = None

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        found = _children() - self._others
        if found == self._held:
            return
        # A process that is forked holds the pipes that were open then, so the earlier line may not notice.
        earlier, self._lifeline, self._held = self._lifeline, Lifeline(found) if found else None, found
        if earlier is not None:
            earlier.let_go()


def _children() -> set[int]:
    return {child.pid for child in multiprocessing.active_children() if child.pid}
