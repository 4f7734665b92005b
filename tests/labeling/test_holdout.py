"""A writer that copies answers of the tasks that it has seen: on the pages, with people of a known taste."""

import json
import math
import re
import zlib

import numpy as np
import pytest
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from engine.models import Connection, Experiment, Improvement
from engine.selectors.improvements import race_of, tasks_left
from engine.services import planning
from engine.services.planning import advance
from engine.writing.worker import write_proposals
from tests.backends import ScriptedBackend, system_of, user_of
from tests.factories import add_member, write_responses
from tests.generation.chat_server import Reply, completion, serve
from tests.improving import FACTOR, make_world
from tests.markup import stage

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

_TASK = re.compile(r"Please tell me all about subject \d+")
_SEEN = re.compile(rf"Task: ({_TASK.pattern})\n.*?Comment: It happened in (\d+)\.", re.DOTALL)


def year(task: str) -> str:
    """What a good answer to a task says, which people know and no prompt does that was not told."""
    return str(1000 + zlib.crc32(task.encode()) % 1000)


def answered(request) -> str:
    """It knows the years that stand in its prompt, and guesses the others."""
    asked = user_of(request)
    known = re.search(rf"“{asked}”: (\d+)", system_of(request))
    return f"Answer {request.seed:010d}: it was {known[1] if known else 'long ago'}."


def copying(asked: dict) -> Reply:
    """The writer's model: it copies the years out of people's comments into its texts."""
    seen = _SEEN.findall(asked["messages"][0]["content"])
    copied = " ".join(f"“{task}”: {said}." for task, said in dict.fromkeys(seen))
    texts = [f"{style}, clerk {len(server_asked)}. {copied}" for style in ("Be exact", "Know your years")]
    server_asked.append(copied)
    return completion(json.dumps({"proposals": [{"reason": "They know.", "text": text} for text in texts]}))


server_asked: list[str] = []


def judge(client: Client, experiment: Experiment, rng: np.random.Generator) -> bool:
    """Compare the pair on the page: whoever knows the year is liked much better; and comment on it."""
    page = client.get(reverse("pair", args=[experiment.pk]))
    if not (token := stage(page).get("token")):
        return False
    html = page.content.decode()
    [task] = set(_TASK.findall(html))
    left, right = (f"it was {year(task)}" in side for side in html.split('id="label-b"'))
    choice = "left" if rng.random() < 1.0 / (1.0 + math.exp(-4.0 * (left - right))) else "right"
    sent = {"token": token, "choice": choice, "comment": f"It happened in {year(task)}."}
    assert client.post(reverse("judge", args=[experiment.pk]), sent).status_code == 302
    return True


def work(experiment: Experiment) -> None:
    """What the workers do meanwhile."""
    for improvement in experiment.improvements.filter(state="open"):
        write_proposals(improvement.pk)
    advance(experiment_id=experiment.pk)
    write_responses(ScriptedBackend(answered))


def improved(annotator, editor, client_for) -> Improvement:
    """From the form to the end."""
    rng = np.random.default_rng(5)
    experiment = make_world([annotator], n_tasks=24)
    add_member(experiment, editor, "editor")
    person, owner = client_for(annotator), client_for(editor)
    for _ in range(24):
        judge(person, experiment, rng) or work(experiment)
    form = {"writer": "model:Copier", "factor": FACTOR, "wish": "", "clicks": "60"}
    with serve(copying) as server:
        Connection.objects.create(
            name="Copier", provider="compatible", model_id="c", address=server.url, owner=editor
        )
        assert owner.post(reverse("improve", args=[experiment.pk]), form).status_code == 302
        experiment.improvements.update(seed=1)
        for _ in range(500):
            judge(person, experiment, rng) or work(experiment)
            improvement = experiment.improvements.get()
            if improvement.state != Improvement.State.OPEN:
                return improvement
    raise AssertionError("it did not end")


@pytest.fixture(autouse=True)
def on_this_machine(settings):
    settings.ALLOW_PRIVATE_CONNECTIONS = True


def test_it_is_not_certified_on_the_other_tasks(annotator, editor, client_for):
    improvement = improved(annotator, editor, client_for)
    assert improvement.verdict["kind"] in {"leads", "nothing_better"}
    experiment = improvement.experiment
    copies = improvement.proposals.filter(policy__isnull=False, text__contains="subject")
    assert copies.count() > 2
    for each in copies:
        pairs = experiment.comparisons.filter(Q(policy_i=each.policy) | Q(policy_j=each.policy))
        assert not pairs.filter(task__in=each.writing.opened_tasks).exists()
        assert not pairs.filter(task__prompt__in=_TASK.findall(each.text)).exists()
    assert tasks_left(improvement).judging == 24 - len(improvement.open_tasks)
    assert race_of(improvement).verdict.kind == improvement.verdict["kind"]


def test_it_would_be_on_those_that_it_has_seen(annotator, editor, client_for, monkeypatch):
    """The same writer and people, were the copied tasks to judge."""

    def copied(improvement: Improvement, phase: str) -> list[int]:
        racing = improvement.proposals.filter(policy__isnull=False, policy__retired_at=None)
        named = [_TASK.findall(text) for text in racing.values_list("text", flat=True)]
        tasks = improvement.experiment.tasks.filter(prompt__in=named[0] if named else [])
        return list(tasks.values_list("pk", flat=True))

    monkeypatch.setattr(planning, "tasks_for", copied)
    improvement = improved(annotator, editor, client_for)
    assert improvement.verdict["kind"] == "certified"
    assert "subject" in improvement.proposals.get(policy=improvement.champion).text
