"""An end for processes that would outlive the one that started them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

# A line means that all went well; the end of the file, that its writer is gone.
_SCRIPT = 'read -r line || kill "$@"'


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
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def let_go(self) -> None:
        """Leave the processes alone from now on: they have ended, or somebody else ends them."""
        self._shell.communicate(b"\n")
