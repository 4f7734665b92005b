"""The log: lines for people or objects for programs, each with what it is about."""

import json
import logging
import os
import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest
from django.conf import settings
from gunicorn.config import Config

from engine.domain import log_context
from llmpo_site import celery
from llmpo_site.logs import Lines, Objects
from tests.factories import assign_next, make_experiment


@pytest.fixture(autouse=True)
def nothing_else():
    log_context.begin()
    yield
    log_context.begin()


def record(message: str = "Hello") -> logging.LogRecord:
    return logging.LogRecord("engine", logging.INFO, __file__, 1, message, (), None)


def test_a_line_ends_with_what_it_is_about():
    lines = Lines("%(levelname)s: %(message)s")
    assert lines.format(record()) == "INFO: Hello"
    log_context.begin(request="abc")
    log_context.note(experiment=7)
    assert lines.format(record()) == "INFO: Hello [request=abc experiment=7]"
    log_context.begin(request="def")
    assert lines.format(record()) == "INFO: Hello [request=def]"


def test_an_object_has_a_field_for_each():
    log_context.begin(task="advance", task_id="t1", experiment=7)
    log_context.note(claim="c1", comparison=8)
    said = json.loads(Objects().format(record("A \n B")))
    assert said.pop("time")
    assert said == {
        "level": "INFO", "logger": "engine", "message": "A \n B", "task": "advance", "task_id": "t1",
        "experiment": "7", "claim": "c1", "comparison": "8",
    }  # fmt: skip


@pytest.fixture
def said(caplog):
    """The subject of each record. Its handler is that of the whole run, so the filter must go."""
    found: list[dict[str, str]] = []

    def note(_: logging.LogRecord) -> bool:
        found.append(dict(log_context.names()))
        return True

    caplog.handler.addFilter(note)
    yield found
    caplog.handler.removeFilter(note)


@pytest.mark.django_db
def test_a_request_is_named_in_the_log_even_where_it_is_refused(said, client):
    reply = client.get("/no/such/page/")
    assert "X-Request-ID" not in reply
    assert len(said[-1]["request"]) == 32
    given = client.get("/no/such/page/", headers={"x-request-id": "proxy-0123456789"})
    assert given["X-Request-ID"] == said[-1]["request"] == "proxy-0123456789"
    for hostile in ("short", "x" * 65, "a b c d e f g h", "<script>alert(1)</script>", "ünïcödé-0123"):
        assert "X-Request-ID" not in client.get("/no/such/page/", headers={"x-request-id": hostile})
        assert len(said[-1]["request"]) == 32


def test_an_answer_before_all_others_is_named_too(said, client, settings):
    settings.METRICS_TOKEN = "t" * 30
    log_context.begin(request="somebody-elses")
    assert client.get("/metrics").status_code == 401
    assert said
    assert all(each["request"] != "somebody-elses" for each in said)


def test_gunicorn_writes_objects_where_the_log_does(monkeypatch, capsys):
    file = settings.BASE_DIR / "gunicorn.conf.py"
    assert "logger_class" not in runpy.run_path(str(file))
    monkeypatch.setenv("LOG_FORMAT", "json")
    config = Config()
    config.set("accesslog", "-")
    logger = runpy.run_path(str(file))["logger_class"](config)
    logger.info("Listening at: %s", "http://127.0.0.1:8000")
    logger.access_log.info('"GET %s"', "/join/secret/")
    out, err = capsys.readouterr()
    assert json.loads(err)["message"] == "Listening at: http://127.0.0.1:8000"
    assert json.loads(out)["logger"] == "gunicorn.access"


@pytest.mark.django_db
def test_a_click_is_about_its_experiment_and_its_comparison(client, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    assignment = assign_next(experiment_id=experiment.pk, annotator=annotator)
    assert assignment is not None
    client.force_login(annotator)
    client.post(f"/label/{experiment.pk}/judge/", {"token": assignment.token, "choice": "left"})
    assert log_context.names()["experiment"] == str(experiment.pk)
    assert log_context.names()["comparison"] == str(assignment.comparison_id)


def test_a_task_is_about_its_experiment_until_it_ends():
    task = SimpleNamespace(name="engine.tasks.advance", request=SimpleNamespace(is_eager=False))
    celery._begin(task_id="t1", task=task, args=(7,))
    assert log_context.names() == {"task": "advance", "task_id": "t1", "experiment": "7"}
    celery._end(task=task)
    assert log_context.names() == {}


@pytest.mark.slow
def test_the_setting_chooses_the_form():
    code = (
        "import django; django.setup(); import logging; from engine.domain import log_context;"
        "log_context.begin(experiment=7); logging.getLogger('engine').warning('Look: %s', '/join/secret/')"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "llmpo_site.settings", "LOG_FORMAT": "json"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stderr
    found = json.loads(said)
    assert found.pop("time")
    assert found == {"level": "WARNING", "logger": "engine", "message": "Look: /join/…/", "experiment": "7"}


def in_a_worker(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    start = "from llmpo_site.celery import app; app.Worker(pool='solo', loglevel='WARNING').on_start()"
    return subprocess.run(
        [sys.executable, "-c", f"import logging, sys; {start}; {code}"],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "llmpo_site.settings"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_workers_standard_output_is_a_file():
    # vLLM on a GPU asks for it, in a process that it forks from the worker's.
    started = in_a_worker("sys.stdout.fileno()")
    assert started.returncode == 0, started.stderr


@pytest.mark.slow
def test_a_worker_logs_what_the_setting_says_and_no_line_for_each_message():
    """Celery's own level, WARNING where its command names none, hid that a model is being loaded."""
    say = "logging.getLogger('engine').info('loading'); logging.getLogger('celery.app.trace').info('done')"
    said = in_a_worker(say, LOG_LEVEL="INFO").stderr
    assert "loading" in said
    assert "done" not in said
    assert "loading" not in in_a_worker(say, LOG_LEVEL="WARNING").stderr
