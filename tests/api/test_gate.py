"""`llmpo gate` in a real repository against a live server, its states posted, and its CI templates."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.models import Experiment, Gate, Token
from engine.notifying.delivery import deliver_due
from engine.selectors.policies import policy_names
from engine.services.experiments import stop
from engine.services.notifications import subscribe
from engine.services.tokens import make_token
from tests.engine.test_gates import FACTOR, LEVEL, judge
from tests.factories import add_member, click_for, make_experiment, make_user, plan_and_write

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging" / "ci"
FILE = "prompts/system.md"

pytestmark = pytest.mark.django_db(transaction=True)


class Forge:
    """A forge that records what it is sent: statuses, and the comments of one pull request."""

    def __init__(self) -> None:
        self.statuses: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.comments: dict[int, str] = {1: "Somebody's."}
        self.status = 201
        forge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                forge.statuses.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(forge.status)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://localhost:{self.server.server_port}"

    @property
    def states(self) -> list[str]:
        return [body["state"] for _, _, body in self.statuses]


@pytest.fixture
def forge(settings) -> Iterator[Forge]:
    settings.ALLOW_PRIVATE_WEBHOOKS = True
    forge = Forge()
    yield forge
    forge.server.shutdown()
    forge.server.server_close()


@pytest.fixture
def editor():
    return make_user("editor")


@pytest.fixture
def experiment(annotator, editor) -> Experiment:
    made = make_experiment(ready=True, annotators=(annotator,), epsilon=0.2, delta=0.2, budget=60)
    add_member(made, editor, "editor")
    return made


class Repository:
    """A repository with one prompt, and the gate as a process in it."""

    def __init__(self, folder: Path, server: str, token: str, experiment: Experiment) -> None:
        self.folder, self.token = folder, token
        self.git("init", "--quiet", "--initial-branch", "main")
        self.write(
            "llmpo.toml",
            f'server = "{server}"\n[[prompt]]\nfile = "{FILE}"\nexperiment = {experiment.pk}\n'
            f'factor = "{FACTOR}"\nlevel = "{LEVEL}"\n',
        )
        self.change("quality 0\n")

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def change(self, text: str, branch: str = "") -> str:
        """Commit this text, on a new branch if it has a name; returns the hash."""
        if branch:
            self.git("checkout", "--quiet", "-b", branch, "main")
        self.write(FILE, text)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Change the prompt")
        return self.git("rev-parse", "HEAD").strip()

    def environment(self, **more: str) -> dict[str, str]:
        path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        return path | ({"LLMPO_TOKEN": self.token} if self.token else {}) | more

    def gate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "llmpo_client.gate", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, check=False
        )


@pytest.fixture
def repository(tmp_path, live_server, experiment, editor) -> Repository:
    _, secret = make_token(
        user=editor, name="ci", valid_days=1, scopes=[Token.Scope.MANAGE], experiment=experiment
    )
    return Repository(tmp_path, live_server.url, secret, experiment)


def told(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    [line] = run.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found["code"] == run.returncode
    return found


@pytest.mark.slow
def test_the_four_ends_in_a_repository(repository, experiment, annotator, editor, forge):
    subscribe(
        experiment=experiment, by=editor, kind="github", target=f"{forge.url}/ann/prompts.git", events=[],
        token="ghp_secret",
    )  # fmt: skip

    unchanged = told(repository.gate())
    assert (unchanged["state"], unchanged["code"], unchanged["reported"]) == ("same", 0, False)
    assert not Gate.objects.exists()

    sha = repository.change("quality 9\n", "better")
    runs = [told(repository.gate("--commit", sha, "--markdown", "gate.md")) for _ in range(2)]
    assert [each["code"] for each in runs] == [11, 11]
    assert runs[0]["reported"]
    better = Gate.objects.get()
    plan_and_write(better.challenge)
    click_for(better.challenge, annotator, lambda i, j: i < j)
    runs[1] = told(repository.gate("--commit", sha, "--markdown", "gate.md"))
    comment = (repository.folder / "gate.md").read_text()
    assert not any(name in comment for each in policy_names(better.challenge) for name in (each.name, "Lead"))
    [seen] = runs[1]["experiments"].values()
    assert seen["challenge"] == better.challenge_id
    assert seen["url"].endswith(f"/experiments/{better.challenge_id}/")
    assert judge(better, annotator, 0.5) == "passed"
    assert told(repository.gate("--commit", sha, "--markdown", "gate.md"))["code"] == 0
    comment = (repository.folder / "gate.md").read_text()
    assert comment.startswith("<!-- llmpo gate -->\n")
    assert seen["url"] in comment
    deliver_due()

    worse = repository.change("quality 1\n", "worse")
    assert told(repository.gate("--commit", worse))["code"] == 11
    assert judge(Gate.objects.latest("pk"), annotator, 0.0) == "worse"
    assert told(repository.gate())["code"] == 10

    left = repository.change("quality 2\n", "left")
    assert told(repository.gate("--commit", left))["code"] == 11
    stop(experiment_id=Gate.objects.latest("pk").challenge_id, by=editor)
    assert told(repository.gate("--commit", left))["code"] == 12

    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "better")
    assert told(repository.gate("--merged", "--commit", sha))["code"] == 0
    assert told(repository.gate("--commit", sha))["state"] == "same", "main has it now"

    deliver_due()
    paths = [path for path, _, _ in forge.statuses]
    api = "/api/v3/repos/ann/prompts/statuses"
    assert paths == [f"{api}/{sha}", f"{api}/{worse}", f"{api}/{left}", f"{api}/{sha}"]
    assert forge.states == ["success", "failure", "failure", "success"]
    _, headers, body = forge.statuses[0]
    assert headers["Authorization"] == "Bearer ghp_secret"
    assert body["context"] == f"llmpo/{experiment.pk}"
    assert body["target_url"].endswith(f"/experiments/{better.challenge_id}/")
    assert "LLMPO-Signature" not in headers


def test_gitlab_hears_of_a_commit_while_people_compare_and_at_the_end(repository, experiment, editor, forge):
    subscribe(
        experiment=experiment, by=editor, kind="gitlab", target=f"{forge.url}/team/sub/prompts", events=[],
        token="glpat",
    )  # fmt: skip
    sha = repository.change("quality 9\n", "better")
    repository.gate("--commit", sha)
    deliver_due()
    stop(experiment_id=Gate.objects.get().challenge_id, by=editor)
    deliver_due()
    assert forge.states == ["pending", "failed"]
    path, headers, _ = forge.statuses[0]
    assert path == f"/api/v4/projects/team%2Fsub%2Fprompts/statuses/{sha}"
    assert headers["PRIVATE-TOKEN"] == "glpat"


def test_a_fault_of_the_gate_is_no_end(repository):
    repository.write("wrong.toml", 'server = "http://127.0.0.1:1"\n')
    faults = [repository.gate("--config", "wrong.toml"), repository.gate("--config", "none.toml")]
    toml = (repository.folder / "llmpo.toml").read_text()
    repository.write("factor.toml", toml.replace(FACTOR, "Tone"))
    faults.append(repository.gate("--config", "factor.toml"))
    repository.token = ""
    fork = repository.gate("--markdown", "gate.md")
    assert "LLMPO_TOKEN" in (repository.folder / "gate.md").read_text()
    for fault in (*faults, fork):
        assert (fault.returncode, fault.stdout) == (2, "")
        assert fault.stderr.startswith("llmpo gate: ")


# As the script that pip makes.
_COMMAND = "from llmpo_client.command import main; main()"
GH = """#!/bin/sh
echo "$*" >> "$GH_LOG"
case "$*" in
*--paginate*) cat "$GH_COMMENTS" ;;
*"-X PATCH"*|*"-X POST"*) echo 7 > "$GH_COMMENTS" ;;
esac
"""


@pytest.fixture
def ci(repository, tmp_path_factory) -> Iterator[Any]:
    """Run shell steps as a runner of CI would, with `llmpo`, `gh` and `pip` from a folder."""
    folder = tmp_path_factory.mktemp("ci")
    programs = {
        "llmpo": f'#!/bin/sh\nexec {sys.executable} -c "{_COMMAND}" "$@"\n',
        "python3": f'#!/bin/sh\n[ "$2" = pip ] || exec {sys.executable} "$@"\n',
        "gh": GH,
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("log", "comments", "summary", "output"):
        (folder / name).touch()

    def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        given = repository.environment(
            RUNNER_TEMP=str(folder),
            GH_LOG=str(folder / "log"),
            GH_COMMENTS=str(folder / "comments"),
            GITHUB_STEP_SUMMARY=str(folder / "summary"),
            GITHUB_OUTPUT=str(folder / "output"),
        )
        given |= variables | {"PATH": f"{folder}:{os.environ['PATH']}"}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(
            shell, cwd=repository.folder, env=given, capture_output=True, text=True, check=False
        )

    run.folder = folder
    return run


def action(ci, **variables: str) -> int:
    """Run the steps of the composite action for a pull request; returns the exit code of the job."""
    steps = yaml.safe_load((PACKAGING / "action.yml").read_text())["runs"]["steps"]
    given = {
        "CONFIG": "llmpo.toml",
        "MERGED": "",
        "CLIENT": "x",
        "COMMENTS": "repos/a/b/issues",
        "NUMBER": "5",
    }
    for step in steps:
        assert step["shell"] == "bash"
        names = {*step.get("env", ())} - {"LLMPO_TOKEN", "GH_TOKEN", "COMMIT", "CODE"}
        assert names <= given.keys()
        done = ci(step["run"], **given, **variables)
        if step["id"] == "gate":
            output = (ci.folder / "output").read_text()
            given["CODE"] = output.splitlines()[-1].removeprefix("code=")
    return done.returncode


@pytest.mark.slow
def test_the_action_keeps_one_comment_and_a_pending_status_holds_the_merge(
    ci, repository, experiment, editor, forge
):
    sha = repository.change("quality 9\n", "better")
    assert action(ci, COMMIT=sha) == 11
    subscribe(
        experiment=experiment,
        by=editor,
        kind="github",
        target=f"{forge.url}/ann/prompts",
        events=[],
        token="g",
    )
    assert action(ci, COMMIT=sha) == 0
    calls = (ci.folder / "log").read_text().splitlines()
    wrote = [line for line in calls if "-X" in line]
    assert [
        "-X POST repos/a/b/issues/5/comments" in wrote[0],
        "-X PATCH repos/a/b/issues/comments/7" in wrote[1],
    ]
    assert "<!-- llmpo gate -->" in (ci.folder / "summary").read_text()
    stop(experiment_id=Gate.objects.get().challenge_id, by=editor)
    assert action(ci, COMMIT=sha) == 12
    repository.token = ""
    assert action(ci, COMMIT=sha) == 2, "a fork is never green"
    assert "LLMPO_TOKEN" in (ci.folder / "summary").read_text()


def test_the_template_for_gitlab_ends_as_the_gate_does(ci, repository, editor):
    script = "\n".join(yaml.safe_load((PACKAGING / "gitlab.yml").read_text())["llmpo-gate"]["script"])
    (ci.folder / "curl").write_text(
        '#!/bin/sh\necho "$*" >> "$GH_LOG"\ncase "$*" in *per_page*) cat "$NOTES";; esac\n'
    )
    (ci.folder / "curl").chmod(0o755)
    notes = ci.folder / "notes"
    notes.write_text('[{"id": 3, "body": "Fine."}, {"id": 4, "body": "<!-- llmpo gate -->"}]')
    sha = repository.change("quality 9\n", "better")
    given = {
        "CI_COMMIT_SHA": sha, "CI_MERGE_REQUEST_IID": "5", "LLMPO_CONFIG": "llmpo.toml", "LLMPO_CLIENT": "x",
        "CI_API_V4_URL": "http://gitlab/api/v4", "CI_PROJECT_ID": "2", "NOTES": str(notes),
        "LLMPO_GITLAB_TOKEN": "glpat",
    }  # fmt: skip
    assert ci(script, **given).returncode == 11
    assert (
        "-X PUT http://gitlab/api/v4/projects/2/merge_requests/5/notes/4" in (ci.folder / "log").read_text()
    )
    stop(experiment_id=Gate.objects.get().challenge_id, by=editor)
    assert ci(script, **given).returncode == 12
    merged = ci(script, **given | {"CI_MERGE_REQUEST_IID": "", "LLMPO_GITLAB_TOKEN": ""})
    assert (merged.returncode, merged.stderr) == (0, "")
