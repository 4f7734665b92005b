"""A release: ``python -m tools.release`` checks, tests, builds the wheels and the image, and tags.

Nothing is published: the last lines say what to push.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import engine
from tools import small_installation

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("llmpo-core", "llmpo-client")


def faults(version: str, *, changelog: str, changes: str, tags: str, lacking: str, today: date) -> list[str]:
    """The reasons against a release of this tree as ``version``; empty if there are none.

    ``changes`` is the output of ``git status --porcelain``, ``tags`` that of ``git tag``, and ``lacking``
    what :func:`tools.small_installation.lacking` finds missing in the stored backups.
    """
    found = []
    if changes.strip():
        found.append("There are changes that are not committed. Commit or stash them.")
    if f"v{version}" in tags.split():
        found.append(f"Version {version} is released already. Raise __version__ in engine/__init__.py.")
    newest = re.search(r"^## .*$", changelog, re.MULTILINE)
    section = f"## {version} ({today})"
    if newest is None or newest[0] != section:
        found.append(f"CHANGELOG.md must begin with a section `{section}`, dated today.")
    if lacking:
        found.append(lacking)
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603


def main() -> int:
    """Release the version that engine/__init__.py names. Returns the exit status."""
    version = engine.__version__
    found = faults(
        version,
        changelog=(ROOT / "CHANGELOG.md").read_text(),
        changes=_output("git", "status", "--porcelain"),
        tags=_output("git", "tag"),
        lacking=small_installation.lacking(version),
        today=datetime.now().astimezone().date(),
    )
    if shutil.which("docker") is None:
        found.append("docker is not installed here, so the image cannot be built.")
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    _run(".ci/run")
    for name in DISTRIBUTIONS:
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", "dist", str(ROOT / "packaging" / name))
    _run("docker", "build", "--target", "app", "--tag", f"llm-po:{version}", ".")
    _run("git", "tag", "--annotate", f"v{version}", "--message", f"LLM-PO {version}")
    print(f"Tagged v{version}. Publish with: git push origin v{version}; the wheels are in dist.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
