"""The effects of each operation, besides its access rights."""

import re
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engine import tasks
from engine.core.contradictions import Misfit
from engine.core.ledger import Ledger
from engine.models import Experiment, Flag, Judgment, Notification, WorkerPulse
from engine.selectors import findings, specs
from engine.selectors.counts import comparison_count, pair_counts
from engine.selectors.snapshots import latest_snapshot
from engine.services.experiments import stop
from engine.services.planning import advance
from tests.accounts import let_create
from tests.factories import click, click_for, make_experiment, make_user, subscribed, write_responses

pytestmark = pytest.mark.django_db

SPEC = {
    "name": "By program",
    "factors": [
        {"name": "Prompt", "kind": "prompt",
         "levels": {"A": {"text": "Be short."}, "B": {"text": "Be kind."}}},
        {"name": "Heat", "kind": "sampling",
         "levels": {"cold": {"temperature": 0}, "hot": {"temperature": 1}}},
    ],
    "tasks": [{"prompt": "1 + 1?", "reference": "2"}],
    "settings": {"delta": 0.1, "budget": 500, "allow_tie": True, "practice": 1,
                 "excluded": [{"Prompt": "A", "Heat": "hot"}]},
    "gold": [{"prompt": "2 + 2?", "better": "4", "worse": "5"}],
}  # fmt: skip


@pytest.fixture
def admin_call(admin, caller_for):
    return caller_for(admin)


@pytest.fixture
def call(annotator, caller_for):
    return caller_for(annotator)


class TestCreate:
    def test_a_description_becomes_a_draft_that_its_maker_owns(self, caller_for):
        maker = make_user()
        let_create(maker)
        response = caller_for(maker)("post", "/experiments", SPEC)
        assert response.status_code == 201, response.content
        experiment = Experiment.objects.get(pk=response.json()["id"])
        assert (experiment.name, experiment.state, experiment.delta) == ("By program", "draft", 0.1)
        assert experiment.policies.count() == 3
        assert experiment.memberships.get().user == maker
        assert experiment.audit_entries.get().by == maker
        spec = specs.experiment_spec(experiment)
        assert [factor.levels for factor in spec.factors] == [each["levels"] for each in SPEC["factors"]]
        assert spec.gold[0].better == "4"

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"name": ""}, "name"),
            ({"factors": []}, "at least one factor"),
            ({"settings": {"delta": 7}}, "delta"),
            ({"settings": {"no_such": 1}}, "no_such"),
            ({"colour": "red"}, "colour"),
            ({"factors": [SPEC["factors"][0] | {"levels": {"A": {"wrong": 1}, "B": {}}}]}, "Prompt"),
            ({"settings": {"judge": "rule"}, "tasks": [{"prompt": "?"}]}, "reference"),
        ],
    )
    def test_what_is_wrong_with_it_is_said(self, change, words, admin_call):
        response = admin_call("post", "/experiments", SPEC | change)
        assert response.status_code == 422
        assert words in response.json()["detail"]
        assert not Experiment.objects.exists()

    @pytest.mark.parametrize(
        "body", ["", "{", "[]", '{"name": NaN}', '{"name": "\\ud800"}', '{"name": "\\u0000"}', b"\xff"]
    )
    def test_what_is_no_proper_json_is_a_bad_request(self, body, admin_call):
        assert admin_call("post", "/experiments", body).status_code in {400, 422}


