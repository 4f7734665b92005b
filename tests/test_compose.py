"""compose.yaml and the Dockerfile, as far as they can be checked without a container."""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from celery.bin.celery import celery as celery_command
from django.conf import settings
from django.core.management import get_commands

from engine.domain.addresses import check_connection
from labeling.management.commands import serve
from llmpo_site import command
from llmpo_site.celery import app
from tests.test_project import _environment_variables_read

ROOT = Path(settings.BASE_DIR)
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
WORKERS = [name for name, service in OURS.items() if service["command"].startswith("celery ")]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def celery_options(command: str) -> dict[str, Any]:
    """A celery command line, read by celery itself."""
    program, _, application, kind, *arguments = shlex.split(command)
    assert (program, application) == ("celery", "llmpo_site")
    reader = celery_command.commands[kind]
    options, rest, _ = reader.make_parser(click.Context(reader)).parse_args(arguments)
    assert rest == []
    return options


def copied_into_the_image() -> list[str]:
    lines = re.findall(r"^COPY ([^-].*) \S+$", DOCKERFILE, re.MULTILINE)
    return [name for line in lines for name in line.split()]


@pytest.mark.parametrize("name", OURS)
def test_only_variables_that_the_settings_read_are_set(name):
    assert set(OURS[name]["environment"]) <= set(_environment_variables_read())
    assert OURS[name]["env_file"] == ".env"


def test_what_the_dockerfile_copies_is_there_and_not_ignored():
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = copied_into_the_image()
    assert {"manage.py", "engine", "labeling", "llmpo_site", "templates", "static"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert name in allowed


def test_a_worker_listens_to_every_queue():
    queues = {
        queue for name in WORKERS for queue in celery_options(SERVICES[name]["command"])["queues"].split(",")
    }
    assert queues == {
        app.conf.task_default_queue,
        *(route["queue"] for route in app.conf.task_routes.values()),
    }


@pytest.mark.parametrize("name", WORKERS)
def test_workers_listen_to_queues_that_there_are(name):
    options = celery_options(SERVICES[name]["command"])
    routed = {app.conf.task_default_queue, *(route["queue"] for route in app.conf.task_routes.values())}
    assert set(options["queues"].split(",")) <= routed
    if name == "control":
        assert options["beat"]
    else:
        # vLLM starts processes of its own, which a pool's may not; a solo worker hears of its stop in
        # mid-task. So do threads.
        pool = ("threads", "3") if name == "remote" else ("solo", "1")
        assert (options["pool"], options["concurrency"]) == pool


def test_the_demo_runs_the_workers_of_compose():
    assert set(serve.PROGRAMS) - {"web", "beat"} == {*WORKERS} - {"generation-gpu", "judging"}
    for name, options in command.WORKERS.items():
        own = celery_options(f"celery -A llmpo_site worker {options}")
        assert own["queues"] == celery_options(SERVICES[name]["command"])["queues"]


def test_the_database_is_migrated_before_anything_else_starts():
    _, manage, command, *_ = shlex.split(SERVICES["migrate"]["command"])
    assert (ROOT / manage).exists()
    assert command in get_commands()
    for name in set(OURS) - {"migrate"}:
        assert OURS[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


def test_a_model_of_the_host_is_reached_by_a_name(settings):
    """The web server checks the address, and the worker asks it."""
    for name in ("web", "remote"):
        assert OURS[name]["extra_hosts"] == ["host.docker.internal:host-gateway"]
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    head = (ROOT / "compose.yaml").read_text().partition("x-app:")[0]
    [address] = re.findall(r"http://host\.docker\.internal\S*", head)
    assert check_connection(address, has_key=False).hostname == "host.docker.internal"


@pytest.mark.parametrize("name", [*OURS, "redis", "proxy"])
def test_containers_run_read_only_and_without_privileges(name):
    """An intruder in a container finds no root, no capability and nothing to write to but /tmp."""
    service = SERVICES[name]
    assert service["user"] not in {"root", "0"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(each.startswith("/tmp") for each in service["tmpfs"])  # noqa: S108 - in the container
    assert not service.get("privileged")


def test_only_the_buffering_proxy_is_to_be_reached_from_outside():
    """Ten half requests, sent to gunicorn itself, held its eight threads."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    mounted = {each["target"]: COMPOSE["configs"][each["source"]] for each in SERVICES["proxy"]["configs"]}
    assert (ROOT / mounted["/etc/nginx/nginx.conf"]["file"]).exists()
    assert "server web:8000 resolve;" in mounted["/etc/nginx/web.conf"]["content"]


def stage_of(target: str) -> str:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    [stage] = [stage for stage in stages if stage.splitlines()[0].endswith(f" AS {target}")]
    return stage


@pytest.mark.parametrize("name", OURS)
def test_the_image_itself_ends_with_a_user_without_rights(name):
    """`docker run` without compose.yaml is not root either."""
    stage = stage_of(OURS[name]["build"]["target"])
    assert re.findall(r"^USER (\S+)$", stage, re.MULTILINE) == [OURS[name]["user"]]
