"""Every page of an experiment whose policies have changed."""

import io
import json
import re
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from engine.core import Design, Unstructured
from engine.domain.limits import FILE_BYTES
from engine.importing.reading_process import source_of
from engine.models import Experiment, Task
from engine.selectors import designs
from engine.selectors.policies import policy_names
from engine.selectors.pool_claims import of_pool, tasks_left_out
from engine.selectors.rankings import ranking
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.standings import standing_of
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from engine.services.policies import add_policies, retire_policy
from engine.sources.base import Fetched
from engine.sources.hub import Hub
from tests.engine.test_drawing import ANSWERS, imported_spec
from tests.engine.test_policies import NEW, begun, judged
from tests.factories import add_member, click_for, click_on, plan_and_write, write_responses
from tests.markup import text_of

pytestmark = pytest.mark.django_db

PAGES = (
    "dashboard", "dashboard_live", "ranking_file", "results_file", "quality", "quality_charts", "method",
    "method_live", "method_charts", "setup", "setup_file", "experiment_settings", "log", "people",
    "comparisons", "remarks", "export", "report",
)  # fmt: skip


@pytest.fixture
def living(annotator):
    """Concluded, challenged, concluded again, and running with two more, of which one has retired."""
    experiment = judged(begun(annotator), annotator)
    add_policies(experiment_id=experiment.pk, levels=NEW)
    experiment = judged(experiment, annotator)
    add_policies(
        experiment_id=experiment.pk,
        levels={"System prompt": {"Kind": {"text": "quality 1"}, "Odd": {"text": "quality 2"}}},
    )
    click_on(experiment, annotator, 4)
    retire_policy(experiment_id=experiment.pk, index=5, reason="Odd.")
    click_on(experiment, annotator, 2)
    experiment.refresh_from_db()
    return experiment


def test_every_page_opens(living, admin_client):
    for name in PAGES:
        assert admin_client.get(reverse(name, args=[living.pk])).status_code in {200, 204}, name
    for number in range(1, 7):
        assert admin_client.get(reverse("policy", args=[living.pk, number])).status_code == 200


def test_the_result_counts_rivals_that_are_there_and_tells_of_all_conclusions(living, admin_client):
    html = admin_client.get(reverse("dashboard", args=[living.pk])).content.decode()
    assert 'data-conclusions="2"' in html
    report = admin_client.get(reverse("report", args=[living.pk])).content.decode()
    assert 'data-conclusions="2"' in report
    assert "Odd." in report
    # Of six policies four have retired.
    assert standing_of(living, latest_snapshot(living), policy_names(living)).n_rivals == 1
    words = [each.word for each in ranking(living)]
    assert words[2:] == ["retired"] * 4
    assert "retired" not in words[:2]


def test_the_decision_follows_from_the_exported_log(living, admin_client, monkeypatch):
    # While pairs are open nobody gets it: it names their policies.
    monkeypatch.setattr("labeling.exports.downloads.events_may_go_out", lambda _: True)
    log = admin_client.post(reverse("events_jsonl", args=[living.pk])).getvalue().decode()
    first, *events = map(json.loads, log.splitlines())
    design = Design(Unstructured(len(first["policies"])), labels=first["policies"], **first["settings"])
    for event in events:
        getattr(design, event.pop("call"))(**event)
    stored = designs.stored(living).design
    assert list(design.labels) == list(stored.labels)
    assert design.decision.conclusions == stored.decision.conclusions
    drawn = [(each["stage"], each["policy"], tuple(each["among"])) for each in first["conclusions"]]
    assert drawn == [(each.stage, each.policy, each.among) for each in design.decision.conclusions]
    assert design.evidence.tolist() == stored.evidence.tolist()


