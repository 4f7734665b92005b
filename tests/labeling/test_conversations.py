"""Tasks that are conversations, with variables and tags: on pages, in exports, through the API."""

import csv
import io
import json
from dataclasses import replace
from functools import partial

import pytest
from django.core.management import call_command
from django.urls import reverse

from engine.domain.conversations import Message, as_json, text_and_messages
from engine.domain.specs import FactorSpec, GoldSpec, TaskSpec
from engine.models import Comparison, Experiment
from engine.selectors import browsing
from engine.selectors.browsing import Selection
from engine.selectors.specs import experiment_spec
from engine.services.drafts import create_experiment
from engine.services.experiments import start as start_experiment
from engine.services.planning import advance
from tests.accounts import bearer
from tests.factories import SECRET, add_member, click_on, make_spec, write_responses
from tests.markup import Markup

pytestmark = pytest.mark.django_db

TURNS = (
    Message("system", "You sell tea."),
    Message("user", "Hello, *Ülker*!"),
    Message("assistant", "Hi. **Green** or <b>black</b>?"),
    Message("user", 'What is 7 + "milder"?'),
)
TEXT, MESSAGES = text_and_messages(TURNS)
TALK = TaskSpec(TEXT, "green", MESSAGES, {"customer": "Ann Secret"}, ("tea", "Grüße"))
PLAIN = TaskSpec("What is 1 + *0*?", variables={"customer": "Bob"}, tags=("short",))


