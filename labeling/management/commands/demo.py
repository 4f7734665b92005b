"""Everything on this machine with one command: database, demo data, web server and workers."""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from engine.generation import smollm2
from engine.models import Experiment
from engine.selectors.experiments import has_had_a_pair, of_name
from labeling.demo import HUMAN_EXPERIMENT
from labeling.management.commands.seed_demo import passwords
from labeling.supervision import supervise

# The workers are single processes: killed with -9, none leaves a child behind.
_WORKER = (
    "{python} -m celery -A llmpo_site worker -P solo --without-gossip --without-mingle --without-heartbeat"
)
PROGRAMS = {
    "web": "{python} -m gunicorn llmpo_site.wsgi --bind {host}:{port} --threads 8 --access-logfile -",
    "control": _WORKER + " -Q control -n control@%h",
    "generation": _WORKER + " -Q generation -n generation@%h",
    "analysis": _WORKER + " -Q analysis -n analysis@%h",
    # Its responses come from servers: a long stream of them, a judge and a test go on beside each other.
    "remote": _WORKER.replace("-P solo", "-P threads -c 3") + " -Q generation,judging -n remote@%h",
    "beat": "{python} -m celery -A llmpo_site beat --pidfile=",
}


def _reloading(name: str, command: str) -> str:
    """The same program, restarted when its code changes. Django's own server watches its templates too."""
    if name == "web":
        return "{python} manage.py runserver {host}:{port}"
    return f'{{python}} -m watchfiles --filter python "{command}" engine labeling llmpo_site'


class Command(BaseCommand):
    help = "Prepare and run the demo until Ctrl-C. Run again, it continues where it stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--reload", action="store_true", help="Start a process again when its code changes."
        )

    def handle(self, *args: Any, host: str, port: int, reload: bool, **options: Any) -> None:
        if importlib.util.find_spec("supervisor") is None:
            raise CommandError(
                "The demo needs supervisor. Run `make demo`, or `pip install -r requirements-demo.txt`."
            )
        self._check_port(host, port)
        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        if settings.GENERATION_BACKEND == Experiment.Backend.EMBEDDED and not smollm2.installed():
            self.stdout.write(
                f"{smollm2.MODEL_NAME} is not installed, so the small built-in model answers: sums, and "
                f"letters in another order. For responses worth reading: {smollm2.INSTALL}"
            )
        call_command("seed_demo", stdout=self.stdout)
        supervisor = self._supervise(host, port, reload=reload)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, lambda *_: supervisor.terminate())
        try:
            if self._wait_until_ready(supervisor, f"http://{host}:{port}"):
                self._say_where_to_go(f"http://{host}:{port}")
            supervisor.wait()
        finally:
            if supervisor.poll() is None:
                supervisor.terminate()
                supervisor.wait(timeout=60)
        self.stdout.write("Stopped. Run it again to continue where you were.")

    def _check_port(self, host: str, port: int) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise CommandError(
                    f"{host}:{port} cannot be used ({error.strerror}). Is the demo running already? "
                    "Stop it, or choose another port: make demo PORT=8001"
                ) from error

    def _supervise(self, host: str, port: int, *, reload: bool) -> subprocess.Popen[bytes]:
        programs, environments = dict(PROGRAMS), {"remote": "GENERATION_BACKEND=remote"}
        if self._human_experiment().backend == Experiment.Backend.SMOLLM2:
            programs["smollm2"] = _WORKER + " -Q generation -n smollm2@%h"
            # New experiments of the demo's visitors get the better of the two models.
            environments |= {
                "generation": "GENERATION_NAMED_ONLY=true",
                "smollm2": "GENERATION_BACKEND=smollm2",
            }
        if reload:
            programs = {name: _reloading(name, command) for name, command in programs.items()}
        commands = {
            name: command.format(python=sys.executable, host=host, port=port)
            for name, command in programs.items()
        }
        return supervise(
            commands,
            folder=settings.VAR_DIR,
            working_directory=settings.BASE_DIR,
            environments=environments,
        )

    def _wait_until_ready(self, supervisor: subprocess.Popen[bytes], url: str) -> bool:
        """Until the web server answers and the first generated pair waits for a click."""
        self.stdout.write(
            "Starting the web server and the workers; the first responses are being written ..."
        )
        while supervisor.poll() is None:
            if self._answers(url) and self._first_pair_ready():
                return True
            time.sleep(0.5)
        self.stderr.write(f"The processes did not start; see the logs in {settings.VAR_DIR / 'log'}.")
        return False

    def _answers(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(f"{url}/accounts/login/", timeout=5):  # noqa: S310 - our own address
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _first_pair_ready(self) -> bool:
        experiment = self._human_experiment()
        if experiment.state != Experiment.State.RUNNING:
            return True
        return has_had_a_pair(experiment)

    def _human_experiment(self) -> Experiment:
        return of_name(HUMAN_EXPERIMENT).get(maker=None)

    def _say_where_to_go(self, url: str) -> None:
        self.stdout.write(f"\n  Open {url}\n\n")
        for name, password in passwords().items():
            what = "compare pairs" if name == "annotator" else "make, run and watch experiments"
            known = (
                f"password {password}"
                if password
                else f"(manage.py changepassword {name} sets a new password)"
            )
            self.stdout.write(f"    {name:<10} {known}   to {what}\n")
        self.stdout.write(
            "\n  One experiment waits for your clicks; the other is judged by rule and moves by itself."
        )
        self.stdout.write(f"  Logs: {settings.VAR_DIR / 'log'}.  Ctrl-C stops everything.\n")