def test_the_verdict_says_whom_it_is_about_and_the_risk_of_all_conclusions(annotator, admin_client):
    experiment = judged(begun(annotator), annotator)
    add_policies(experiment_id=experiment.pk, levels=NEW)
    experiment = judged(experiment, annotator)
    verdict = admin_client.get(reverse("dashboard", args=[experiment.pk])).context["verdict"]
    first = verdict["sentences"][0]
    n_first, n_second = experiment.conclusions.values_list("comparisons", flat=True)
    assert first.startswith(f"About Prompt 2 and Warm, after {n_second - n_first} comparisons since ")
    assert first.endswith("with at most 10%.")


class TestThePage:
    def test_who_was_not_compared_yet_has_no_estimate(self, annotator, admin_client):
        experiment = begun(annotator)
        plan_and_write(experiment)
        click_for(experiment, annotator, lambda i, j: i > j)
        add_policies(experiment_id=experiment.pk, levels=NEW)
        advance(experiment_id=experiment.pk)
        rows = admin_client.get(reverse("dashboard", args=[experiment.pk])).context["policies"]
        bars = {bool(row["comparisons"]): row["bar"] for row in rows if row["word"] != "leads"}
        assert bars[False] is None
        assert bars[True]

    def test_who_lost_and_leaves_is_named(self, annotator, admin_client):
        experiment = judged(begun(annotator), annotator)
        form = admin_client.get(reverse("add_policy", args=[experiment.pk])).context["join"]
        names = {each.name for each in policy_names(experiment)}
        lost = names - {policy_names(experiment)[experiment.winner.index].name}
        assert {name for name in names if name in form.fields["losers_leave"].label} == lost

    def test_a_new_prompt_joins(
        self, annotator, editor, client_for, sent, django_capture_on_commit_callbacks
    ):
        experiment = begun(annotator)
        add_member(experiment, editor, "editor")
        url = reverse("add_policy", args=[experiment.pk])
        client = client_for(editor)
        # It begins with the text of the policy that leads.
        assert field_of(client.get(url), "level-text") == "quality 0"
        with django_capture_on_commit_callbacks(execute=True):
            reply = client.post(url, {"level-name": "Warm", "level-text": "quality 5"})
        assert reply.status_code == 302
        assert experiment.policies.get(index=3).levels.get().value == {"text": "quality 5"}
        assert sent == [(experiment.pk,)]

    def test_its_first_answers_are_seen_before_it_joins(self, annotator, editor, client_for):
        experiment = begun(annotator)
        add_member(experiment, editor, "editor")
        url = reverse("add_policy", args=[experiment.pk])
        client = client_for(editor)
        form = {"level-name": "Warm", "level-text": "quality 5"}
        reply = client.post(url, form | {"action": "try"})
        assert reply.status_code == 200
        # What was written stays in the form.
        assert field_of(reply, "level-text") == "quality 5"
        assert reply.context["trial"]["n_pending"] == 6
        write_responses()
        polled = client.get(url, headers={"HX-Request": "true"})
        assert polled.context["trial"]["n_done"] == 6
        assert experiment.policies.count() == 3
        assert client.post(url, form).status_code == 302
        assert experiment.policies.count() == 4

    @pytest.mark.parametrize("as_file", [True, False])
    def test_ready_made_responses_join(self, editor, client_for, as_file):
        experiment = create_experiment(spec=imported_spec(), by=editor)
        start(experiment_id=experiment.pk)
        url = reverse("add_policy", args=[experiment.pk])
        table = "task,policy,response\nOne?,New,eins\nTwo?,New,zwei\nThree?,New,drei\n"
        given = {"file": SimpleUploadedFile("new.csv", table.encode())} if as_file else {"table": table}
        client = client_for(editor)
        assert not client.get(url).context["form"].errors
        assert client.post(url, {}).status_code == 400
        assert client.post(url, given).status_code == 302
        texts = experiment.policies.last().responses.order_by("task").values_list("text", flat=True)
        assert list(texts) == ["eins", "zwei", "drei"]

    def test_the_table_of_tasks_is_filled_in_and_comes_back(self, editor, client_for):
        odd = "=SUM(1;2)?"
        experiment = create_experiment(spec=imported_spec(f"{ANSWERS}{odd},A,3,3\n{odd},B,3,3\n"), by=editor)
        start(experiment_id=experiment.pk)
        client = client_for(editor)
        url = reverse("add_policy", args=[experiment.pk])
        table = client.get(reverse("tasks_file", args=[experiment.pk])).text
        assert reverse("tasks_file", args=[experiment.pk]) in client.get(url).text
        heading, *rows = table.splitlines()
        filled = [heading, *(row.removesuffix(",,") + ",New,mine" for row in rows)]
        assert client.post(url, {"table": "\n".join(filled)}).status_code == 302
        assert experiment.policies.last().responses.count() == experiment.tasks.count() == len(rows)

    def test_who_answers_some_of_the_tasks_joins_after_a_word_alone(self, editor, client_for):
        experiment = create_experiment(spec=imported_spec(f"{ANSWERS}Three?,A,3,3\n"), by=editor)
        start(experiment_id=experiment.pk)
        assert tasks_left_out(experiment) == []
        url, client = reverse("add_policy", args=[experiment.pk]), client_for(editor)
        form = {"table": "task,policy,response\nOne?,New,eins\n"}
        reply = client.post(url, form)
        assert reply.status_code == 400
        tasks = experiment.tasks.count()
        assert f"New has responses to 1 of {tasks} tasks" in text_of(reply.content.decode())
        assert client.post(url, form | {"some": "on"}).status_code == 302
        [said] = tasks_left_out(experiment)
        assert said.startswith(f"New has responses to 1 of {tasks} tasks")
        assert said in of_pool(experiment)

    def test_a_name_that_is_taken_is_said_and_nothing_is_lost(self, annotator, editor, client_for):
        experiment = begun(annotator)
        add_member(experiment, editor, "editor")
        url = reverse("add_policy", args=[experiment.pk])
        reply = client_for(editor).post(url, {"level-name": "Prompt 0", "level-text": "mine"})
        assert reply.status_code == 400
        assert field_of(reply, "level-text") == "mine"
        assert experiment.policies.count() == 3

    def test_a_challenge_runs_the_experiment_again(self, annotator, editor, client_for):
        experiment = judged(begun(annotator), annotator)
        add_member(experiment, editor, "editor")
        url = reverse("add_policy", args=[experiment.pk])
        form = {"level-name": "Warm", "level-text": "quality 5", "losers_leave": "on"}
        # It says before how many comparisons that takes, and how many if everybody stays.
        page = client_for(editor).get(url).content.decode().split('id="join-comparisons"')[1]
        ends = [re.search(r"([\d,]+) – (?:over )?([\d,]+)", part) for part in page.split('id="join-others"')]
        two, every = ([int(end.replace(",", "")) for end in each.groups()] for each in ends)
        assert 5 < two[0] < two[1] <= every[1]
        assert two[0] < every[0]
        assert client_for(editor).post(url, form).status_code == 302
        experiment.refresh_from_db()
        assert experiment.state == Experiment.State.RUNNING
        assert experiment.policies.filter(retired_at=None).count() == 2

    def test_a_slip_is_mended_in_one_step(self, annotator, editor, client_for):
        experiment = begun(annotator)
        add_member(experiment, editor, "editor")
        url = reverse("add_policy", args=[experiment.pk]) + "?parent=2"
        client = client_for(editor)
        assert field_of(client.get(url), "level-text") == "quality 1"
        form = {"level-name": "Prompt 1, mended", "level-text": "quality 1 again", "parent_leaves": "on"}
        assert client.post(url, form).status_code == 302
        present = experiment.policies.filter(retired_at=None)
        assert list(present.values_list("index", "parent__index")) == [(0, None), (2, None), (3, 1)]
        assert experiment.policies.get(index=1).retired_because == "Replaced by Prompt 1, mended."

    @pytest.mark.parametrize("parent", ["9", "x"])
    def test_a_policy_that_is_not_there_cannot_be_changed(self, annotator, editor, client_for, parent):
        experiment = begun(annotator)
        add_member(experiment, editor, "editor")
        url = reverse("add_policy", args=[experiment.pk]) + f"?parent={parent}"
        assert client_for(editor).get(url).status_code == 302

    def test_one_retires_with_a_reason(self, annotator, editor, client_for):
        experiment = begun(annotator)
        add_member(experiment, editor, "editor")
        url = reverse("retire_policy", args=[experiment.pk, 2])
        client = client_for(editor)
        assert client.post(url, {"reason": " "}).status_code == 400
        assert client.post(url, {"reason": "Rude."}).status_code == 302
        retired = experiment.policies.get(index=1)
        assert (retired.retired_because, retired.retired_at is None) == ("Rude.", False)


