"""The Kustomize base: the same processes as in compose.yaml, with probes, limits and no rights.

`make lint` holds each object against Kubernetes' own schema.
"""

import re
import shlex
from typing import Any

import pytest
import yaml
from django.test import Client

from tests.test_compose import ROOT, SERVICES, celery_options
from tests.test_project import _environment_variables_read

FOLDER = ROOT / "packaging" / "kubernetes"
BASE = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS = [each for name in BASE["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text())]
PODS: dict[str, dict[str, Any]] = {
    each["metadata"]["name"]: each["spec"]["template"]["spec"]
    for each in OBJECTS
    if each["kind"] in {"Deployment", "Job"}
}
CONTAINERS = {name: pod["containers"][0] for name, pod in PODS.items()}


def test_every_file_belongs_to_the_base_and_every_process_has_one():
    files = {"kustomization.yaml", "nginx.conf"}
    assert {*BASE["resources"], *files} == {file.name for file in FOLDER.iterdir()}
    assert set(PODS) == {"migrate", "web", "control", "beat", "analysis", "generation", "remote", "judging"}


@pytest.mark.parametrize("name", ["migrate", "web"])
def test_commands_are_those_of_compose(name):
    assert CONTAINERS[name]["args"] == shlex.split(SERVICES[name]["command"])


@pytest.mark.parametrize("name", ["control", "beat", "analysis", "generation", "remote", "judging"])
def test_celery_is_started_as_in_compose(name):
    options = celery_options(shlex.join(CONTAINERS[name]["args"]))
    if name == "beat":
        assert options["pidfile"] == ""
        return
    in_compose = celery_options(SERVICES[name]["command"])
    assert not options.get("beat"), "beat has a process of its own, or each control worker would sweep"
    for option in ("queues", "pool", "concurrency"):
        assert options.get(option) == in_compose.get(option)


@pytest.mark.parametrize("name", PODS)
def test_pods_have_limits_settings_and_no_rights(name):
    pod, container = PODS[name], CONTAINERS[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid {pod['securityContext']['runAsUser']} " in (ROOT / "Dockerfile").read_text()
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    assert [*map(next, map(iter, container["envFrom"]))] == ["configMapRef", "secretRef"]
    assert container["image"] in {each["name"] for each in BASE["images"]}
    mounted = {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_the_base_sets_only_what_the_settings_read():
    settings, _ = BASE["configMapGenerator"]
    assert {each.partition("=")[0] for each in settings["literals"]} <= set(_environment_variables_read())


def test_the_service_leads_to_the_buffering_proxy():
    [service] = [each for each in OBJECTS if each["kind"] == "Service"]
    _, proxy = PODS["web"]["containers"]
    assert service["spec"]["ports"][0]["targetPort"] == proxy["ports"][0]["name"]
    _, files = BASE["configMapGenerator"]
    assert files["files"] == ["nginx.conf"]
    assert files["literals"] == ["web.conf=server 127.0.0.1:8000;"]


@pytest.mark.django_db
def test_probes_ask_pages_that_answer_them():
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = CONTAINERS["web"][probe]["httpGet"]
        assert Client(headers={"host": "10.0.0.7:8000"}).get(asked["path"]).status_code == 200
        assert asked["port"] in {port["name"] for port in CONTAINERS["web"]["ports"]}


def test_the_overlay_of_the_document_fits_the_base():
    """An overlay names an image as the base has renamed it."""
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL)
    overlay = yaml.safe_load(text)
    assert {each["name"] for each in overlay["images"]} == {each["newName"] for each in BASE["images"]}
    # For the Ingress, which would otherwise stand in a namespace without the service.
    assert overlay["namespace"] == BASE["namespace"]
    [settings] = overlay["configMapGenerator"]
    names = {each.partition("=")[0] for each in settings["literals"]}
    assert settings["name"] == BASE["configMapGenerator"][0]["name"]
    assert names <= set(_environment_variables_read())
