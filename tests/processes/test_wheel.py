"""The application as one wheel, in an environment and a folder that hold nothing else."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workers import ROOT, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.waits]

_BUILT_FROM = ("engine", "labeling", "llmpo_site", "static", "templates", "docs")
_CONFIGURATION = """\
prompts: ['Answer briefly: {{question}}', 'Answer kindly: {{question}}']
providers: [openai:gpt-4.1-mini]
tests: [{vars: {question: How do I boil an egg?}}, {vars: {question: How do I cook rice?}}]
"""


@pytest.fixture(scope="module")
def llmpo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel, built from a copy and installed with what `requirements.txt` pins."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in _BUILT_FROM:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".env.example", "gunicorn.conf.py"):
        shutil.copy(ROOT / name, tree)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, tree]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = out.glob("llm_po-*.whl")
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", python]
    subprocess.run([*uv, "--constraint", ROOT / "requirements.txt", wheel], check=True)
    return environment / "bin" / "llmpo"


@pytest.fixture
def environment() -> dict[str, str]:
    """Of somebody who has set nothing."""
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}


def test_the_demo_shows_a_first_pair_and_everything_is_in_one_folder(llmpo, environment, tmp_path: Path):
    # A folder of somebody else's project.
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise RuntimeError")
    port, output, state = free_port(), tmp_path / "output.txt", tmp_path / "state"
    with output.open("wb") as written:
        command = [llmpo, "demo", "--data", state, "--port", str(port)]
        demo = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=written, stderr=written)
    try:
        wait_until(lambda: "Ctrl-C" in output.read_text() or demo.poll() is not None, 300, "the demo")
        [password] = re.findall(r"annotator +password (\S+)", output.read_text())
        url = f"http://127.0.0.1:{port}"
        with httpx2.Client(base_url=url, follow_redirects=True, timeout=120) as browser:
            browser.get("/accounts/login/")
            token = browser.cookies["csrftoken"]
            login = {"username": "annotator", "password": password, "csrfmiddlewaretoken": token}
            home = browser.post("/accounts/login/", data=login).text
            [pair, *_] = re.findall(r"/label/\d+/", home)
            assert 'data-token="' in browser.get(pair).text
            [style, *_] = re.findall(r'href="(/static/\S+\.css)"', home)
            assert browser.get(style).status_code == 200
            assert browser.get("/help/").status_code == 200
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(120) == 0, output.read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"engine", "output.txt", "state"}
    assert (state / ".env").stat().st_mode & 0o077 == 0


def test_files_are_imported_and_the_state_of_the_installation_is_said(llmpo, environment, tmp_path: Path):
    def run(*arguments: str | Path) -> str:
        command = [llmpo, *arguments, "--data", tmp_path / "state"]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    (tmp_path / "promptfooconfig.yaml").write_text(_CONFIGURATION)
    assert "is a draft" in run("import", "promptfooconfig.yaml")
    assert "migrations: ok" in run("check")
    # The reading process finds the packages of the wheel.
    pq.write_table(pa.table({"task": ["Hi"]}), tmp_path / "tasks.parquet")
    levels = "{A: {text: Be brief.}, B: {text: Be kind.}}"
    (tmp_path / "experiment.yaml").write_text(
        f"name: Tables\ntasks_file: tasks.parquet\n"
        f"factors: [{{name: Prompt, kind: prompt, levels: {levels}}}]\n"
    )
    assert "is a draft" in run("import", "experiment.yaml")
