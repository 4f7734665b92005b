"""Settings of gunicorn, which reads this file by itself where it is started in this folder."""

import os
import shutil
import tempfile


def on_starting(server):
    """Have all processes of this server count in one folder, so that each can tell Prometheus of all."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="llmpo-metrics-")


def on_exit(server):
    """Remove the folder."""
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
