"""Files of promptfoo in the browser and by the API: what was found is shown before anything is stored."""

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Upload, User
from tests.accounts import bearer, log_in_recently
from tests.factories import make_user
from tests.tables import run_imports

pytestmark = pytest.mark.django_db

FIXTURES = Path(__file__).parents[1] / "fixtures" / "promptfoo"


@pytest.fixture
def owner(client: Client) -> User:
    user = make_user("ann", is_superuser=True)
    client.force_login(user)
    return user


def file(name: str) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, (FIXTURES / name).read_bytes())


def send(client: Client, *names: str, field: str = "description") -> str:
    """The address of the page that shows what was found."""
    answer: Any = client.post(reverse("new_experiment"), {"name": "Tea", field: [*map(file, names)]})
    assert answer.status_code == 302
    return str(answer.url)


@pytest.mark.usefixtures("owner")
def test_the_page_shows_the_counts_and_stores_on_request(client):
    url = send(client, "06-csv-tests.yaml", "06-tests.csv")
    page = client.get(url).content.decode()
    assert 'data-what="test"' in page
    assert 'data-policies="2"' in page
    assert "llm-rubric" in page
    assert reverse("new_connection") in page
    assert not Experiment.objects.exists()
    client.post(url, {"action": "import", "name": "From a table"})
    run_imports()
    client.get(url)
    experiment = Experiment.objects.get()
    assert (experiment.name, experiment.tasks.count(), experiment.policies.count()) == ("From a table", 6, 2)
    assert experiment.tasks.get(position=1).checks == [
        {"kind": "contains", "value": "Lune"},
        {"kind": "icontains", "value": "river"},
    ]


@pytest.mark.usefixtures("owner")
def test_slips_refuse_the_file_until_they_are_left_out(client):
    url = send(client, "08-misplaced.yaml")
    refused = client.get(url)
    assert refused.status_code == 400
    assert 'data-refused="6"' in refused.content.decode()
    client.post(url, {"action": "import", "name": "Mine"})
    run_imports()
    assert not Experiment.objects.exists()
    page = client.post(url, {"leave_out": "1"}).content.decode()
    assert 'data-policies="1"' in page


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("name", ["02-code-provider.yaml", "09-env-and-targets.yaml"])
def test_fewer_than_two_policies_go_on_in_the_editor(client, name):
    url = send(client, name)
    begun = f"{reverse('new_from', args=['prompts'])}?upload={url.rstrip('/').rpartition('/')[2]}"
    assert begun in client.get(url).content.decode()
    page = client.get(f"{begun}&step=tasks")
    assert page.status_code == 200
    assert ("Cancel it" if name.startswith("02") else "Where is Bergen?") in page.content.decode()


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("field", ["description", "responses"])
def test_results_become_ready_made_responses(client, field):
    url = send(client, "10-results.json", field=field)
    assert 'data-what="response"' in client.get(url).content.decode()
    client.post(url, {"action": "import", "name": "Tea"})
    run_imports()
    client.get(url)
    experiment = Experiment.objects.get()
    assert experiment.responses == "imported"
    assert sum(policy.responses.count() for policy in experiment.policies.all()) == 5


def test_a_link_fills_in_a_new_connection_but_no_key(client, owner):
    log_in_recently(client, owner)
    fields = {
        "name": "acme",
        "provider": "compatible",
        "address": "https://llm.example.com/v1",
        "key": "sk-1",
    }
    page = client.get(reverse("new_connection"), fields).content.decode()
    assert "https://llm.example.com/v1" in page
    assert "sk-1" not in page


def by_program(user: User, name: str, **fields: str) -> dict[str, Any]:
    form = {"material": "experiment", "file": file(name)} | fields
    answer = Client().post("/api/imports", form, headers=bearer(user))
    assert answer.status_code == 202, answer.content
    run_imports()
    told: dict[str, Any] = Client().get(answer["Location"], headers=bearer(user)).json()
    return told


def test_the_api_says_what_was_left_out(owner):
    told = by_program(owner, "01-two-by-two.yaml")
    assert told["state"] == "done"
    assert Experiment.objects.get().name == "Letters of a tea shop"
    assert any("llm-rubric" in warning for warning in told["warnings"])


def test_the_api_refuses_slips_all_at_once(owner):
    told = by_program(owner, "08-misplaced.yaml")
    assert (told["state"], len(told["faults"])) == ("asking", 6)
    assert not Experiment.objects.exists()


def test_the_api_says_what_one_policy_lacks(owner):
    told = by_program(owner, "09-env-and-targets.yaml")
    assert told["state"] == "asking"
    assert "add a second" in told["faults"][0]
    assert Upload.objects.count() == 1
