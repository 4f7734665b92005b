"""A finite pool from the upload to its end, on the pages alone."""

import json
import re
from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Judgment, User
from engine.services.planning import advance
from tests.accounts import bearer
from tests.factories import add_member, make_user, workers_alive
from tests.markup import Markup, words
from tests.tables import imported, run_imports

pytestmark = pytest.mark.django_db

# To the first task A and C wrote the same, but for the space around it.
POOL = "task,A,B,C\nOne?,a1,b1, a1\nTwo?,a2,b2,c2\n"


@pytest.fixture
def owner(client) -> User:
    user = make_user("owner", is_superuser=True)
    client.force_login(user)
    return user


@pytest.fixture
def pool(client: Client, owner: User) -> Experiment:
    file = SimpleUploadedFile("pool.csv", POOL.encode())
    reply = client.post("/experiments/new/", {"name": "Pool", "responses": file})
    assert reply.status_code == 302, words(reply)
    run_imports()
    mapping = Markup(client.get(reply.url).content.decode())
    columns = {"column": ["task", "A", "B", "C"], "role": ["task", "response", "response", "response"]}
    assert "A" in mapping.text
    reply = client.post(reply.url, columns | {"name": "Pool", "action": "import"})
    run_imports()
    experiment = Experiment.objects.get(name="Pool")
    workers_alive("control", "analysis", "generation")
    started = client.post(reverse("change_state", args=[experiment.pk]), {"action": "start"})
    assert started.status_code == 302
    experiment.refresh_from_db()
    assert experiment.state == "running"
    return experiment


def judged_on_the_page(experiment: Experiment, client: Client) -> list[frozenset[str]]:
    """The texts that somebody is shown until there are none; they click “A”, and workers plan in between."""
    url, seen = reverse("pair", args=[experiment.pk]), []
    while True:
        advance(experiment_id=experiment.pk)
        page = client.get(url).content.decode()
        token = re.search(r'name="token" value="([^"]+)"', page)
        if token is None:
            return seen
        seen.append(frozenset(re.findall(r">([abc][12])</p>", unescape(page))))
        client.post(reverse("judge", args=[experiment.pk]), {"token": token[1], "choice": "left"})


def test_nobody_is_shown_two_texts_twice_and_the_end_is_said(pool, client, client_for, monkeypatch):
    ann, bob = make_user("ann"), make_user("bob")
    add_member(pool, ann)
    seen = judged_on_the_page(pool, client_for(ann))
    assert sorted(map(sorted, seen)) == [["a1", "b1"], ["a2", "b2"], ["a2", "c2"], ["b2", "c2"]]
    tie = Judgment.objects.get(via="identical")
    assert (tie.choice, tie.annotator) == ("tie", None)
    url = reverse("pair", args=[pool.pk])
    assert "You have judged everything there is." in words(client_for(ann).get(url))
    said = words(client.get(reverse("dashboard", args=[pool.pk])))
    assert "Texts used up" in said
    assert "Every annotator has judged each two texts that can be compared." in said
    assert "Invite more annotators, or make an experiment with more tasks or responses." in said

    woken: list[int] = []
    monkeypatch.setattr("labeling.annotation.waiting_annotators.wake_planner", woken.append)
    client_for(ann).get(url)
    assert woken == [], "nothing can be planned for Ann"
    add_member(pool, bob)
    assert "New pairs are being prepared." in words(client_for(bob).get(url))
    cora = make_user("cora")
    add_member(pool, cora)
    asked = Client().post(
        f"/api/label/{pool.pk}/next",
        {},
        content_type="application/json",
        headers=bearer(cora, ["annotate"]),
    )
    assert asked.json()["pair"] is None
    assert woken == [pool.pk] * 2
    assert sorted(judged_on_the_page(pool, client_for(bob)), key=sorted) == sorted(seen, key=sorted)


def test_the_claim_names_the_pool(client, owner):
    votes = [
        {"task": f"T{n % 3}", "policy_a": "P", "policy_b": "Q", "winner": "a" if n % 10 else "b"}
        | {"response_a": f"p{n % 3}", "response_b": f"q{n % 3}", "annotator": f"{n % 5}"}
        for n in range(200)
    ]
    file = SimpleUploadedFile("votes.json", json.dumps(votes).encode())
    imported(client, reverse("import_votes"), {"name": "Voted", "votes": file})
    experiment = Experiment.objects.get(name="Voted")
    advance(experiment_id=experiment.pk)
    client.post(reverse("change_state", args=[experiment.pk]), {"action": "start"})
    advance(experiment_id=experiment.pk)
    said = words(client.get(reverse("dashboard", args=[experiment.pk])))
    assert "Winner found" in said
    assert "It holds on these 6 responses to 3 tasks." in said
    # Nobody knows their tokens, and nothing is set of them.
    assert "Tokens" not in said
    assert "Cost and tokens" not in words(client.get(reverse("method", args=[experiment.pk])))
    assert "Nothing to set" not in words(client.get(reverse("setup", args=[experiment.pk])))