class TestTasks:
    def test_tasks_join_and_leave(
        self, annotator, editor, client_for, sent, django_capture_on_commit_callbacks
    ):
        experiment = begun(annotator, n_tasks=2)
        add_member(experiment, editor, "editor")
        client = client_for(editor)
        url = reverse("add_tasks", args=[experiment.pk])
        assert url in client.get(reverse("setup", args=[experiment.pk])).content.decode()
        assert client.post(url, {"tasks": ""}).status_code == 400
        with django_capture_on_commit_callbacks(execute=True):
            assert client.post(url, {"tasks": "One\nTwo", "anew": ""}).status_code == 302
        assert sent == [(experiment.pk,)]
        assert list(experiment.tasks.values_list("prompt", flat=True)[2:]) == ["One", "Two"]
        url = reverse("leave_out_task", args=[experiment.pk, 4])
        assert client.post(url, {"reason": " "}).status_code == 400
        assert client.post(url, {"reason": "Twice.", "anew": "1"}).status_code == 302
        assert Task.objects.get(prompt="Two").left_because == "Twice."
        page = client.get(reverse("dashboard", args=[experiment.pk])).content.decode()
        assert "1 task was left out" in page
        assert "Twice." in client.get(reverse("setup", args=[experiment.pk])).content.decode()

    def test_traces_of_another_tool_are_tasks(self, annotator, editor, client_for):
        experiment = begun(annotator, n_tasks=2)
        add_member(experiment, editor, "editor")
        spans = (Path(__file__).parents[1] / "fixtures/otel/events.jsonl").read_bytes()
        sent = {"file": SimpleUploadedFile("spans.jsonl", spans), "anew": ""}
        answer = client_for(editor).post(reverse("add_tasks", args=[experiment.pk]), sent)
        assert (answer.status_code, experiment.tasks.count()) == (302, 6)

    def test_tasks_of_a_source_are_shown_before_they_join(self, annotator, editor, client_for, monkeypatch):
        def fetch(_, wanted):
            file = source_of([("a.csv", io.BytesIO(b"task\nFrom afar"))], FILE_BYTES)
            return Fetched(file, f"1 row of {wanted.name}.", wanted.name)

        monkeypatch.setattr(Hub, "fetch", fetch)
        experiment = begun(annotator, n_tasks=2)
        add_member(experiment, editor, "editor")
        client, url = client_for(editor), reverse("add_tasks", args=[experiment.pk])
        sent = {"change": "tasks-source", "source_kind": "hub", "source_name": "a/b", "source_token": "hf_s"}
        page = client.post(url, sent)
        assert "From afar" in field_of(page, "tasks")
        assert "1 row of a/b." in page.content.decode()
        assert "hf_s" not in page.content.decode()
        assert experiment.tasks.count() == 2
        page = client.post(url, sent | {"source_kind": "none", "tasks": "Typed"})
        assert field_of(page, "tasks") == "Typed"


def field_of(reply, name):
    """The text that a field of a page holds."""
    found = re.search(rf'name="{name}"[^>]*>\s*([^<]*)</textarea>', reply.content.decode())
    return found and found[1].strip()