class TestWatch:
    def test_only_what_one_may_watch_is_listed(self, experiment, people, caller_for):
        make_experiment()
        listed = caller_for(people["viewer"])("get", "/experiments").json()
        assert (listed["count"], [each["id"] for each in listed["items"]]) == (1, [experiment.pk])
        assert caller_for(people["admin"])("get", "/experiments").json()["count"] == 2

    def test_a_longer_list_takes_no_more_queries(self, annotator, admin_call):
        """Three experiments took 32 queries."""
        for queue in ("control", "generation"):
            WorkerPulse.objects.create(queue=queue, worker="w", details={"backend": "vllm", "model": "m"})

        def judged(end: bool, **spec: Any) -> None:
            experiment = make_experiment(ready=True, annotators=(annotator,), **spec)
            click(experiment, annotator)
            advance(experiment_id=experiment.pk)
            if end:
                stop(experiment_id=experiment.pk)

        def listed() -> tuple[int, list[str]]:
            with CaptureQueriesContext(connection) as captured:
                items = admin_call("get", "/experiments").json()["items"]
            return len(captured), [each["sentence"] for each in items]

        judged(end=False)
        of_one, _ = listed()
        for number in range(4):
            judged(end=False, backend="remote" if number % 2 else "")
        of_five, sentences = listed()
        assert of_five == of_one <= 17
        assert sentences[0].startswith("No worker serves the remote backend.")
        assert all("Leading: " in each and "All 2 rivals are open." in each for each in sentences)
        for _ in range(2):
            judged(end=True)
        # So that responses wait here too, as they did for the other lists.
        first = Experiment.objects.earliest("pk")
        click(first, annotator)
        advance(experiment_id=first.pk)
        of_seven, sentences = listed()
        assert of_seven == of_one + 1, "the concluded ones are asked for late clicks, all at once"
        assert sentences[0].startswith("Not decided. Stopped by hand after 1 comparison.")

    def test_the_sentence_and_the_claims_are_of_one_look(self, annotator, admin_call):
        """Right after a click that changed the lead, they named different leaders."""
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,))
        click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()

        def leaders() -> set[str]:
            told = admin_call("get", f"/experiments/{experiment.pk}").json()
            [claim] = [each for each in told["claims"] if each["stops"]]
            names = {each["label"]: " · ".join(each["levels"]) for each in told["policies"]}
            [said] = [label for label, name in names.items() if f"Leading: {name}." in told["sentence"]]
            return {told["best"], said, claim["policy"]}

        [before] = leaders()
        for _ in range(2):
            click_for(experiment, annotator, lambda i, j: i > j)
        assert leaders() == {before}
        advance(experiment_id=experiment.pk)
        [after] = leaders()
        assert after != before

    def test_pages_and_archive(self, admin_call):
        drafts = [make_experiment(running=False) for _ in range(3)]
        page = admin_call("get", "/experiments?limit=2&offset=2").json()
        assert (page["count"], [each["id"] for each in page["items"]]) == (3, [drafts[0].pk])
        admin_call("post", f"/experiments/{drafts[0].pk}/actions/archive")
        assert admin_call("get", "/experiments").json()["count"] == 2
        [archived] = admin_call("get", "/experiments?archived=true").json()["items"]
        assert (archived["id"], archived["archived"]) == (drafts[0].pk, True)

    def test_tags_are_set_told_and_asked_for(self, experiment, admin_call):
        make_experiment(running=False, tags="other")
        changed = admin_call("patch", f"/experiments/{experiment.pk}", {"tags": "Support, german"})
        assert changed.json()["tags"] == ["german", "support"]
        for no_tag in ("%2C", "a%00b"):
            assert admin_call("get", f"/experiments?tag={no_tag}").json()["items"] == []
        [found] = admin_call("get", "/experiments?tag=Support").json()["items"]
        assert found["id"] == experiment.pk

    def test_a_draft_takes_all_that_the_page_takes(self, admin_call):
        bare = {"name": "Bare", "factors": SPEC["factors"]}
        made = admin_call("post", "/experiments", bare)
        assert made.status_code == 201, made.content
        path = f"/experiments/{made.json()['id']}"
        parts = {
            "name": "Full",
            "guidelines": "Be fair.",
            **{k: SPEC[k] for k in ("tasks", "gold", "settings")},
        }
        assert admin_call("patch", path, parts).status_code == 200
        draft = Experiment.objects.get(pk=made.json()["id"])
        spec = specs.experiment_spec(draft)
        assert (spec.name, draft.guidelines, draft.practice, len(spec.gold)) == ("Full", "Be fair.", 1, 1)
        assert [task.prompt for task in spec.tasks] == ["1 + 1?"]
        levels = {"A": {"text": "One."}, "B": {"text": "Two."}, "C": {"text": "Three."}}
        factors = [{"name": "Prompt", "kind": "prompt", "levels": levels}]
        wrong = admin_call("patch", path, {"factors": factors})
        assert wrong.status_code == 422, "a combination names a factor that is gone"
        changed = {"factors": factors, "settings": {"excluded": []}, "budget": 700}
        assert admin_call("patch", path, changed).status_code == 200
        draft.refresh_from_db()
        assert (draft.policies.count(), draft.budget, draft.tasks.count()) == (3, 700, 1)
        assert admin_call("patch", path, {"tasks": [{"prompt": " "}]}).status_code == 422

    def test_a_started_one_keeps_its_parts_and_takes_another_name(self, experiment, admin_call):
        path = f"/experiments/{experiment.pk}"
        for part in ({"factors": SPEC["factors"]}, {"tasks": SPEC["tasks"]}, {"settings": {"overlap": 2}}):
            assert admin_call("patch", path, {"name": "New"} | part).status_code == 409
        assert Experiment.objects.get().name == experiment.name
        assert admin_call("patch", path, {"name": "New", "guidelines": "Clear."}).json()["name"] == "New"
        assert admin_call("patch", path, {"name": ""}).status_code == 422

    def test_the_figures_are_those_of_the_selectors(self, experiment, annotator, admin_call):
        click(experiment, annotator)
        advance(experiment_id=experiment.pk)
        status = admin_call("get", f"/experiments/{experiment.pk}").json()
        assert status["comparisons"] == 1
        counts = {(pair["i"], pair["j"]): (pair["wins_i"], pair["comparisons"]) for pair in status["pairs"]}
        labels = [policy.label for policy in experiment.policies.all()]
        assert counts == {(labels[i], labels[j]): count for (i, j), count in pair_counts(experiment).items()}
        assert [policy["evidence"] for policy in status["policies"]] == latest_snapshot(experiment).evidence
        assert status["queue"]["judged"] == 1

    def test_a_claim_that_rests_on_the_levels_adding_up_says_so_wherever_it_is_said(
        self, annotator, admin, admin_call, monkeypatch
    ):
        tested = Misfit(deviance=1.0, freedom=3, p_value=0.4, power=0.4, level=0.01)
        monkeypatch.setattr(findings, "misfit", lambda *_: tested)
        monkeypatch.setattr(Ledger, "holds_without_model", lambda *_: False)
        experiment = make_experiment(
            n_policies=2, ready=True, annotators=(annotator,), space="factorial", delta=0.4
        )
        subscribed(experiment)
        while not experiment.conclusion:
            click_for(experiment, annotator, lambda i, j: i < j)
            advance(experiment_id=experiment.pk)
            write_responses()
            experiment.refresh_from_db()
        status = admin_call("get", f"/experiments/{experiment.pk}").json()
        [claim] = [each for each in status["claims"] if each["stops"]]
        assert claim["holds"]
        assert claim["qualified"]
        client = Client()
        client.force_login(admin)
        page = unescape(client.get(f"/experiments/{experiment.pk}/").content.decode())
        message = Notification.objects.get(event="concluded").text
        for text in (claim["text"], status["finding"], page, message):
            assert "too few comparisons to test the" in text
            assert "if strengths add up as the model says" in text
        assert ", if the assumption is true" in page


