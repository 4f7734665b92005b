"""Files whose columns have other names: the page asks what each is, and nothing is lost between its steps."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.domain.material import Material
from engine.importing.looking import look
from engine.models import Experiment, Upload, User
from engine.services.drafts import create_experiment
from engine.services.retention import forget_old
from tests.engine.test_sources import workbook
from tests.factories import make_spec, make_user
from tests.markup import text_of

pytestmark = pytest.mark.django_db

WIDE = b"Frage,GPT 4,Claude,id\nOne?,1,one,7\nOne?,1,one,8\nTwo?,,two,9\n"
VOTES = b"item,left one,right one,better\nT,P,Q,a\nT,P,q,b\n"


@pytest.fixture
def owner(client: Client) -> User:
    user = make_user("ann", is_superuser=True)
    client.force_login(user)
    return user


def upload(client: Client, data: bytes, *, field: str = "responses", **more: Any) -> Any:
    page = "import_votes" if field == "votes" else "new_experiment"
    file = SimpleUploadedFile("mine.csv", data)
    return client.post(reverse(page), {"name": "Mine", field: file} | more)


def said(columns: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "Mine", "column": list(columns), "meaning": list(columns.values())} | more


@pytest.mark.usefixtures("owner")
def test_responses_with_other_columns_are_looked_at_then_imported(client):
    response = upload(client, WIDE)
    kept = Upload.objects.get()
    assert response.url == reverse("map_columns", args=[kept.pk])
    assert not Experiment.objects.exists()
    page = client.get(response.url).content.decode()
    for words in ('value="Frage"', "GPT 4", "One?", 'value="Mine"', "empty"):
        assert words in page
    # All unknown columns of a table without policies may be policies, but for the number of the row; nothing
    # says which is the task.
    assert page.count('<option value="response" selected>') == 3
    columns = {"Frage": "task", "GPT 4": "response", "Claude": "response", "id": "ignore"}
    checked = client.post(response.url, said(columns, action="check"))
    assert checked.status_code == 200
    page = checked.content.decode()
    assert "6 responses of 2 policies to 2 tasks." in page
    assert "2 responses came more than once" in page
    assert "1 response had no text: " in page
    fragment = client.post(response.url, said(columns), headers={"HX-Request": "true"})
    assert "6 responses of 2 policies" in fragment.content.decode()
    assert "<form" not in fragment.content.decode()
    assert not Experiment.objects.exists()
    imported = client.post(response.url, said(columns, action="import"))
    experiment = Experiment.objects.get(name="Mine")
    assert imported.url == reverse("setup", args=[experiment.pk])
    assert [level.name for level in experiment.factors.get().levels.all()] == ["GPT 4", "Claude"]
    assert not Upload.objects.exists()
    assert client.get(response.url).status_code == 404


@pytest.mark.usefixtures("owner")
def test_a_wide_table_with_a_known_task_is_looked_at_too_and_its_names_may_have_two_lines(client):
    response = upload(client, b'prompt,"GPT\n4",Claude\nOne?,1,one\nTwo?,2,two\n')
    columns = {"prompt": "task", "GPT\r\n4": "response", "Claude": "response"}
    client.post(response.url, said(columns, action="import"))
    assert [each.name for each in Experiment.objects.get().factors.get().levels.all()] == ["GPT\n4", "Claude"]


@pytest.mark.usefixtures("owner")
def test_votes_with_other_columns_keep_what_was_chosen_until_it_fits(client):
    response = upload(client, VOTES, field="votes")
    columns = {"item": "task", "left one": "policy_a", "right one": "policy_b", "better": "ignore"}
    refused = client.post(response.url, said(columns, action="import"))
    assert refused.status_code == 400
    page = refused.content.decode()
    assert "Choose a column for: Winner." in page
    assert page.count('<option value="policy_b" selected>') == 1
    columns["better"] = "task"
    refused = text_of(client.post(response.url, said(columns)).content.decode())
    assert "Columns 'item' and 'better' both mean task, and only one can." in refused
    columns["better"] = "winner"
    page = client.post(response.url, said(columns, action="check")).content.decode()
    assert "2 votes on 3 policies and 1 task." in page
    assert "1 policy came with nearly equal names, such as &#x27;Q&#x27; and &#x27;q&#x27;" in page
    client.post(response.url, said(columns, action="import"))
    assert Experiment.objects.get(name="Mine").past_votes == 2


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    ("field", "wanted"),
    [("votes", "Task, Policy A, Policy B, Winner"), ("responses", "Task, Policy, Response")],
)
def test_where_no_column_is_known_those_that_are_needed_are_named(client, field, wanted):
    """The file was said to hold nothing, beside its columns and their first rows."""
    data = "Frage;Links;Rechts\nTee?;ja;ja\nMilch?;ja;ja\n" * 4
    page = client.get(upload(client, data.encode(), field=field).url).content.decode()
    assert f"Choose a column for: {wanted}." in page
    assert "Found: nothing" not in page


@pytest.mark.usefixtures("owner")
def test_the_choice_of_votes_that_count_already_is_kept_on_the_page_of_the_columns(client):
    columns = {"item": "task", "left one": "policy_a", "right one": "policy_b", "better": "winner"}
    client.post(upload(client, VOTES, field="votes").url, said(columns, action="import"))
    asked = upload(client, VOTES + b"T,q,Q,a\n", field="votes", counted="only_new")
    # The address by which it is opened again from the list of uploads that are not imported yet.
    assert asked.url == reverse("map_columns", args=[Upload.objects.get().pk])
    page = client.get(asked.url).content.decode()
    assert re.findall('name="counted"[^>]*value="([a-z_]*)" checked', page) == ["only_new"]
    # A later choice is in the place of the first one.
    page = client.post(asked.url, said(columns, action="check", counted="again")).content.decode()
    assert re.findall('name="counted"[^>]*value="([a-z_]*)" checked', page) == ["again"]


@pytest.mark.usefixtures("owner")
def test_known_columns_are_shown_on_request_and_of_a_workbook_each_sheet(client):
    book = workbook([["task", "policy", "response"], ["T", "P", "p"]], [["q", "A", "B"], ["T", "a", "b"]])
    response = upload(client, book, look="1")
    page = client.get(response.url).content.decode()
    assert '<option value="policy" selected>' in page
    assert "1 response of 1 policy to 1 task." in page
    first = said({"task": "task", "policy": "policy", "response": "response"}, seen_sheet="Sheet 1")
    page = client.post(response.url, first | {"sheet": "Sheet 2", "action": "check"}).content.decode()
    assert 'value="q"' in page
    assert 'value="policy" name' not in page
    columns = said({"q": "task", "A": "response", "B": "response"}, sheet="Sheet 2", seen_sheet="Sheet 2")
    client.post(response.url, columns | {"action": "import"})
    assert Experiment.objects.get(name="Mine").policies.count() == 2


@pytest.mark.usefixtures("owner")
def test_other_faults_are_told_at_once_and_formats_without_columns_need_none(client):
    assert "line 2: policy must" not in upload(client, b"").content.decode()
    assert upload(client, b"task,policy,response\nT,,x\n").status_code == 400
    refused = upload(client, WIDE, name="a\0b")
    assert (refused.status_code, b"name: a character cannot be stored" in refused.content) == (400, True)
    arena = (
        b'{"model_a": "P", "model_b": "Q", "winner": "model_a", "conversation_a": [{"role": "user", '
        b'"content": "T"}, {"role": "assistant", "content": "p"}], "conversation_b": [{"role": "user", '
        b'"content": "T"}, {"role": "assistant", "content": "q"}]}'
    )
    looked = upload(client, arena, field="votes", look="1")
    page = client.get(looked.url).content.decode()
    assert "The format of this file is known, so it is read as it is." in page
    assert "<select" not in page
    assert "1 vote on 2 policies and 1 task." in page
    client.post(looked.url, {"name": "Mine", "action": "import"})
    assert Experiment.objects.get(name="Mine").past_votes == 1
    assert not Upload.objects.exists()


@pytest.mark.usefixtures("owner")
def test_json_with_other_names_is_asked_for_its_columns_in_a_list_too(client):
    """A list was refused, and its page of columns was empty; JSON Lines were looked at."""
    rows = [{"item": "T", "left one": "P", "right one": "Q", "better": "a"}]
    page = client.get(upload(client, json.dumps(rows).encode(), field="votes").url).content.decode()
    for name in rows[0]:
        assert f'value="{name}"' in page


@pytest.mark.usefixtures("owner")
def test_the_files_of_one_table_are_chosen_at_once(client):
    def shards(*parts: bytes, stem: str = "data-{}-of-00002.csv") -> list[SimpleUploadedFile]:
        return [SimpleUploadedFile(stem.format(f"{n:05}"), data) for n, data in enumerate(parts)]

    first, second = b"Frage,GPT 4,Claude\nOne?,1,one\n", b"Frage,GPT 4,Claude\nTwo?,2,two\n"
    about = SimpleUploadedFile("state.json", b"{}")
    form = {"name": "Mine", "responses": [about, *reversed(shards(first, second))]}
    answer = client.post(reverse("new_experiment"), form)
    page = client.get(answer.url).content.decode()
    assert "3 files" in page
    assert "Choose a column for: Task." in page
    columns = {"Frage": "task", "GPT 4": "response", "Claude": "response"}
    client.post(answer.url, said(columns, action="import"))
    mine = Experiment.objects.get(name="Mine")
    assert [task.prompt for task in mine.tasks.all()] == ["One?", "Two?"]
    for files, words in (
        (shards(first, second, stem="same.csv"), "same.csv: Two files have this name."),
        (shards(first, second, stem="table {}.csv"), "There are 2 tables or splits here"),
    ):
        refused = client.post(reverse("new_experiment"), {"name": "Mine", "responses": files})
        assert words in refused.content.decode()
    votes = shards(b"task,policy_a,policy_b,winner\nT,P,Q,a\n", b"task,policy_a,policy_b,winner\nT,P,Q,b\n")
    client.post(reverse("import_votes"), {"name": "Votes", "votes": votes})
    assert Experiment.objects.get(name="Votes").past_votes == 2
    sent = {"tasks_file": shards(b"prompt\nOne?\n", b"prompt\nTwo?\n"), "part": "tasks-file"}
    url = reverse("new_from", args=["blank"])
    assert "2 tasks" in client.post(url, sent, headers={"HX-Request": "true"}).content.decode()


def test_an_upload_is_its_users_alone_and_goes_after_a_day(client, owner):
    url = upload(client, WIDE).url
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
    text = "Frage,Customer Name,Nr\nWho is {{x}}?,Ann,1\nwho is {{x}}?,Bob,2\n"
    page = client.post(url, {"tasks": text, "part": "tasks"}, headers={"HX-Request": "true"}).content.decode()
    assert "These look like names of columns" in page
    assert '<option value="variable" selected>' in page
    chosen = {
        "tasks_column": ["Frage", "Customer Name", "Nr"],
        "tasks_meaning": ["task", "variable", "ignore"],
    }
    page = client.post(url, {"tasks": text, "change": "tasks-columns"} | chosen).content.decode()
    assert "2 tasks." in page
    assert "Variables: <code>customer_name</code>" in page
    assert "1 task came with nearly equal names" in page
    chosen["tasks_meaning"] = ["ignore", "variable", "ignore"]
    sent = {"tasks": text, "part": "tasks-columns"} | chosen
    page = client.post(url, sent, headers={"HX-Request": "true"}).content.decode()
    assert "Missing: task or prompt or input or question. Found: variables" in page
    assert "Who is {{x}}?,Ann,1" in page, "nothing is lost"
    book = SimpleUploadedFile("tasks.xlsx", workbook([["Frage", "Nr"], ["One?", 1]]))
    sent = {"tasks_file": book, "part": "tasks-file"}
    page = client.post(url, sent, headers={"HX-Request": "true"}).content.decode()
    assert "One?" in page
    assert 'name="tasks_column" value="Frage"' in page


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("name", ["tasks.csv", "tasks.xlsx"])
def test_tasks_without_a_known_column_are_told_to_say_which_it_is_where_the_page_asks(client, name):
    """The page spoke of --map, an option of the command line."""
    data = b"Frage,Nr\nOne?,1\nTwo?,2\n"
    if name == "tasks.xlsx":
        data = workbook([["Frage", "Nr"], ["One?", 1], ["Two?", 2]])
    sent = {"tasks_file": SimpleUploadedFile(name, data), "part": "tasks-file"}
    page = client.post(reverse("new_from", args=["blank"]), sent, headers={"HX-Request": "true"})
    html = page.content.decode()
    assert "You can also say which column it is under “Columns of the tasks”." in html
    assert "<summary>Columns of the tasks</summary>" in html
    assert "--" not in html.replace("<!--", "")


@pytest.mark.usefixtures("owner")
def test_an_empty_sheet_leads_to_the_choice_of_another_on_the_page(client):
    """The page spoke of --sheet, an option of the command line."""
    book = workbook([["task", "policy", "response"]], [["task", "policy", "response"], ["T", "A", "a"]])
    page = client.get(upload(client, book).url).content.decode()
    assert "This is the sheet Sheet 1 of Sheet 1, Sheet 2. Choose another sheet under “Columns”." in page
    assert '<select id="sheet"' in page
    assert "--sheet" not in page


COLUMNS = {"Frage": "task", "GPT 4": "response", "Claude": "response", "id": "ignore"}


@pytest.mark.usefixtures("owner")
def test_a_file_that_two_requests_import_at_once_is_imported_once(client, monkeypatch):
    url = upload(client, WIDE).url
    others = []

    def looked(*given: Any) -> Any:
        if not others:
            others.append(None)
            others[0] = client.post(url, said(COLUMNS, action="import", name="Theirs"))
        return look(*given)

    monkeypatch.setattr("labeling.views.columns.look", looked)
    late = client.post(url, said(COLUMNS, action="import"))
    assert (others[0].status_code, late.status_code) == (302, 400)
    assert "Another request has imported this file" in late.content.decode()
    assert [each.name for each in Experiment.objects.all()] == ["Theirs"]
    assert not Upload.objects.exists()


def test_a_file_whose_import_is_refused_is_kept(client, owner):
    create_experiment(spec=make_spec(name="Mine"), by=owner)
    url = upload(client, WIDE).url
    refused = client.post(url, said(COLUMNS, action="import"))
    assert (refused.status_code, b"You have an experiment of this name" in refused.content) == (400, True)
    assert client.post(url, said(COLUMNS, action="import", name="Other")).status_code == 302
    assert not Upload.objects.exists()


LONG = "id,prompt,model_name,answer_text\n" + "".join(
    f"{2 * task + n},Task {task}?,{model},{model} says {task}.\n"
    for task in range(20)
    for n, model in enumerate(("alpha-7b", "beta-13b"))
)


@pytest.mark.usefixtures("owner")
def test_a_long_table_by_other_names_is_seen_as_one_and_its_numbers_are_left_out(client):
    response = upload(client, LONG.encode())
    page = client.get(response.url).content.decode()
    assert "40 responses of 2 policies to 20 tasks." in page
    assert [(column.name, column.meaning) for column in look(LONG, Material.RESPONSES).columns] == [
        ("id", "ignore"), ("prompt", "task"), ("model_name", "policy"), ("answer_text", "response"),
    ]  # fmt: skip


@pytest.mark.usefixtures("owner")
def test_a_column_answer_that_differs_between_policies_holds_the_responses(client):
    """It was taken for the reference answer, and each row for one without a response."""
    data = b"question,model,answer,score\n" + b"".join(
        f"Q{n},{name},{name} says {n},{n}\n".encode() for n in range(4) for name in ("a", "b")
    )
    address = upload(client, data, name="Vendors").url
    assert "8 responses of 2 policies to 4 tasks." in client.get(address).content.decode()
    columns = {"question": "task", "model": "policy", "answer": "reference", "score": "ignore"}
    html = client.post(address, said(columns, action="check")).content.decode()
    assert html.count("Choose a column for: Response.") == 1
    assert "The response is empty" not in html
    # One answer to each task is a reference.
    one = look("question,model,answer\nQ,a,Yes\nQ,b,Yes\n", Material.RESPONSES)
    assert [column.meaning for column in one.columns] == ["task", "policy", "reference"]


def test_alpacaevals_outputs_are_the_responses_of_their_generator():
    rows = [
        {"dataset": "koala", "instruction": f"Q{n}", "output": f"{by} {n}", "generator": by}
        for n in (1, 2)
        for by in ("gpt4", "llama")
    ]
    text = json.dumps(rows)
    found = look(text, Material.RESPONSES)
    assert {each.name: each.meaning for each in found.columns} == {
        "dataset": "ignore", "instruction": "task", "output": "response", "generator": "policy",
    }  # fmt: skip


def test_what_is_no_policy_for_sure_is_left_to_the_person():
    told = LONG.replace("model_name", "who").replace("answer_text", "said")
    found = look(told, Material.RESPONSES)
    assert [column.meaning for column in found.columns] == ["ignore", "task", "ignore", "ignore"]
    assert set(found.missing) == {"policy", "response"}


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(("n_others", "folded"), [(9, 0), (297, 297)])
def test_of_many_columns_those_left_out_are_folded_and_still_sent(n_others, folded, client):
    others = [f"note {n}" for n in range(n_others)]
    heading = ["prompt", "model_name", "answer_text", *others]
    lines = [["One?", "a", "yes", *others], ["One?", "b", "no", *others]]
    data = "\n".join(",".join(line) for line in [heading, *lines]).encode()
    page = client.get(upload(client, data).url).content.decode()
    shown, _, rest = page.partition("more columns: Leave out</summary>")
    assert shown.count('name="column"') == len(heading) - folded
    assert rest.count('name="column"') == folded


@pytest.mark.usefixtures("owner")
def test_a_folded_column_that_got_a_meaning_is_shown(client):
    names = ["prompt", "model_name", *(f"note {n}" for n in range(30))]
    data = "\n".join(",".join(line) for line in [names, ["One?", "a", *names[2:]], ["One?", "b", *names[2:]]])
    url = upload(client, data.encode()).url
    chosen = dict.fromkeys(names, "ignore") | {"prompt": "task", "model_name": "policy", "note 7": "response"}
    page = client.post(url, said(chosen, action="check")).content.decode()
    shown, folded, _ = page.partition("29 more columns: Leave out")
    assert folded
    assert 'value="note 7"' in shown
    assert client.post(url, said(chosen, action="import")).status_code == 302