def talking(annotator, *tasks: TaskSpec, **settings) -> Experiment:
    factor = FactorSpec(
        "Prompt", "prompt", {"Named": {"text": "quality 0 for {{ customer }}"}, "Bare": {"text": "quality 2"}}
    )
    gold = [GoldSpec(TEXT, "Green.", "Blue.", "", MESSAGES)]
    spec = replace(make_spec(name="Talk", **settings), factors=[factor], tasks=tasks, gold=gold)
    experiment = create_experiment(spec=spec)
    Experiment.objects.filter(pk=experiment.pk).update(secret=SECRET)
    add_member(experiment, annotator)
    start_experiment(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    write_responses()
    return experiment


def test_a_pair_shows_the_conversation_and_one_text_as_ever(annotator, client_for):
    experiment = talking(annotator, TALK)
    page = client_for(annotator).get(reverse("pair", args=[experiment.pk])).content.decode()
    assert "3 earlier messages" in page
    places = [
        page.index(each)
        for each in ("System</p>", "You sell tea.", "User</p>", "<em>Ülker</em>", "Assistant</p>",
                     "<strong>Green</strong>", "milder")
    ]  # fmt: skip
    assert places == sorted(places)
    assert "<b>black" not in page
    assert "Ann Secret" not in page


def test_exports_hold_it(annotator, tmp_path):
    experiment = talking(annotator, TALK, PLAIN)
    click_on(experiment, annotator, 6)
    file = tmp_path / "export.csv"
    call_command("export", str(experiment.pk), "--format", "csv", "--out", str(file), verbosity=0)
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    found = {(row["task"], row["task_messages"], row["task_variables"], row["task_tags"]) for row in rows}
    assert found <= {
        (
            TEXT,
            json.dumps(as_json(TURNS), ensure_ascii=False),
            '{"customer": "Ann Secret"}',
            '["tea", "Grüße"]',
        ),
        ("What is 1 + *0*?", "", '{"customer": "Bob"}', '["short"]'),
    }


def test_preferences_have_the_conversation_as_messages(annotator, tmp_path):
    experiment = talking(annotator, TALK)
    click_on(experiment, annotator, 6)
    for options, prompt in ((["--conversational"], as_json(TURNS)), ([], TEXT)):
        file = tmp_path / "pairs.jsonl"
        call_command(
            "export", str(experiment.pk), "--format", "dpo", "--out", str(file), *options, verbosity=0
        )
        prompts = [json.loads(line)["prompt"] for line in file.read_text().splitlines()]
        assert prompts
        assert all(each == prompt for each in prompts)
        file.unlink()


def test_a_tag_filters_comparisons(annotator, viewer, client_for):
    experiment = talking(annotator, TALK, PLAIN)
    add_member(experiment, viewer, "viewer")
    assert browsing.tags_of(experiment) == ["Grüße", "short", "tea"]
    every = Comparison.objects.filter(experiment=experiment)
    for tag, prompt in (("Grüße", TEXT), ("short", PLAIN.prompt)):
        selected = browsing.selected_comparisons(experiment, Selection(tag=tag))
        assert set(selected) == set(every.filter(task__prompt=prompt))
    assert not browsing.selected_comparisons(experiment, Selection(tag="te"))
    url = reverse("comparisons", args=[experiment.pk])
    assert client_for(viewer).get(url, {"tag": "tea"}).context["filtered"]
    assert client_for(viewer).get(url, {"tag": "te"}).status_code == 400


@pytest.mark.parametrize("state", ["draft", "running"])
def test_a_tag_filters_the_tasks_of_a_setup(state, annotator, viewer, client_for):
    many = [replace(PLAIN, prompt=f"Add {n}.", tags=("sums",)) for n in range(21)]
    experiment = talking(annotator, TALK, *many)
    Experiment.objects.filter(pk=experiment.pk).update(state=state)
    add_member(experiment, viewer, "viewer")
    read = partial(client_for(viewer).get, reverse("setup", args=[experiment.pk]))

    def numbers(page):
        listed = [e for e in Markup(page.content.decode()).elements if e.tag == "li"]
        return [int(e.attributes["value"]) for e in listed if "value" in e.attributes]

    assert numbers(read()) == list(range(1, 21))
    assert numbers(read({"tag": "tea"})) == [1]
    first = read({"tag": "sums"})
    assert numbers(first) == list(range(2, 22))
    assert 'href="?tag=sums&amp;page=2"' in first.content.decode()
    assert numbers(read({"tag": "sums", "page": 2})) == [22]
    assert "hard is not one" in read({"tag": "hard"}).content.decode()


BODY = {
    "name": "By program",
    "factors": [
        {"name": "F", "kind": "prompt", "levels": {"A": {"text": "{{ customer }}"}, "B": {"text": "B"}}}
    ],
    "tasks": [
        {"messages": as_json(TURNS), "reference": "green", "tags": ["tea", "Grüße"],
         "variables": {"customer": "Ann Secret"}},
    ],
    "gold": [{"messages": as_json(TURNS), "better": "Green.", "worse": "Blue."}],
}  # fmt: skip


class TestAPI:
    def call(self, client, user, path, body):
        return client.post(
            f"/api{path}",
            body,
            content_type="application/json",
            headers=bearer(user, ["read", "annotate", "manage"]),
        )

    def test_an_experiment_is_made_with_conversations_as_its_tasks(self, client, admin):
        response = self.call(client, admin, "/experiments", BODY)
        assert response.status_code == 201, response.content
        spec = experiment_spec(Experiment.objects.get(pk=response.json()["id"]))
        assert spec.tasks == [TALK]
        assert spec.gold == [GoldSpec(TEXT, "Green.", "Blue.", "", MESSAGES)]

    @pytest.mark.parametrize(
        ("task", "words"),
        [
            ({"prompt": "Hi"}, "No task has a variable 'customer'"),
            ({"prompt": "Hi", "messages": as_json(TURNS)}, "Give either prompt, a text, or messages"),
            ({}, "Give either prompt, a text, or messages"),
            ({"messages": as_json(TURNS[:3])}, "The last message is by the assistant"),
        ],
    )
    def test_what_cannot_be_used_is_refused_with_the_reason(self, client, admin, task, words):
        response = self.call(client, admin, "/experiments", BODY | {"tasks": [task]})
        assert response.status_code in {400, 422}
        assert words in response.content.decode()
        assert not Experiment.objects.exists()

    def test_the_next_pair_has_the_messages_of_its_task(self, client, annotator):
        experiment = talking(annotator, TALK)
        pair = self.call(client, annotator, f"/label/{experiment.pk}/next", {}).json()["pair"]
        assert (pair["prompt"], pair["messages"]) == (TEXT, as_json(TURNS))
        assert "Ann Secret" not in json.dumps(pair)