class TestSteer:
    def test_pause_start_stop_reopen(self, experiment, admin, admin_call):
        path = f"/experiments/{experiment.pk}"
        for action, state in (("pause", "paused"), ("start", "running"), ("stop", "concluded")):
            assert admin_call("post", f"{path}/actions/{action}").json()["state"] == state
        assert admin_call("post", f"{path}/reopen", {"budget": 3000}).json()["state"] == "running"
        entries = admin_call("get", f"{path}/log").json()
        assert [entry["action"] for entry in entries[:5]] == ["budget", "reopen", "stop", "resume", "pause"]
        assert {entry["by"] for entry in entries[:5]} == {"admin"}

    def test_the_limit_of_money_changes_and_goes(self, experiment, admin_call):
        path = f"/experiments/{experiment.pk}"
        for given, stored in ((4, 4.0), (None, None)):
            assert admin_call("patch", path, {"money_limit": given}).status_code == 200
            experiment.refresh_from_db()
            assert experiment.money_limit == stored
        assert admin_call("patch", path, {"money_limit": -1}).status_code == 422

    @pytest.mark.parametrize("body", [{"delta": 0.9}, {"budget": 0}, {"epsilon": -1}, {"question": "x"}])
    def test_what_cannot_be_changed_is_refused(self, body, experiment, admin_call):
        assert admin_call("patch", f"/experiments/{experiment.pk}", body).status_code == 422

    def test_changes_wake_the_planner(
        self, experiment, admin_call, monkeypatch, django_capture_on_commit_callbacks
    ):
        woken: list[tuple[int, ...]] = []
        monkeypatch.setattr(
            tasks.advance, "apply_async", lambda args=(), **options: woken.append(tuple(args))
        )
        with django_capture_on_commit_callbacks(execute=True):
            admin_call("post", f"/experiments/{experiment.pk}/actions/pause")
        assert woken == [(experiment.pk,)]


