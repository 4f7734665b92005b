"""Responses, votes, downloads, members and invitations by program: as on the pages."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from engine.models import Experiment, Invitation, User
from engine.services.experiments import stop
from engine.services.invitations import accept_invitation, find_invitation
from labeling.exports import files
from tests.accounts import bearer
from tests.factories import click, make_user
from tests.tables import imported

pytestmark = pytest.mark.django_db

Send = Callable[..., HttpResponse]

RESPONSES = b"task,policy,response\nHi,A,Hello\nHi,B,Good day\nHi,B,Good day\n"
VOTES = b"task,policy_a,policy_b,winner,response_a,response_b,annotator\nHi,A,B,a,Hello,Good day,zoe\n"


@pytest.fixture
def send(admin: User) -> Send:
    """Sends a form with a file, as an administrator."""

    def post(path: str, content: bytes, **fields: str | list[str]) -> HttpResponse:
        form = fields | {"file": SimpleUploadedFile("table.csv", content)}
        return Client().post(f"/api{path}", form, headers=bearer(admin))

    return post


@pytest.fixture
def admin_call(admin: User, caller_for: Any) -> Any:
    return caller_for(admin)


class TestMaterial:
    def test_responses_become_a_draft_and_are_listed(self, send, admin, admin_call):
        assert send("/experiments/from-responses", RESPONSES).status_code == 422, "a name is missing"
        made = upload(send, "/experiments/from-responses", RESPONSES)
        assert made.status_code == 201, made.content
        told = made.json()
        assert (told["rows"], told["experiment"]["state"]) == (3, "draft")
        assert told["warnings"] == ["1 response equal to an earlier one. Each counts."]
        experiment = Experiment.objects.get(pk=told["experiment"]["id"])
        assert (experiment.maker, experiment.responses) == (admin, "imported")
        path = f"/experiments/{experiment.pk}/responses"
        listed = admin_call("get", path).json()
        texts = [(each["policy"], each["task"], each["text"]) for each in listed["items"]]
        assert texts == [("P1", 1, "Hello"), ("P2", 1, "Good day"), ("P2", 1, "Good day")]
        [first, *_] = listed["items"]
        assert (first["thinking"], first["finish_reason"], first["cost"]) == ("", "", {})
        page = admin_call("get", f"{path}?limit=1&offset=1").json()
        assert (page["count"], [each["text"] for each in page["items"]]) == (3, ["Good day"])

    def test_a_wide_table_says_of_each_policys_column_that_it_is_one(self, send, admin_call):
        wide = b"task,GPT 4,Claude\nHi,Hello,\nBye,Bye,Ah\n"
        refused = upload(send, "/experiments/from-responses", wide)
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith("No column is the policy.")
        columns = ["GPT 4=response", "Claude=response"]
        made = upload(send, "/experiments/from-responses", wide, columns=columns)
        assert made.status_code == 201, made.content
        path = f"/experiments/{made.json()['experiment']['id']}"
        named = [each["levels"] for each in admin_call("get", path).json()["policies"]]
        assert named == [["GPT 4"], ["Claude"]]
        listed = admin_call("get", f"{path}/responses").json()["items"]
        assert [(each["policy"], each["task"], each["text"]) for each in listed] == [
            ("P1", 1, "Hello"), ("P2", 1, ""), ("P1", 2, "Bye"), ("P2", 2, "Ah"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("path", "data"),
        [
            ("/experiments/from-votes", VOTES),
            ("/experiments/from-responses", b"task,policy,response\nHi,A,Hello\nHi,B,Oh\n"),
        ],
    )
    def test_a_request_that_is_sent_again_for_lack_of_an_answer_makes_one_experiment(self, path, data, send):
        assert upload(send, path, data).status_code == 201
        again = upload(send, path, data)
        assert again.status_code == 422
        assert "You have an experiment of this name" in again.json()["detail"]
        assert Experiment.objects.count() == 1

    def test_votes_make_an_experiment_and_are_added_to_one(self, send, admin, admin_call):
        made = upload(send, "/experiments/from-votes", VOTES)
        assert made.status_code == 201, made.content
        experiment = made.json()["experiment"]
        assert (made.json()["rows"], experiment["state"]) == (1, "paused")
        path = f"/experiments/{experiment['id']}/votes"
        renamed = VOTES.replace(b"winner", b"won", 1)
        assert upload(send, path, renamed).status_code == 422
        assert upload(send, path, renamed, columns="won=winner").status_code == 409
        assert upload(send, path, renamed, columns="won=winner", again="true").json()["rows"] == 1
        grown = b"task,policy_a,policy_b,winner,response_a,response_b,judged_at\n" + b"".join(
            b"Hi,A,B,a,Hello,Good day,2026-03-01T10:00:%02d\n" % second for second in range(3)
        )
        assert upload(send, path, grown[:-1].rpartition(b"\n")[0]).json()["rows"] == 2
        refused = upload(send, path, grown)
        assert (refused.status_code, "2 of the 3 votes count in this" in refused.json()["detail"]) == (
            409,
            True,
        )
        assert upload(send, path, grown, only_new="true").json()["rows"] == 1
        status = admin_call("get", f"/experiments/{experiment['id']}").json()
        assert status["comparisons"] == 5
        assert "5 past votes count." in status["caveats"][0]
        admin_call("post", f"/experiments/{experiment['id']}/actions/start")
        running = upload(send, path, VOTES)
        assert running.status_code == 409
        assert "Pause it first." in running.json()["detail"]

    @pytest.mark.parametrize("where", ["page", "api"])
    def test_a_faulty_file_is_refused_in_the_same_words(self, where, send, admin):
        """One reader, one service."""
        faulty = VOTES.replace(b",a,", b",nobody,")
        if where == "api":
            refused = upload(send, "/experiments/from-votes", faulty)
            said, status = refused.json()["detail"], 422
        else:
            client = Client()
            client.force_login(admin)
            form = {"name": "x", "votes": SimpleUploadedFile("table.csv", faulty)}
            refused = imported(client, "/experiments/new/votes/", form)
            said, status = refused.content.decode(), 200
        assert refused.status_code == status
        assert "line 2" in said
        assert "nobody" in said
        assert not Experiment.objects.exists()


def upload(send: Send, path: str, content: bytes, **fields: str | list[str]) -> HttpResponse:
    return send(path, content, **fields, **({} if path.endswith("/votes") else {"name": "By program"}))


@pytest.mark.parametrize("kind", files.FORMATS)
def test_each_download_is_that_of_the_page(kind, experiment, annotator, admin, caller_for):
    click(experiment, annotator)
    path = f"/experiments/{experiment.pk}/{files.FORMATS[kind].suffix}"
    client = Client()
    client.force_login(admin)
    if kind == files.EVENTS:
        # It names the policies of pairs that somebody may still judge.
        stop(experiment_id=experiment.pk)
    replies = [caller_for(admin)("get", path), client.post(path)]
    assert [reply.status_code for reply in replies] == [200, 200]
    api, page = (reply.getvalue() for reply in replies)
    assert len(api) > 10
    if kind == files.HUGGING_FACE:
        # The time of packing is in the archive.
        packed = [zipfile.ZipFile(io.BytesIO(data)) for data in (api, page)]
        api, page = ({name: each.read(name) for name in each.namelist()} for each in packed)
    assert api == page


class TestPeople:
    @pytest.fixture
    def path(self, experiment: Experiment) -> str:
        return f"/experiments/{experiment.pk}"

    def test_members_change_and_go(self, people, path, caller_for):
        call = caller_for(people["owner"])
        listed = {each["username"]: each for each in call("get", f"{path}/members").json()}
        assert listed["ann"]["role"] == "annotator"
        assert listed["ann"]["origin"] == "administrator"
        ann, owner = (f"{path}/members/{listed[name]['id']}" for name in ("ann", "owner"))
        assert call("patch", ann, {"role": "viewer"}).json()["role"] == "viewer"
        assert call("delete", ann).status_code == 204
        assert "ann" not in {each["username"] for each in call("get", f"{path}/members").json()}
        for method, body in (("delete", None), ("patch", {"role": "viewer"})):
            refused = call(method, owner, body)
            assert (refused.status_code, "asks for your password" in refused.json()["detail"]) == (403, True)
        viewer = f"{path}/members/{listed['viewer']['id']}"
        assert call("patch", viewer, {"role": "owner"}).status_code == 403, "a token makes no owner"

    def test_administrators_add_accounts_by_name(self, people, path, caller_for):
        call, body = caller_for(people["admin"]), {"username": "stranger", "role": "annotator"}
        assert call("post", f"{path}/members", body).status_code == 201
        again = call("post", f"{path}/members", body)
        assert (again.status_code, again.json()["detail"]) == (409, "stranger is annotator already.")
        assert call("post", f"{path}/members", body | {"role": "owner"}).status_code == 403
        User.objects.filter(username="stranger").update(is_active=False)
        assert call("post", f"{path}/members", body | {"role": "viewer"}).status_code == 422

    def test_an_invitation_lets_somebody_in_until_it_is_ended(self, people, experiment, path, caller_for):
        call = caller_for(people["editor"])
        made = call("post", f"{path}/invitations", {"role": "viewer", "most_uses": 2}).json()
        secret = made["link"].rstrip("/").rsplit("/", 1)[1]
        accept_invitation(invitation_id=find_invitation(secret=secret).pk, user=make_user("new"))
        [listed] = call("get", f"{path}/invitations").json()
        assert (listed["uses"], listed["hint"], "link" in listed) == (1, secret[:6], False)
        assert call("delete", f"{path}/invitations/{made['id']}").status_code == 204
        assert call("get", f"{path}/invitations").json() == []
        assert call("post", f"{path}/invitations", {"role": "owner"}).status_code == 403
        refused = call("post", f"{path}/invitations", {"role": "viewer", "most_uses": 900})
        assert (refused.status_code, "at most 50" in refused.json()["detail"]) == (409, True)
        assert Invitation.objects.count() == 1
