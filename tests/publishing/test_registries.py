"""Winners go to registries on this machine, by the pages, and come back."""

import html
import json
import re
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from engine.domain.errors import PublicationError
from engine.models import AuditEntry, Connection, Destination, Experiment, Publication
from engine.publishing import registry
from engine.publishing.base import Place
from engine.publishing.sending import add_destination, publish_next
from engine.publishing.winners import winner_of
from engine.services import keys
from engine.services.worker_holds import take
from tests.accounts import log_in_recently, logged_in
from tests.engine.test_promptfoo import configured
from tests.factories import add_member, certify, make_experiment, make_user
from tests.publishing.servers import LangfuseServer, LangSmithServer, MLflowServer, serving

pytestmark = pytest.mark.django_db

KEY = "pk-1:sk-2"
SERVERS = {"langfuse": LangfuseServer, "mlflow": MLflowServer, "langsmith": LangSmithServer}


@pytest.fixture
def experiment(settings: Any, tmp_path: Path) -> Experiment:
    """Concluded: Prompt 1 wins."""
    settings.ALLOW_PRIVATE_WEBHOOKS = True
    (tmp_path / "app" / ".git").mkdir(parents=True)
    settings.REGISTRY_FOLDER = str(tmp_path)
    made = make_experiment(name="Support", ready=True)
    certify(made, winner=1)
    return made


@pytest.fixture
def client(experiment: Experiment) -> Client:
    editor = make_user("edith")
    add_member(experiment, editor, "editor")
    found = logged_in(editor)
    log_in_recently(found, editor)
    return found


def add(client: Client, experiment: Experiment, **fields: str) -> Destination:
    given = {"name": "support", "label": "production", "key": KEY} | fields
    answer = client.post(reverse("destinations", args=[experiment.pk]), given)
    assert answer.status_code == 302, answer.content.decode()
    return experiment.destinations.get()


def shown(client: Client, to: Destination, *, back: bool = False) -> tuple[list[str], str]:
    """The texts that a page shows, letter by letter, and their digest."""
    address = reverse("publish", args=[to.experiment_id, to.pk]) + "?back=1" * back
    page = client.get(address).content.decode()
    texts = [html.unescape(each) for each in re.findall(r"data-body>\n(.*?)</pre>", page, re.DOTALL)]
    [digest] = re.findall(r'name="shown" value="(\w+)"', page)
    return texts, digest


def send(client: Client, to: Destination, *, back: bool = False) -> list[str]:
    """Look at what is sent, send it, and do the worker's work."""
    texts, digest = shown(client, to, back=back)
    address = reverse("publish", args=[to.experiment_id, to.pk]) + "?back=1" * back
    assert client.post(address, {"shown": digest}).status_code == 302
    assert publish_next()
    return texts


def as_sent(texts: list[str], *versions: str | None) -> list[str]:
    """The texts with the versions that the server made in their places."""
    marked = iter(versions)
    mark = json.dumps("(the version made above)")
    return [text.replace(mark, json.dumps(next(marked))) if mark in text else text for text in texts]


def again(experiment: Experiment, winner: int) -> None:
    """Another policy wins."""
    experiment.winner = experiment.policies.get(index=winner)
    experiment.save()


@pytest.fixture(params=[*SERVERS])
def server(request: pytest.FixtureRequest) -> Any:
    with serving(SERVERS[request.param]()) as found:
        found.kind = request.param
        yield found


