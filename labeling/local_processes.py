"""Processes of one machine that are started again when they end."""

import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
# Windows has the first two.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_STOP_SECONDS = 15


def keep_running(
    modules: Mapping[str, str],
    *,
    logs: Path,
    is_ready: Callable[[], bool],
    announce: Callable[[], None],
) -> None:
    """Run Python modules, by name, until a signal ends this process and them.

    ``modules`` has the arguments of ``python -m``. ``announce`` is called once ``is_ready``.
    """
    for number in _SIGNALS:
        signal.signal(number, lambda *_: sys.exit())
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    announced = False
    try:
        while True:
            for name, arguments in modules.items():
                if name not in running or running[name].poll() is not None:
                    running[name] = _start(arguments, logs / f"{name}.log")
            if not announced and is_ready():
                announce()
                announced = True
            time.sleep(0.5)
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        _stop(running.values())


def answers(address: str) -> bool:
    """True if the site at this address can work."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _start(arguments: str, log: Path) -> subprocess.Popen[bytes]:
    # One thread for linear algebra is plenty for each process.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, "-m", *shlex.split(arguments)],
            cwd=_ROOT,
            env={**os.environ, **threads},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End these processes and their children."""
    for process in processes:
        process.terminate()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        if sys.platform == "win32":
            process.kill()
        else:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
