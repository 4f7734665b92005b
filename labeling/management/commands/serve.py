"""An installation on this machine with one command: database, web server and workers; empty at first."""

import os
import socket
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from engine.models import Experiment
from engine.selectors.accounts import any_account
from labeling.accounts.first_account import first_account_path
from labeling.local_processes import answers, keep_running

# The commands of `llmpo`.
PROGRAMS = {
    "web": "web --host {host} --port {port}",
    "control": "worker control",
    "generation": "worker generation",
    "analysis": "worker analysis",
    "remote": "worker remote",
    "beat": "beat",
}
_CODE = "engine labeling llmpo_site"


class Command(BaseCommand):
    help = "Run an installation on this machine until Ctrl-C. Run again, it continues where it stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default="127.0.0.1", help="this machine's address in your network lets others in"
        )
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--reload", action="store_true", help="Start a process again when its code changes."
        )

    def handle(self, *args: Any, host: str, port: int, reload: bool, **options: Any) -> None:
        self._check_port(host, port)
        call_command("upgrade", stdout=self.stdout)
        call_command("collectstatic", verbosity=0, interactive=False)
        self.prepare()
        address, logs = f"{host}:{port}", settings.VAR_DIR / "log"
        self.stdout.write(f"Starting the web server and the workers, whose logs are in {logs} ...")
        # Models mostly run on this machine too, and only those to whom its user gives the right connect one.
        os.environ["ALLOW_PRIVATE_CONNECTIONS"] = "true"
        os.environ["ALLOWED_HOSTS"] = ",".join([*settings.ALLOWED_HOSTS, host])
        # Links in messages lead to the address that is printed, unless .env names another one.
        os.environ.setdefault("SITE_URL", f"http://{address}")
        try:
            keep_running(
                {name: _module(name, host, port, reload) for name in self.programs()},
                logs=logs,
                is_ready=lambda: answers(address) and self.is_ready(),
                announce=lambda: self.say_where_to_go(address),
            )
        finally:
            self.stdout.write("Stopped. Run it again to continue where you were.")

    def prepare(self) -> None:
        """Fill the migrated database before anything starts."""

    def programs(self) -> list[str]:
        """Without a generation worker for SmolLM2: its answers are good for the demo only."""
        needless = {"generation"} if settings.GENERATION_BACKEND != Experiment.Backend.VLLM else set()
        return [name for name in PROGRAMS if name not in needless]

    def is_ready(self) -> bool:
        return True

    def say_where_to_go(self, address: str) -> None:
        if any_account():
            self.stdout.write(f"\n  Open http://{address}\n")
        else:
            # Whoever opens it owns the installation. Nobody gets in by being "on this machine": behind a
            # proxy everybody is.
            self.stdout.write(
                f"\n  Open http://{address}{first_account_path()}\n\n"
                "  It makes the first account, which may do everything. Keep the link to yourself;\n"
                "  it works once, within a day.\n"
            )
        self.stdout.write("\n  Ctrl-C stops everything.\n")

    def _check_port(self, host: str, port: int) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise CommandError(
                    f"{host}:{port} cannot be used ({error.strerror}). Is it running already? "
                    "Stop it, or choose another port: --port 8001, with make PORT=8001."
                ) from error


def _module(name: str, host: str, port: int, reload: bool) -> str:
    command = f"llmpo_site {PROGRAMS[name].format(host=host, port=port)}"
    if not reload:
        return command
    # Django's own server watches its templates too.
    return (
        f"django runserver {host}:{port}"
        if name == "web"
        else f'watchfiles --filter python "{sys.executable} -m {command}" {_CODE}'
    )
