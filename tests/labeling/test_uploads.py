"""An uploaded file on its way: a worker imports it, and its page asks for what its user has to say."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.models import Experiment, Upload, User
from engine.services.imports import run_import
from engine.services.retention import forget_old
from tests.factories import make_user
from tests.tables import imported, run_imports, workbook

pytestmark = pytest.mark.django_db

WIDE = b"Frage,GPT 4,Claude,id\nOne?,1,one,7\nTwo?,,two,9\n"
WIDE_COLUMNS = {"Frage": "task", "GPT 4": "response", "Claude": "response", "id": "ignore"}
VOTES = b"item,left one,right one,better\nT,P,Q,a\nT,P,R,b\n"
VOTES_COLUMNS = {"item": "task", "left one": "policy_a", "right one": "policy_b", "better": "winner"}


@pytest.fixture
def owner(client: Client) -> User:
    user = make_user("ann", is_superuser=True)
    client.force_login(user)
    return user


def form(data: bytes, field: str = "responses", name: str = "mine.csv", **more: Any) -> dict[str, Any]:
    return {"name": "Mine", field: SimpleUploadedFile(name, data)} | more


def upload(client: Client, data: bytes, field: str = "responses", **more: Any) -> tuple[str, str]:
    """The address of an upload's page, after a worker looked at the file, and the page."""
    answer: Any = client.post(
        reverse("import_votes" if field == "votes" else "new_experiment"), form(data, field, **more)
    )
    run_imports()
    return answer.url, client.get(answer.url).content.decode()


def said(columns: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "Mine", "column": list(columns), "role": list(columns.values())} | more


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    ("data", "field", "columns", "n_asked"),
    [(WIDE, "responses", WIDE_COLUMNS, 2), (VOTES, "votes", VOTES_COLUMNS, 4)],
)
def test_unknown_columns_are_asked_for_and_the_first_rows_are_shown_as_they_will_be_read(
    client, data, field, columns, n_asked
):
    url, page = upload(client, data, field)
    assert page.count('name="role"') == len(columns)
    assert page.count("Choose a column for") == 1
    assert "data-preview" not in page
    assert not Experiment.objects.exists()
    checked = client.post(url, said(columns), headers={"HX-Request": "true"}).content.decode()
    assert "<form" not in checked
    assert "data-preview" in checked
    assert "error" not in checked
    missing = dict.fromkeys(columns, "ignore")
    assert "Choose a column for" in client.post(url, said(missing, action="import")).content.decode()
    assert Upload.objects.get().state == Upload.State.ASKING
    end = imported(client, url, said(columns, action="import")).content.decode()
    experiment = Experiment.objects.get(name="Mine")
    assert experiment.policies.count() == (2 if field == "responses" else 3)
    assert experiment.past_votes == (0 if field == "responses" else 2)
    assert "Mine" in end
    assert not Upload.objects.exists()
    assert client.get(url).status_code == 404


@pytest.mark.usefixtures("owner")
def test_rows_that_cannot_be_read_are_listed_and_left_out_only_on_request(client):
    rows = [{"task": f"T{n}", "policy": p, "response": f"{p}{n}"} for n in range(5) for p in "AB"]
    rows[3]["response"] = {"tool": 1}
    rows[4]["task"] = [{"role": "user", "content": [{"type": "image_url"}]}]
    url, page = upload(client, "\n".join(map(json.dumps, rows)).encode())
    assert "8 of 10 rows can be read." in page
    listed = list(csv.reader(io.StringIO(client.get(f"{url}?faults=1").content.decode())))
    assert [place for place, _ in listed] == ["place", "line 4", "line 5"]
    assert not Experiment.objects.exists()
    asked = {"name": "Mine"}
    end = imported(client, url, asked | {"action": "leave_out"}).content.decode()
    assert "8 of 10 rows can be read." in end
    assert Experiment.objects.get().tasks.count() == 5
    url, _ = upload(client, "\n".join(map(json.dumps, rows[:4])).encode(), name="Objects")
    imported(client, url, {"name": "Objects", "json_texts": "1", "action": "import"})
    responses = Experiment.objects.get(name="Objects").tasks.get(position=1).responses
    assert responses.filter(text='{"tool": 1}').exists()


@pytest.mark.usefixtures("owner")
def test_an_import_goes_on_without_its_page_and_can_be_cancelled(client):
    known = b"task,policy,response\nT,A,a\nT,B,b\n"
    answer = client.post(reverse("new_experiment"), form(known))
    page = client.get(answer.url)
    assert 'data-state="waiting"' in page.content.decode()
    kept = Upload.objects.get()
    again = client.get(answer.url, headers={"HX-Request": "true"})
    assert 'data-state="waiting"' in again.content.decode()
    assert answer.url in client.get(reverse("new_experiment")).content.decode()
    run_import(kept.pk)
    assert run_import(kept.pk) is None, "it is imported once"
    done = client.get(answer.url, headers={"HX-Request": "true"})
    assert done["HX-Redirect"] == reverse("setup", args=[Experiment.objects.get().pk])
    cancelled = client.post(reverse("new_experiment"), form(known) | {"name": "Other"})
    assert client.post(cancelled.url, {"action": "cancel"}).url == reverse("new_experiment")
    run_imports()
    assert not Experiment.objects.filter(name="Other").exists()


