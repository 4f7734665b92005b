"""The command ``llmpo``: all processes and operations of an installation, whose state is in one folder."""

import argparse
import importlib
import os
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from environs import Env

from llmpo_site import folders

WORKERS = {
    "control": "-P solo -Q control",
    "analysis": "-P solo -Q analysis",
    "generation": "-P solo -Q generation",
    "judging": "-P solo -Q judging",
    # Servers write its responses, so a long stream, a judge and a test run at the same time.
    "remote": "-P threads -c 3 -Q generation,judging",
}
_HELP = f"""\
usage: llmpo [--data FOLDER] COMMAND ...

  llmpo demo          the whole application with two experiments to try, until Ctrl-C
  llmpo serve         the whole application for this machine and its network, empty at first, until Ctrl-C;
                      after an upgrade it backs up and migrates the database
  llmpo import FILE   make a draft experiment from a file, also promptfoo's
  llmpo gate          check the prompts of a pull request, in CI (the distribution llmpo-client)
  llmpo check         say what this installation lacks
  llmpo manage ...    any other operation, such as: llmpo manage backup FILE

single processes, for a supervisor of your own:
  llmpo web           the web server
  llmpo worker NAME   a worker: {", ".join(WORKERS)}
  llmpo beat          the clock of the workers

--data FOLDER has everything that it keeps: database, settings (.env), logs, backups.
Each command has --help.
"""


def main() -> None:
    """Run the command that was typed."""
    # Also a log file gets each line at once.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--data", type=Path)
    given, rest = own.parse_known_args()
    if not rest or rest[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_HELP)
        return
    command, *arguments = rest
    if command == "gate":
        _gate(arguments)
        return
    _settle(given.data, is_demo=command == "demo")
    if command in _PROCESSES:
        _PROCESSES[command](arguments)
    elif command == "import":
        django("upgrade")
        django("load_experiment", *arguments)
    elif command == "manage":
        django(*arguments)
    elif command == "check":
        django("check", "--database", "default", *arguments)
        django("readiness")
    elif command in {"demo", "serve"}:
        django(command, *arguments)
    else:
        raise SystemExit(f"There is no command {command!r}.\n\n{_HELP}")


def _gate(arguments: Sequence[str]) -> None:
    try:
        gate = importlib.import_module("llmpo_client.gate")
    except ModuleNotFoundError:
        raise SystemExit("llmpo gate is part of the client: pip install llmpo-client") from None
    gate.main(arguments)


def django(*arguments: str, program: str = "llmpo") -> None:
    """Run a command of Django's command line."""
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - read after the settings

    try:
        execute_from_command_line([program, *arguments])
        sys.stdout.flush()
    except BrokenPipeError:
        # Someone who reads the first lines alone, as `head` does, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _settle(data: Path | None, *, is_demo: bool) -> None:
    """Choose the folder of the state, and make the key of a new installation."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    env = Env()
    env.read_env(folders.BASE / ".env", recurse=False)
    if data is None:
        usual = Path.home() / ".llm-po" if folders.IS_INSTALLED else folders.BASE / "var"
        data = Path(env.str("VAR_DIR", "") or usual / ("demo" if is_demo else ""))
    data = data.expanduser().absolute()
    os.environ["VAR_DIR"] = str(data)
    env.read_env(data / ".env", recurse=False)
    if not env.str("SECRET_KEY", ""):
        data.mkdir(parents=True, exist_ok=True)
        os.environ["SECRET_KEY"] = key = secrets.token_urlsafe(48)
        file, line = data / ".env", f"SECRET_KEY={key}\n"
        file.touch(mode=0o600)
        # Somebody may have written settings, and no key.
        text = file.read_text(encoding="utf-8") or (folders.RESOURCES / ".env.example").read_text("utf-8")
        text, found = re.subn(r"(?m)^SECRET_KEY=[ \t]*\n", line, text, count=1)
        file.write_text(text if found else line + text, encoding="utf-8")


def _web(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="llmpo web")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes; each has eight threads")
    given = parser.parse_args(arguments)
    address = f"{given.host}:{given.port}"
    if sys.platform == "win32":
        # gunicorn needs a system with fork.
        django("runserver", address, "--noreload")
        return
    from gunicorn.app.wsgiapp import run  # noqa: PLC0415 - absent on Windows

    configuration = folders.RESOURCES / "gunicorn.conf.py"
    options = f"--bind {address} --workers {given.workers} --threads 8 --access-logfile - --no-control-socket"
    sys.argv = ["gunicorn", "llmpo_site.wsgi", "--config", str(configuration), *options.split()]
    run()


def _worker(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="llmpo worker")
    parser.add_argument("name", choices=WORKERS)
    name = parser.parse_args(arguments).name
    if name == "remote":
        os.environ["GENERATION_BACKEND"] = "remote"
    quiet = "--without-gossip --without-mingle --without-heartbeat"
    _celery(f"worker {quiet} {WORKERS[name]} -n {name}@%h")


def _beat(arguments: Sequence[str]) -> None:
    argparse.ArgumentParser(prog="llmpo beat").parse_args(arguments)
    _celery("beat --pidfile=")


def _celery(arguments: str) -> None:
    from celery.__main__ import main as celery  # noqa: PLC0415 - its processes alone need it

    sys.argv = ["celery", "-A", "llmpo_site", *arguments.split()]
    celery()


_PROCESSES: dict[str, Callable[[Sequence[str]], None]] = {"web": _web, "worker": _worker, "beat": _beat}
