"""Runs of other tools, and settings beside ready-made responses: in the browser and by the API."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, User
from tests.accounts import bearer
from tests.factories import make_user
from tests.tables import imported, run_imports

pytestmark = pytest.mark.django_db
CROSSED = "task,model,prompt,response\n" + "".join(
    f"T,{model},{prompt},{model}{prompt}\n" for model in "ab" for prompt in ("Terse", "Warm")
)


@pytest.fixture
def owner(client: Client) -> User:
    user = make_user("ann", is_superuser=True)
    client.force_login(user)
    return user


def batch(*models: str, system: str = "") -> list[SimpleUploadedFile]:
    """The questions and the answers of a batch; the last request failed."""
    turns = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": "Tea?"}]
    questions = [{"custom_id": name, "body": {"model": name, "messages": turns}} for name in models]
    answers: list[dict[str, Any]] = [
        {"custom_id": name, "response": {"body": {"model": name, "choices": [{"text": "Yes"}]}}}
        for name in models
    ]
    answers[-1] = {"custom_id": models[-1], "error": {"code": "batch_expired"}}
    return [
        SimpleUploadedFile(name, "\n".join(map(json.dumps, rows)).encode())
        for name, rows in (("in.jsonl", questions), ("out.jsonl", answers))
    ]


@pytest.mark.usefixtures("owner")
def test_the_page_counts_before_anything_is_stored(client):
    form = {"name": "Tea", "responses": batch("a", "b", "c")}
    url = client.post(reverse("new_experiment"), form).url
    page = client.get(url).content.decode()
    assert 'data-what="response"' in page
    assert 'data-policies="2"' in page
    assert "of c: an error (batch_expired)" in page
    assert not Experiment.objects.exists()
    client.post(url, {"action": "import", "name": "Tea"})
    run_imports()
    client.get(url)
    assert Experiment.objects.get().policies.count() == 2


@pytest.mark.usefixtures("owner")
def test_one_policy_goes_on_with_its_tasks_and_its_system_text(client):
    form = {"name": "Tea", "responses": batch("a", "b", system="Be kind to guests.")}
    url = client.post(reverse("new_experiment"), form).url
    assert 'data-policies="1"' in client.get(url).content.decode()
    begun = f"{reverse('new_from', args=['prompts'])}?upload={url.rstrip('/').rpartition('/')[2]}"
    page = client.get(begun).content.decode()
    assert "Be kind to guests." in page
    assert "Tea?" in client.get(f"{begun}&step=tasks").content.decode()


@pytest.mark.usefixtures("owner")
def test_a_draft_with_several_factors_keeps_them_and_their_assumption(client):
    file = SimpleUploadedFile("answers.csv", CROSSED.encode())
    url = client.post(reverse("new_experiment"), {"name": "Tea", "responses": file, "look": "1"}).url
    columns = {
        "column": ["task", "model", "prompt", "response"],
        "role": ["task", "factor", "factor", "response"],
    }
    imported(client, url, {"name": "Tea", "action": "import", **columns})
    experiment = Experiment.objects.get()
    page = reverse("setup", args=[experiment.pk])
    answer = client.get(page)
    assert answer.content.decode().count("Terse") == 2, "in two of four policies"
    data = answer.context["editor"].data.dict() | {"space": "factorial", "action": "save"}
    assert client.post(page, data).status_code == 302
    experiment.refresh_from_db()
    assert (experiment.space, experiment.factors.count(), experiment.policies.count()) == ("factorial", 2, 4)


def by_program(user: User, **form: Any) -> dict[str, Any]:
    answer = Client().post("/api/imports", form, headers=bearer(user))
    assert answer.status_code == 202, answer.content
    run_imports()
    told: dict[str, Any] = Client().get(answer["Location"], headers=bearer(user)).json()
    return told


def test_the_api_takes_every_setting_beside_responses(owner):
    file = SimpleUploadedFile("answers.csv", CROSSED.encode())
    form = {"material": "responses", "name": "Tea", "columns": ["model=factor", "prompt=factor"]}
    told = by_program(owner, **form, file=file, settings=json.dumps({"space": "factorial", "budget": 77}))
    assert told["state"] == "done"
    experiment = Experiment.objects.get()
    assert (experiment.space, experiment.budget, experiment.factors.count()) == ("factorial", 77, 2)
    file.seek(0)
    told = by_program(owner, **form | {"name": "Other"}, file=file, settings='{"budget": "many"}')
    assert told["state"] == "asking"
    assert "budget" in told["faults"][0]


def test_the_api_says_what_was_left_out_of_a_run(owner):
    told = by_program(owner, material="responses", name="Tea", file=batch("a", "b", "c"))
    assert told["state"] == "done"
    assert any("of c: an error (batch_expired)" in warning for warning in told["warnings"])
