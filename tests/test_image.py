"""The application runs from exactly the files that the container image holds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)

# Done in the image's own folder, by its own code; prints what the ZIP holds.
EXPORTS = """
import io, json, zipfile
from django.core.management import call_command
from django.test import Client
from engine.models import Experiment, User
call_command("migrate", verbosity=0)
call_command("collectstatic", interactive=False, verbosity=0)
call_command("load_experiment", "{folder}/experiment.yaml")
call_command("export", "In the image", "--format", "jsonl", "--out", "{folder}/out.jsonl")
client = Client()
client.force_login(User.objects.create_superuser("root", password="a long password"))
response = client.post("/experiments/%d/judgments.jsonl?zip=on" % Experiment.objects.get().pk)
assert response.status_code == 200, response.status_code
archive = zipfile.ZipFile(io.BytesIO(b"".join(response.streaming_content)))
[manifest] = [name for name in archive.namelist() if name.endswith(".manifest.json")]
print("version", json.loads(archive.read(manifest))["versions"]["application"])
"""
EXPERIMENT = """
name: In the image
factors:
  - {name: Prompt, kind: prompt, levels: {Terse: {text: Be terse.}, Warm: {text: Be warm.}}}
tasks: [What is 1 + 1?]
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The files that the Dockerfile's COPY lines copy, without those in .dockerignore."""
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in patterns if line.startswith("!")}
    assert patterns[0] == "*"
    app = tmp_path / "app"
    app.mkdir()
    for line in re.findall(r"^COPY ([^-].+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            assert source in allowed
            into = app / (source if target in {".", "./"} else target)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, into)
    return app


def manage(app: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "SECRET_KEY": "only-for-tests-only-for-tests-only-for-tests",
        "ALLOWED_HOSTS": "testserver",
        "VAR_DIR": str(app.parent / "var"),
        "LOG_LEVEL": "WARNING",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=app, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_export_with_its_manifest_works_in_the_image(image, tmp_path):
    """The manifest read pyproject.toml, which the image lacks, and every ZIP broke off half way."""
    from engine import __version__  # noqa: PLC0415 - the version that the image's own code must name

    assert not (image / "pyproject.toml").exists()
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    said = manage(image, "shell", "--command", EXPORTS.format(folder=tmp_path))
    assert f"version {__version__}" in said
    assert f'"application": "{__version__}"' in (tmp_path / "out.jsonl.manifest.json").read_text()


def test_the_licences_of_what_is_shipped_are_in_the_image(image):
    """Psycopg is under the LGPL, whose text has to come along."""
    text = (image / "THIRD_PARTY_LICENSES.txt").read_text()
    for package in ("psycopg", "psycopg-binary"):
        entry = text.partition(f"\n{package}\n")[2].splitlines()
        assert entry[1] == "LGPL-3.0-only"
        assert "GNU LESSER GENERAL PUBLIC LICENSE" in entry[3]
    assert "Apache License" in (image / "LICENSE").read_text()