def test_exactly_what_was_shown_arrives_and_goes_back(client, experiment, server):
    to = add(client, experiment, kind=server.kind, address=server.url)
    first = send(client, to)
    made = {
        "langfuse": (),
        "mlflow": ("1",),
        "langsmith": (None, "id-1", "id-1"),
    }[server.kind]
    assert server.bodies() == as_sent(first, *made)
    assert server.labels == {"production": 1}
    # Nothing was there before it, so there is no way back.
    back = reverse("publish", args=[experiment.pk, to.pk]) + "?back=1"
    assert client.get(back).status_code == 302

    again(experiment, 2)
    send(client, to)
    assert server.labels == {"production": 2}
    assert "quality 2" in json.dumps(server.versions[1])
    assert "quality 1" in json.dumps(server.versions[0])
    server.calls.clear()
    texts = send(client, to, back=True)
    assert server.bodies() == texts
    assert (server.labels, len(server.versions)) == ({"production": 1}, 2)
    assert client.get(back).status_code == 302
    entries = AuditEntry.objects.filter(action="published").order_by("pk")
    assert [entry.by.username for entry in entries] == ["edith"] * 3
    assert entries[2].sentence.startswith("Took back Prompt 2 (P3)")


def test_what_somebody_else_moved_is_not_taken_back(client, experiment, server):
    to = add(client, experiment, kind=server.kind, address=server.url)
    for winner in (1, 2):
        again(experiment, winner)
        send(client, to)
    server.versions.append(server.versions[0])
    server.labels["production"] = 3
    send(client, to, back=True)
    assert server.labels == {"production": 3}
    assert Publication.objects.last().state == "failed"


def test_a_wrong_key_is_said_and_not_repeated(client, experiment, server):
    to = add(client, experiment, kind=server.kind, address=server.url, key="pk-1:wrong-key")
    send(client, to)
    failed = Publication.objects.get()
    assert (failed.state, server.versions) == ("failed", [])
    assert "401" in failed.error
    page = client.get(reverse("destinations", args=[experiment.pk])).content.decode()
    assert 'data-state="failed"' in page
    assert not publish_next()
    for secret in ("wrong-key", "sk-2"):
        assert secret not in page + failed.error + json.dumps(failed.requests)


def test_langfuse_gets_messages_settings_claim_and_report(client, experiment):
    with serving(LangfuseServer()) as server:
        send(client, add(client, experiment, kind="langfuse", address=server.url + "/"))
    [sent] = server.versions
    assert (sent["name"], sent["type"], sent["labels"]) == ("support", "chat", ["production"])
    assert sent["prompt"] == [
        {"role": "system", "content": "quality 1"},
        {"role": "user", "content": "{{ task }}"},
    ]
    evidence = sent["config"]["llm_po"]
    assert evidence["claim"] == "It is good enough."
    assert evidence["report"].endswith(reverse("report", args=[experiment.pk]))


def test_mlflow_gets_a_prompt_as_its_own_client_stores_it(client, experiment):
    with serving(MLflowServer()) as server:
        send(client, add(client, experiment, kind="mlflow", address=server.url))
    tags = {each["key"]: each["value"] for each in server.versions[0]["tags"]}
    assert tags["mlflow.prompt.is_prompt"] == "true"
    assert tags["_mlflow_prompt_type"] == "chat"
    assert json.loads(tags["mlflow.prompt.text"])[0] == {"role": "system", "content": "quality 1"}
    assert "model_name" in json.loads(tags["_mlflow_prompt_model_config"])


def test_a_webhook_is_signed_and_repeated_to_go_back(client, experiment, monkeypatch):
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("engine.publishing.over_http.call", lambda **call: calls.append(call))
    to = add(client, experiment, kind="webhook", address="https://hooks.example.org/secret-path", key="mine")
    [first] = send(client, to)
    again(experiment, 2)
    send(client, to)
    send(client, to, back=True)
    assert [call["body"].decode() == first for call in calls] == [True, False, True]
    assert {call["secret"] for call in calls} == {"mine"}
    assert "secret-path" not in client.get(reverse("publish", args=[experiment.pk, to.pk])).content.decode()
    assert "secret-path" not in AuditEntry.objects.last().sentence


