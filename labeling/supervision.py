"""Processes that supervisor keeps alive: those of the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from configparser import RawConfigParser
from pathlib import Path

# One interpreter's threads for linear algebra are plenty for each process.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def supervise(
    programs: Mapping[str, str],
    *,
    folder: Path,
    working_directory: Path,
    environments: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a supervisor that runs these commands, and starts each again when it ends.

    Logs go to ``folder/log``. ``environments`` has variables for single programs, as supervisor writes them:
    ``NAME=value,OTHER=value``.
    """
    logs = folder / "log"
    logs.mkdir(parents=True, exist_ok=True)
    config = RawConfigParser()
    config["supervisord"] = {
        "nodaemon": "true",
        "silent": "true",
        "logfile": str(logs / "supervisord.log"),
        "pidfile": str(folder / "supervisord.pid"),
        "childlogdir": str(logs),
    }
    for name, command in programs.items():
        config[f"program:{name}"] = {
            "environment": (environments or {}).get(name, ""),
            "command": command.replace("%", "%%"),
            "directory": str(working_directory),
            "autorestart": "true",
            "startretries": "10",
            "stopasgroup": "true",
            "killasgroup": "true",
            "stopwaitsecs": "15",
            "redirect_stderr": "true",
            "stdout_logfile": str(logs / f"{name}.log"),
        }
    path = folder / "supervisord.conf"
    with path.open("w") as file:
        config.write(file)
    return subprocess.Popen(  # noqa: S603 - our own configuration
        [sys.executable, "-m", "supervisor.supervisord", "-c", str(path)],
        cwd=working_directory,
        env={**os.environ, **_ONE_THREAD},
        start_new_session=True,
    )
