"""The same file imported by several requests at once, in real threads, and by one that is killed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Judgment, Upload, User
from tests.concurrency import at_once
from tests.factories import make_user
from tests.labeling.test_map_columns import VOTES, WIDE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

OF_RESPONSES = {"Frage": "task", "GPT 4": "response", "Claude": "response", "id": "ignore"}
OF_VOTES = {"item": "task", "left one": "policy_a", "right one": "policy_b", "better": "winner"}


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def columns_page(client: Client, field: str, data: bytes) -> str:
    """The address of the page that asks for the columns of an uploaded file."""
    page = "import_votes" if field == "votes" else "new_experiment"
    file = SimpleUploadedFile("mine.csv", data)
    return str(client.post(reverse(page), {"name": "Mine", field: file}).url)


def said(columns: dict[str, str], name: str) -> dict[str, Any]:
    return {
        "name": name, "column": list(columns), "meaning": list(columns.values()), "action": "import",
    }  # fmt: skip


@pytest.mark.parametrize("names", [["Mine"] * 4, ["One", "Two", "Three", "Four"]])
@pytest.mark.parametrize(
    ("field", "data", "columns"), [("responses", WIDE, OF_RESPONSES), ("votes", VOTES, OF_VOTES)]
)
def test_a_file_that_four_requests_import_at_once_is_imported_once(field, data, columns, names):
    user = make_user("ann", is_superuser=True)
    url = columns_page(client_of(user), field, data)
    clients = [client_of(user) for _ in names]
    answers = at_once([
        lambda client=client, name=name: client.post(url, said(columns, name))
        for client, name in zip(clients, names, strict=True)
    ])  # fmt: skip
    # One that comes after the first has ended finds no file.
    assert sorted(answer.status_code for answer in answers)[0] == 302
    assert {answer.status_code for answer in answers} <= {302, 400, 404}
    for answer in answers:
        if answer.status_code == 400:
            assert "Another request has imported this file" in answer.content.decode()
    assert Experiment.objects.count() == 1
    assert Judgment.objects.count() == 2 * (field == "votes")
    assert not Upload.objects.exists()


class Killed(BaseException):
    """The end of a process: none of its handlers runs."""


@pytest.mark.parametrize(
    ("field", "data", "columns"), [("responses", WIDE, OF_RESPONSES), ("votes", VOTES, OF_VOTES)]
)
def test_a_process_that_is_killed_meanwhile_leaves_the_file_and_nothing_else(
    field, data, columns, monkeypatch
):
    client = client_of(make_user("ann", is_superuser=True))
    url = columns_page(client, field, data)

    def killed(**_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("engine.services.drafts.record", killed)
        patched.setattr("engine.models.Upload.save", killed)
        with pytest.raises(Killed):
            client.post(url, said(columns, "Mine"))
    assert not Experiment.objects.exists()
    assert client.post(url, said(columns, "Mine")).status_code == 302
    assert Experiment.objects.count() == 1
    assert not Upload.objects.exists()


ARENA = (
    b'{"model_a": "P", "model_b": "Q", "winner": "model_a", '
    b'"conversation_a": [{"role": "user", "content": "T"}, {"role": "assistant", "content": "p"}], '
    b'"conversation_b": [{"role": "user", "content": "T"}, {"role": "assistant", "content": "q"}]}'
)
KNOWN = b"task,policy,response\nOne?,A,1\nOne?,B,one\n"


@pytest.mark.parametrize("killed_while", ["it reads", "it stores"])
@pytest.mark.parametrize(
    ("field", "name", "data"), [("responses", "known.csv", KNOWN), ("votes", "arena.jsonl", ARENA)]
)
def test_an_upload_whose_process_is_killed_is_kept_and_its_user_goes_on_from_the_page(
    field, name, data, killed_while, monkeypatch
):
    """It was lost unless its columns had to be named."""
    client = client_of(make_user("ann", is_superuser=True))
    address = reverse("import_votes" if field == "votes" else "new_experiment")

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if killed_while == "it reads":
            patched.setattr("engine.importing.json_rows.loads" if field == "votes" else "csv.reader", killed)
        else:
            patched.setattr("engine.services.drafts.record", killed)
            patched.setattr("engine.services.past_votes.record", killed)
        form = {"name": "Mine", "counted": "again", field: SimpleUploadedFile(name, data)}
        with pytest.raises(Killed):
            client.post(address, form)
    assert not Experiment.objects.exists()
    kept = reverse("map_columns", args=[Upload.objects.get().pk])
    for page in (address, reverse("new_experiment")):
        assert f'<a href="{kept}">{name}</a> for “Mine”' in client.get(page).content.decode()
    page = client.get(kept).content.decode()
    chosen = re.findall('name="counted"[^>]*value="([a-z_]*)" checked', page)
    assert chosen == (["again"] if field == "votes" else [])
    assert ("1 vote on 2 policies" if field == "votes" else "2 responses of 2 policies") in page
    assert client.post(kept, {"name": "Mine", "action": "import"}).status_code == 302
    assert Experiment.objects.get().name == "Mine"
    assert not Upload.objects.exists()
    assert kept not in client.get(address).content.decode()


@pytest.mark.parametrize(
    ("name", "data"),
    [("Mine", b"task,policy,response\nOne?,,1\n"), ("", KNOWN), ("Taken", KNOWN), ("a\0b", KNOWN)],
)
def test_a_file_that_is_refused_is_not_kept(name, data):
    user = make_user("ann", is_superuser=True)
    client = client_of(user)
    client.post(reverse("new_experiment"), {"name": "Taken", "responses": SimpleUploadedFile("k.csv", KNOWN)})
    form = {"name": name, "responses": SimpleUploadedFile("mine.csv", data)}
    assert client.post(reverse("new_experiment"), form).status_code == 400
    assert not Upload.objects.exists()


def test_a_page_that_is_sent_four_times_at_once_counts_its_votes_once():
    user = make_user("ann", is_superuser=True)
    votes = b"task,policy_a,policy_b,winner\nT,P,Q,a\nT,P,Q,b\n"
    clients = [client_of(user) for _ in range(4)]
    answers = at_once([
        lambda client=client: client.post(
            reverse("import_votes"), {"name": "Mine", "votes": SimpleUploadedFile("mine.csv", votes)}
        )
        for client in clients
    ])  # fmt: skip
    assert sorted(answer.status_code for answer in answers) == [302, 400, 400, 400]
    assert (Experiment.objects.count(), Judgment.objects.count()) == (1, 2)