class TestAnnotate:
    def test_a_pair_is_assigned_judged_and_undone(self, experiment, call):
        path = f"/label/{experiment.pk}"
        shown = call("post", f"{path}/next", {}).json()
        assert shown["choices"] == ["left", "right"]
        texts = {"left", "right", "left_thinking", "right_thinking"}
        assert set(shown["pair"]) == {"token", "prompt", "messages", "practice"} | texts
        answer = {"token": shown["pair"]["token"], "choice": "left"}
        assert call("post", f"{path}/judgments", answer).json() == {"created": True, "feedback": ""}
        assert call("post", f"{path}/judgments", answer).json() == {"created": False, "feedback": ""}
        assert Judgment.objects.count() == 1
        again = call("post", f"{path}/undo").json()
        assert again["pair"]["left"] == shown["pair"]["left"]
        assert comparison_count(experiment.pk) == 0

    def test_an_undo_with_a_token_takes_back_one_answer_however_often_it_is_sent(self, experiment, call):
        """A client whose connection was cut cannot know whether the first one had its effect."""
        path = f"/label/{experiment.pk}"
        tokens = []
        for _ in range(2):
            tokens.append(call("post", f"{path}/next", {}).json()["pair"]["token"])
            call("post", f"{path}/judgments", {"token": tokens[-1], "choice": "left"})
        assert call("post", f"{path}/undo?token={tokens[1]}").json()["pair"]
        for repeated in (tokens[1], uuid4()):
            again = call("post", f"{path}/undo?token={repeated}")
            assert again.status_code == 409
            assert "It may have been taken back already." in again.json()["detail"]
        assert comparison_count(experiment.pk) == 1
        # The answer before the newest one.
        assert call("post", f"{path}/undo?token={tokens[0]}").status_code == 200
        assert comparison_count(experiment.pk) == 0

    def test_a_skip_ends_the_pair_and_needs_a_reason(self, experiment, call):
        path = f"/label/{experiment.pk}"
        token = call("post", f"{path}/next", {}).json()["pair"]["token"]
        assert call("post", f"{path}/skip", {"token": token}).status_code == 422
        given = {"token": token, "reason": "cannot_tell", "comment": "Law."}
        assert call("post", f"{path}/skip", given).status_code == 204
        assert (Flag.objects.get().reason, Flag.objects.get().comment) == ("cannot_tell", "Law.")
        refused = call("post", f"{path}/judgments", {"token": token, "choice": "left"})
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            "You skipped that pair, so your answer to it was not counted.",
        )


class TestReference:
    def test_it_is_there_for_everybody_and_brings_nothing_from_elsewhere(self, db):
        page = Client().get("/api/docs")
        text = page.content.decode()
        assert page.status_code == 200
        assert "/api/experiments/{experiment_id}" in text
        assert "https://" not in text
        assert set(re.findall(r'<script src="([^"]*)/', text)) <= {"/static/django_htmx", "/static/js"}

    def test_the_description_can_be_had_by_programs(self, db):
        description = Client().get("/api/openapi.json").json()
        assert description["openapi"].startswith("3.")
        schemes = description["components"]["securitySchemes"]
        assert set(schemes) == {"ReadScope", "AnnotateScope", "ManageScope"}
        assert {scheme["scheme"] for scheme in schemes.values()} == {"bearer"}