@pytest.mark.usefixtures("owner")
def test_a_file_that_was_cancelled_while_it_is_read_is_not_stored(client, monkeypatch):
    head = b"task,policy,response\n"
    client.post(
        reverse("new_experiment"), form(head + b"".join(b"T%d,A,a\nT%d,B,b\n" % (n, n) for n in range(400)))
    )
    kept = Upload.objects.get()
    monkeypatch.setattr("engine.services.imports._ROWS_BETWEEN_WORDS", 100)
    told: list[Any] = []

    def drop(*_: Any) -> int:
        told.append(Upload.objects.get().found)
        Upload.objects.all().delete()
        return 1

    monkeypatch.setattr(
        "engine.services.imports.clock.now", lambda: drop() and timezone.now() if kept else None
    )
    run_import(kept.pk)
    assert not Experiment.objects.exists()


@pytest.mark.usefixtures("owner")
def test_a_file_whose_worker_was_killed_is_given_back(client):
    client.post(reverse("import_votes"), form(VOTES, "votes"))
    Upload.objects.update(state=Upload.State.READING, touched_at=timezone.now() - timedelta(minutes=10))
    run_imports()
    kept = Upload.objects.get()
    assert kept.state == Upload.State.ASKING
    assert kept.found["faults"]


@pytest.mark.usefixtures("owner")
def test_votes_that_count_already_are_asked_about(client):
    url, _ = upload(client, VOTES, "votes")
    imported(client, url, said(VOTES_COLUMNS, action="import"))
    grown = VOTES + b"T,Q,R,a\n"
    url, _ = upload(client, grown, "votes")
    page = imported(client, url, said(VOTES_COLUMNS, action="import")).content.decode()
    assert "2 of the 3 votes count in this experiment already" in page
    assert Experiment.objects.get().past_votes == 2
    imported(client, url, said(VOTES_COLUMNS, action="import", counted="only_new"))
    assert Experiment.objects.get().past_votes == 3


@pytest.mark.usefixtures("owner")
def test_who_gave_the_votes_is_said_on_the_page(client):
    url, _ = upload(client, VOTES, "votes")
    imported(client, url, said(VOTES_COLUMNS, action="import", judged_by="llm"))
    judgments = Experiment.objects.get().comparisons.values_list("judgments__judge", flat=True)
    assert {*judgments} == {"llm"}


@pytest.mark.usefixtures("owner")
def test_known_columns_are_shown_on_request_and_of_a_workbook_each_sheet(client):
    book = workbook([["task", "policy", "response"], ["T", "P", "p"]], [["q", "A", "B"], ["T", "a", "b"]])
    url, page = upload(client, book, look="1")
    assert "data-known" in page
    other = client.post(url, {"name": "Mine", "sheet": "Sheet 2", "seen_sheet": "Sheet 1", "action": "check"})
    assert 'value="q"' in other.content.decode()
    columns = said({"q": "task", "A": "response", "B": "response"}, sheet="Sheet 2", seen_sheet="Sheet 2")
    imported(client, url, columns | {"action": "import"})
    assert Experiment.objects.get(name="Mine").policies.count() == 2


@pytest.mark.usefixtures("owner")
def test_the_files_of_one_table_are_chosen_at_once(client):
    files = [
        SimpleUploadedFile("outputs.json", json.dumps([{"task": "T", "response": m, "policy": m}]).encode())
        for m in ("m1", "m2")
    ]
    imported(client, reverse("new_experiment"), {"name": "Mine", "responses": files})
    assert Experiment.objects.get().policies.count() == 2


def test_an_upload_is_its_users_alone_and_goes_after_a_day(client, owner):
    url, _ = upload(client, WIDE)
    other = Client()
    other.force_login(make_user("bob", is_superuser=True))
    assert other.get(url).status_code == 404
    for _ in range(Upload.MOST_OF_ONE_USER - 1):
        upload(client, WIDE)
    assert client.get(url).status_code == 200
    upload(client, WIDE)
    assert owner.uploads.count() == Upload.MOST_OF_ONE_USER
    assert client.get(url).status_code == 404, "the newest stay"
    last = owner.uploads.first()
    Upload.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert client.get(reverse("map_columns", args=[last.pk])).status_code == 404
    assert forget_old()["uploads"] == Upload.MOST_OF_ONE_USER


@pytest.mark.usefixtures("owner")
def test_tasks_are_mapped_on_the_page_of_the_draft(client):
    url = reverse("new_from", args=["blank"])
    file = SimpleUploadedFile("tasks.csv", b"topic,Nr\nfrogs,1\ntoads,2\n")
    sent = {"tasks_file": file, "part": "tasks-file"}
    page = client.post(url, sent, headers={"HX-Request": "true"}).content.decode()
    assert 'name="tasks_column" value="topic"' in page
    text = '{"topic": "frogs", "Nr": "1"}\n{"topic": "toads", "Nr": "2"}'
    chosen = {"tasks_column": ["topic", "Nr"], "tasks_role": ["task,variable", "ignore"]}
    page = client.post(url, {"tasks": text, "change": "tasks-columns"} | chosen).content.decode()
    assert "2 tasks." in page
    assert "<code>topic</code>" in page


@pytest.mark.usefixtures("owner")
def test_tasks_that_hold_more_than_text_can_be_left_out(client):
    url = reverse("new_from", args=["blank"])
    picture = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
    text = "\n".join(map(json.dumps, [{"prompt": "One?"}, picture]))
    page = client.post(url, {"tasks": text, "part": "tasks"}, headers={"HX-Request": "true"}).content.decode()
    assert "1 of 2 rows can be read." in page
    sent = {"tasks": text, "part": "tasks-columns", "leave_out": "1"}
    page = client.post(url, sent, headers={"HX-Request": "true"}).content.decode()
    assert 'name="n_tasks" value="1"' in page