def test_a_file_of_a_working_tree_is_written_and_goes_back(client, experiment, tmp_path):
    file = tmp_path / "app" / "prompt.yaml"
    to = add(client, experiment, kind="git", name="app/prompt.yaml")
    [text] = send(client, to)
    assert file.read_text() == text
    assert configured(text + "tests: [{vars: {task: Hi}}]\n").n_policies == 1
    again(experiment, 2)
    send(client, to)
    send(client, to, back=True)
    assert file.read_text() == text
    again(experiment, 1)
    send(client, to)
    file.write_text("prompts: [mine]\n")
    send(client, to, back=True)
    assert file.read_text() == "prompts: [mine]\n"
    assert [each.name for each in file.parent.iterdir()] == [".git", "prompt.yaml"]


@pytest.mark.parametrize(
    "name",
    ["../x.yaml", "app/../../x.yaml", "/etc/x.yaml", "app/.git/x.yaml", "app/.github/x.yaml", "app/x.py",
     "x.yaml", "app/none/x.yaml", "app/link/x.yaml", "app/link.yaml", "app\\..\\x.yaml", ""],
)  # fmt: skip
def test_no_file_elsewhere(client, experiment, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "app" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "app" / "link.yaml").symlink_to(tmp_path / "elsewhere" / "x.yaml")
    answer = client.post(reverse("destinations", args=[experiment.pk]), {"kind": "git", "name": name})
    assert answer.status_code == 400
    assert not experiment.destinations.exists()


def test_a_file_is_replaced_only_by_those_who_run_what_wrote_it(client, experiment, tmp_path):
    file = tmp_path / "app" / "prompt.yaml"
    file.write_text("services: {}\n")
    send(client, add(client, experiment, kind="git", name="app/prompt.yaml"))
    assert (file.read_text(), Publication.objects.get().state) == ("services: {}\n", "failed")
    file.unlink()
    [theirs] = send(client, experiment.destinations.get())
    other = make_experiment(name="Another team's", ready=True)
    certify(other, winner=2)
    stranger = make_user("stranger")
    add_member(other, stranger, "owner")
    of_stranger = logged_in(stranger)
    log_in_recently(of_stranger, stranger)
    send(of_stranger, to := add(of_stranger, other, kind="git", name="app/prompt.yaml"))
    assert file.read_text() == theirs
    add_member(experiment, stranger, "editor")
    [text] = send(of_stranger, to)
    assert file.read_text() == text != theirs


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe", b"x" * 1_000_001])
def test_a_file_that_could_not_come_back_is_not_replaced(client, experiment, tmp_path, content):
    file = tmp_path / "app" / "prompt.yaml"
    file.write_bytes(content)
    send(client, add(client, experiment, kind="git", name="app/prompt.yaml"))
    assert (file.read_bytes(), Publication.objects.get().state) == (content, "failed")


def test_a_link_that_came_later_is_not_followed(client, experiment, tmp_path):
    to = add(client, experiment, kind="git", name="app/prompt.yaml")
    (tmp_path / "secret").write_text("untouched")
    (tmp_path / "app" / "prompt.yaml").symlink_to(tmp_path / "secret")
    send(client, to)
    assert (tmp_path / "secret").read_text() == "untouched"
    assert Publication.objects.get().state == "failed"


def test_without_a_folder_there_are_no_files(client, experiment, settings):
    settings.REGISTRY_FOLDER = ""
    answer = client.post(
        reverse("destinations", args=[experiment.pk]), {"kind": "git", "name": "app/prompt.yaml"}
    )
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "fields",
    [{"address": "ftp://x.example"}, {"address": "http://10.0.0.1"}, {"address": "http://public.example"},
     {"address": "https://x.example/?a=b"}, {"name": ""}, {"name": "a/b"}, {"label": "latest"}, {"label": ""},
     {"label": "v3"}, {"kind": "none"}],
)  # fmt: skip
def test_what_cannot_be_a_destination(client, experiment, settings, fields):
    settings.ALLOW_PRIVATE_WEBHOOKS = False
    given = {"kind": "langfuse", "address": "https://x.example", "name": "a", "label": "b", "key": KEY}
    answer = client.post(reverse("destinations", args=[experiment.pk]), given | fields)
    assert answer.status_code == 400
    assert KEY not in answer.content.decode()


