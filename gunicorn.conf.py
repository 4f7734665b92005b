"""Settings of gunicorn, which reads this file by itself where it is started in this folder."""

import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import django
from environs import Env

# As the settings do. The folder of an installation's user may hold a file `.env` of another program.
here = Path(__file__).resolve().parent
env = Env()
env.read_env(here / ".env", recurse=False)
env.read_env(Path(env.str("VAR_DIR", "") or here / "var") / ".env", recurse=False)
if env.str("LOG_FORMAT", "") == "json":
    from gunicorn.glogging import Logger

    from llmpo_site.logs import Objects

    class logger_class(Logger):  # noqa: N801 - the setting's name
        """gunicorn's own lines and its access log, as objects like those of our log."""

        def setup(self, cfg):
            super().setup(cfg)
            for handler in (*self.error_log.handlers, *self.access_log.handlers):
                handler.setFormatter(Objects())


# From <sys/prctl.h>: the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


def on_starting(server):
    """Prepare what the processes of this server share, before it listens.

    Several count in one folder, so that each can report all figures. The code is loaded once for all of them:
    a request that came while each loaded it for itself would wait. It starts no thread and opens no
    connection, which a process could not inherit; what does, as tracing, starts in each.
    """
    if server.cfg.workers > 1:
        # Mapped files: a write to one on a full disk ends the process. So they are kept off the disk, and one
        # process alone has none.
        memory = Path("/dev/shm")  # noqa: S108 - a new folder in it
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(
            prefix="llmpo-metrics-", dir=memory if memory.is_dir() else None
        )
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    django.setup()
    from llmpo_site.preloading import load  # noqa: PLC0415 - reads the settings

    load()
    _freeze()


def on_exit(server):
    """Remove the folder."""
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        shutil.rmtree(folder, ignore_errors=True)


def post_fork(server, worker):
    """End a process whose master was killed.

    It would keep the port until its last request ends, up to 30 seconds, and the next server could not
    listen. Nothing is lost: a request that is cut off may be sent again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def post_worker_init(worker):
    """Let a click take turns with an import or an export in the same process.

    A thread that returns from the database waits this long for each other thread, and a click returns twenty
    times.
    """
    sys.setswitchinterval(0.0005)
    _freeze()


def _freeze():
    """Spare the garbage collector what is loaded.

    Each full collection stops all threads. Three quarters of its objects are loaded modules, which never
    become garbage. Processes share their memory for as long as no collection looks at them.
    """
    gc.collect()
    gc.freeze()
