"""Settings of gunicorn, which reads this file by itself where it is started in this folder."""

import gc
import os
import shutil
import sys
import tempfile

from environs import Env

# As the settings do.
Env().read_env(".env", recurse=False)
if os.environ.get("LOG_FORMAT") == "json":
    from gunicorn.glogging import Logger

    from llmpo_site.logs import Objects

    class logger_class(Logger):  # noqa: N801 - the setting's name
        """gunicorn's own lines and its access log, as objects like those of our log."""

        def setup(self, cfg):
            super().setup(cfg)
            for handler in (*self.error_log.handlers, *self.access_log.handlers):
                handler.setFormatter(Objects())


def on_starting(server):
    """Let all processes of this server count in one folder, so that each can report all figures."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="llmpo-metrics-")


def on_exit(server):
    """Remove the folder."""
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)


def post_worker_init(worker):
    """Let a click take turns with an import or an export in the same process.

    A thread that returns from the database waits this long for each other thread, and a click returns twenty
    times. Each full garbage collection stops all threads. Three quarters of its objects are loaded modules,
    which never become garbage, so they are frozen.
    """
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