def test_what_has_changed_since_it_was_shown_is_not_sent(client, experiment):
    with serving(LangfuseServer()) as server:
        to = add(client, experiment, kind="langfuse", address=server.url)
        _, digest = shown(client, to)
        again(experiment, 2)
        client.post(reverse("publish", args=[experiment.pk, to.pk]), {"shown": digest})
        assert not publish_next()
    assert server.calls == []


def test_only_one_is_under_way_and_a_dead_worker_sends_nothing_twice(client, experiment):
    with serving(LangfuseServer()) as server:
        to = add(client, experiment, kind="langfuse", address=server.url)
        _, digest = shown(client, to)
        for _ in range(2):
            client.post(reverse("publish", args=[experiment.pk, to.pk]), {"shown": digest})
        waiting = Publication.objects.get()
        take(Publication.objects.all(), seconds=-1)
        assert not publish_next()
        waiting.refresh_from_db()
        assert (waiting.state, server.calls) == ("failed", [])
        assert send(client, to) == server.bodies()


def test_an_answer_that_cannot_be_read_is_no_secret_and_no_crash(client, experiment, monkeypatch):
    with serving(LangfuseServer()) as server:
        to = add(client, experiment, kind="langfuse", address=server.url)
        monkeypatch.setattr(LangfuseServer, "answer", lambda *_: (200, []))
        send(client, to)
    assert Publication.objects.get().state == "failed"


def test_a_key_of_somebody_who_left_is_not_used(client, experiment):
    to = add(client, experiment, kind="langfuse", address="https://x.example")
    owner = make_user()
    add_member(experiment, owner, "owner")
    to.created_by.memberships.all().delete()
    theirs = logged_in(owner)
    _, digest = shown(theirs, to)
    theirs.post(reverse("publish", args=[experiment.pk, to.pk]), {"shown": digest})
    assert not Publication.objects.exists()


def test_keys_are_sealed_bound_to_their_address_and_sealed_anew(client, experiment, settings):
    to = add(client, experiment, kind="langfuse", address="https://x.example")
    assert KEY not in to.sealed_key
    assert keys.key_of(to) == KEY
    settings.CONNECTION_KEYS = ["another" * 8]
    before = to.sealed_key
    assert keys.seal_anew() == (0, [])
    to.refresh_from_db()
    assert (keys.key_of(to), to.sealed_key == before) == (KEY, False)
    to.address = "https://y.example"
    with pytest.raises(keys.KeyUnreadableError):
        keys.key_of(to)


def test_a_package_can_register_one(experiment, monkeypatch):
    point = EntryPoint("mine", "engine.publishing.over_http:Langfuse", registry.ENTRY_POINTS)
    monkeypatch.setattr(
        "engine.domain.entry_points.entry_points", lambda group: EntryPoints([point]).select(group=group)
    )
    assert registry.registry_names()[-1] == "mine"
    made = add_destination(
        experiment=experiment, by=make_user(), kind="mine", to=Place("https://x.example", "a", "b"), key=""
    )
    assert made.kind == "mine"
    with pytest.raises(PublicationError):
        add_destination(experiment=experiment, by=make_user(), kind="gone", to=Place("", "", ""), key="")


def test_the_winner_of_a_connection_has_its_model_and_no_key(client, experiment):
    model = Connection.objects.create(name="mine", provider="openai", model_id="gpt-x", everybody=True)
    keys.seal(model, "sk-0123456789abcdef")
    model.save()
    experiment.model = "mine"
    experiment.save()
    found = winner_of(experiment)
    assert (found.target.model_id, found.target.key) == ("gpt-x", "")
    to = add(client, experiment, kind="langfuse", address="https://x.example")
    [text], _ = shown(client, to)
    assert json.loads(text)["config"]["model"] == "gpt-x"
    assert "sk-0123" not in text


def test_the_page_of_a_draft_has_nothing_to_send(client):
    draft = make_experiment(running=False)
    editor = make_user()
    add_member(draft, editor, "editor")
    assert logged_in(editor).get(reverse("destinations", args=[draft.pk])).status_code == 200
