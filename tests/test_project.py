"""Rules for the project as a whole."""

import ast
import gc
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from environs import EnvValidationError

from engine.domain import limits
from llmpo_site import command
from tests.starting import settings_with

ROOT = Path(settings.BASE_DIR)

PURE_IMPORT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"django", "celery", "kombu", "vllm", "torch", "psycopg", "redis"}:
            raise ImportError(f"engine.core must do without {name}")

sys.meta_path.insert(0, Refuse())

from engine.core import Design, Unstructured

design = Design(Unstructured(3), seed=1)
while not design.decision.stopped:
    i, j = design.ask()
    design.tell(i, j, 1.0 if i < j else 0.0)
loaded = [name for name in sys.modules if name.startswith("engine.") and not name.startswith("engine.core")]
print(design.decision.best, loaded)
"""


WEB = """
import sys

from llmpo_site import wsgi
import llmpo_site.urls

print({"scipy.optimize", "openpyxl", "cvxpy", "pyarrow", "matplotlib"} & sys.modules.keys())
"""
WORKER = """
import sys

from llmpo_site import celery

celery.app.loader.import_default_modules()

loaded = sys.modules.keys()
print({"scipy.optimize", "openpyxl", "cvxpy", "pyarrow", "matplotlib", "llmpo_site.urls"} & loaded)
"""


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.slow
def test_the_engine_works_where_there_is_no_django_and_no_celery():
    done = subprocess.run(
        [sys.executable, "-c", PURE_IMPORT],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == "0 []\n"


@pytest.mark.slow
@pytest.mark.parametrize("program", [WEB, WORKER], ids=["web", "worker"])
def test_web_and_workers_start_without_what_few_of_them_need(program, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "SECRET_KEY": "x" * 50, "VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "set()\n"


def _environment_variables_read() -> dict[str, bool]:
    """The variables that the settings read, and whether they have a default."""
    variables = {}
    for node in ast.walk(ast.parse((ROOT / "llmpo_site" / "settings.py").read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "env"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            variables[node.args[0].value] = len(node.args) > 1
    return variables


def _environment_variables_shown() -> list[str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return [match[1] for line in lines if (match := re.match(r"#?\s?([A-Z][A-Z0-9_]*)=", line))]


def test_the_example_environment_lists_exactly_the_variables_that_are_read():
    shown = _environment_variables_shown()
    assert sorted(shown) == sorted(_environment_variables_read())
    assert len(shown) == len(set(shown))


def _as_text(default: Any) -> str:
    """A default as it stands in a file of variables."""
    match default:
        case bool():
            return str(default).lower()
        case list():
            return ",".join(default)
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def test_the_example_environment_shows_the_defaults():
    text = (ROOT / ".env.example").read_text()
    shown = dict(re.findall(r"^([A-Z][A-Z0-9_]*)=(.*)$", text, flags=re.MULTILINE))
    defaults = {}
    for node in ast.walk(ast.parse((ROOT / "llmpo_site" / "settings.py").read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="env")),
                args=[ast.Constant(value=name), ast.Constant() | ast.List() as default],
            ) if name in shown:
                defaults[name] = _as_text(ast.literal_eval(default))
    assert len(defaults) > 40
    assert {name: shown[name] for name in defaults} == defaults
    usual = {each.setting: str(each.default) for each in limits.LIMITS.values() if each.setting}
    assert dict(re.findall(r"^# (MOST_[A-Z_]+)=(.*)$", text, flags=re.MULTILINE)) == usual


def test_only_the_secret_key_must_be_given():
    assert [name for name, has_default in _environment_variables_read().items() if not has_default] == [
        "SECRET_KEY"
    ]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SECRET_KEY", ""),
        ("SECRET_KEY", "short"),
        ("DEBUG", "perhaps"),
        ("SWEEP_SECONDS", "0"),
        ("CLAIM_SECONDS", "soon"),
        ("GENERATION_BACKEND", "crystal-ball"),
        ("LOGIN_FAILURE_LIMIT", "-1"),
        ("DATABASE_URL", "nosuch://x"),
        ("TRUSTED_PROXIES", "10.0.0.0/99"),
        ("TRUSTED_PROXIES", "127.0.0.1,my-proxy"),
        ("RECENT_LOGIN_SECONDS", "never"),
        ("GENERATION_ENGINE_OPTIONS", "[1]"),
        ("LOG_LEVEL", "loud"),
        ("SITE_URL", "label.example.org"),
        ("OPENAI_BASE_URL", "localhost:8000/v1"),
    ],
)
def test_a_setting_that_makes_no_sense_stops_the_start_and_is_named(variable, value):
    with pytest.raises(EnvValidationError, match=f'Environment variable "{variable}" invalid'):
        settings_with(**{variable: value})


def test_two_settings_that_contradict_each_other_stop_the_start_and_are_named():
    with pytest.raises(ImproperlyConfigured, match=r"BUFFER_MAX \(2\) is below BUFFER_MIN \(8\)"):
        settings_with(BUFFER_MIN="8", BUFFER_MAX="2")


def test_a_web_process_spares_the_collector_what_was_loaded(monkeypatch):
    """Each full collection stops every click of the process for as long as it looks."""
    interval = sys.getswitchinterval()
    monkeypatch.setattr(gc, "collect", lambda: None)
    loaded = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    try:
        runpy.run_path(str(ROOT / "gunicorn.conf.py"))["post_worker_init"](None)
    finally:
        sys.setswitchinterval(interval)
    assert gc.get_freeze_count() >= before + len(loaded)


@pytest.mark.slow
def test_gunicorn_loads_the_code_once_for_all_its_processes(tmp_path):
    """Before it listens; no thread and no connection is left to them, which a fork does not carry over."""
    script = """
import runpy, sys, threading
from types import SimpleNamespace
runpy.run_path("gunicorn.conf.py")["on_starting"](SimpleNamespace(cfg=SimpleNamespace(workers=1)))
assert {"labeling.views.pair", "labeling.api.experiments", "kombu.transport.redis"} <= sys.modules.keys()
from django.db import connection
from django.template import engines
[loader] = engines["django"].engine.template_loaders
assert {"labeling/pair.html", "labeling/_stages.html"} <= loader.get_template_cache.keys()
assert threading.active_count() == 1
assert connection.connection is None
"""
    environment = {
        "SECRET_KEY": "only-for-tests-only-for-tests-only-for-tests",
        "VAR_DIR": str(tmp_path),
        "TMPDIR": str(tmp_path),
        # Nobody listens there.
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
    }
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


@pytest.mark.slow
def test_a_command_ends_quietly_where_its_reader_has_seen_enough(tmp_path):
    """As with `manage.py … | head`."""
    environment = {"SECRET_KEY": "only-for-tests-only-for-tests-only-for-tests", "VAR_DIR": str(tmp_path)}
    command = [sys.executable, "manage.py", "diffsettings", "--all"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 0


@pytest.mark.parametrize("written", ["", "OF_THEIRS=1\n", "OF_THEIRS=1\nSECRET_KEY=\n"])
def test_a_new_installation_gets_a_key_and_keeps_the_settings_that_are_there(written, tmp_path):
    file = tmp_path / ".env"
    if written:
        file.write_text(written)
    with mock.patch.dict(os.environ, {"SECRET_KEY": ""}):
        command._settle(tmp_path, is_demo=False)
        key = os.environ["SECRET_KEY"]
    lines = file.read_text().splitlines()
    assert lines.count(f"SECRET_KEY={key}") == 1
    assert len(key) > 40
    assert ("OF_THEIRS=1" in lines) == bool(written)
    assert written or file.stat().st_mode & 0o077 == 0
