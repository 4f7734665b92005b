"""Data sets and traces of other tools in the browser, by the API and by the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Response, User
from tests.factories import make_user
from tests.tables import run_imports

pytestmark = pytest.mark.django_db

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def owner(client: Client) -> User:
    user = make_user("ann", is_superuser=True)
    client.force_login(user)
    return user


def file(path: str) -> SimpleUploadedFile:
    return SimpleUploadedFile("a.txt", (FIXTURES / path).read_bytes())


def send(client: Client, path: str, field: str = "description") -> str:
    answer = client.post(reverse("new_experiment"), {"name": "Traffic", field: [file(path)]})
    assert answer.status_code == 302
    return str(answer["Location"])


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("field", ["description", "responses"])
def test_runs_of_two_policies_are_responses_as_they_were(client, field):
    url = send(client, "langsmith/runs.jsonl", field)
    page = client.get(url).content.decode()
    assert 'data-policies="2"' in page
    assert not Experiment.objects.exists()
    client.post(url, {"action": "import", "name": "As it was"})
    run_imports()
    client.get(url)
    experiment = Experiment.objects.get()
    assert (experiment.tasks.count(), Response.objects.count()) == (2, 3)


@pytest.mark.usefixtures("owner")
def test_what_compares_nothing_goes_on_as_tasks_with_the_system_text_as_a_level(client):
    url = send(client, "langfuse/trace.json")
    page = client.get(url).content.decode()
    assert 'value="import"' not in page
    assert 'data-dropped="2"' in page
    begun = f"{reverse('new_from', args=['prompts'])}?upload={url.rstrip('/').rpartition('/')[2]}"
    assert begun in page
    page = client.get(begun).content.decode()
    assert "You help a bike shop." in page
    assert "Thank the customer in five words." in page
    assert "Two are left." not in page


@pytest.mark.usefixtures("owner")
def test_a_sample_is_drawn_on_the_page(client):
    url = send(client, "otel/events.jsonl")
    assert 'data-what="task"' in (page := client.post(url, {"sample": "2", "seed": "7"}).content.decode())
    assert "sample=2&amp;seed=7" in page or "sample=2&seed=7" in page
    begun = (
        f"{reverse('new_from', args=['prompts'])}?upload={url.rstrip('/').rpartition('/')[2]}&sample=2&seed=7"
    )
    page = client.get(begun).content.decode()
    assert 'name="n_tasks" value="2"' in page


@pytest.mark.usefixtures("owner")
def test_the_field_for_tasks_takes_them(client):
    sent = {"part": "tasks-file", "tasks_file": file("langfuse/dataset-items.json")}
    page = client.post(reverse("new_from", args=["prompts"]), sent, headers={"HX-Request": "true"})
    assert 'name="n_tasks" value="4"' in (content := page.content.decode())
    assert "You help a bike shop." not in content.partition("</textarea>")[0]


def test_the_command_stores_what_compares_and_prints_the_rest(capsys):
    make_user("ann", is_superuser=True)
    call_command("load_experiment", FIXTURES / "langsmith/runs.jsonl", "--owner", "ann")
    assert Experiment.objects.get().policies.count() == 2
    call_command("load_experiment", FIXTURES / "langfuse/trace.json", "--sample", "1", "--owner", "ann")
    printed = capsys.readouterr().out
    assert "1 task of 2 drawn at random" in printed
    assert "You help a bike shop." in printed
    assert "ready_made" not in printed
