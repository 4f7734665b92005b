"""Responses, votes, downloads, members and invitations by program: as on the pages."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from engine.models import Experiment, Invitation, Upload, User
from engine.services.experiments import stop
from engine.services.invitations import accept_invitation, find_invitation
from labeling.exports import files
from tests.accounts import bearer
from tests.factories import click, make_user
from tests.tables import imported, run_imports

pytestmark = pytest.mark.django_db

Send = Callable[..., HttpResponse]

RESPONSES = b"task,policy,response\nHi,A,Hello\nHi,B,Good day\nHi,B,Good day\n"
VOTES = b"task,policy_a,policy_b,winner,response_a,response_b,annotator\nHi,A,B,a,Hello,Good day,zoe\n"


@pytest.fixture
def send(admin: User) -> Send:
    """Sends a form with a file, as an administrator."""

    def post(content: bytes, **fields: Any) -> HttpResponse:
        form = {"material": "votes"} | fields | {"file": SimpleUploadedFile("table.csv", content)}
        return Client().post("/api/imports", form, headers=bearer(admin))

    return post


@pytest.fixture
def admin_call(admin: User, caller_for: Any) -> Any:
    return caller_for(admin)


class TestImports:
    def test_responses_become_a_draft_and_are_listed(self, send, admin, admin_call):
        assert send(RESPONSES, material="responses").status_code == 422, "a name is missing"
        told = done(send, RESPONSES, material="responses")
        assert (told["state"], told["rows"], told["experiment"]["state"]) == ("done", 3, "draft")
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
        [fault] = done(send, wide, material="responses")["faults"]
        assert fault.startswith("No column is the policy.")
        columns = ["GPT 4=response", "Claude=response"]
        made = done(send, wide, material="responses", columns=columns)
        path = f"/experiments/{made['experiment']['id']}"
        named = [each["levels"] for each in admin_call("get", path).json()["policies"]]
        assert named == [["GPT 4"], ["Claude"]]
        listed = admin_call("get", f"{path}/responses").json()["items"]
        assert [(each["policy"], each["task"], each["text"]) for each in listed] == [
            ("P1", 1, "Hello"), ("P2", 1, ""), ("P1", 2, "Bye"), ("P2", 2, "Ah"),
        ]  # fmt: skip

    @pytest.mark.parametrize(("material", "data"), [("votes", VOTES), ("responses", RESPONSES)])
    def test_a_file_that_is_sent_again_for_lack_of_an_answer_makes_one_experiment(self, material, data, send):
        assert done(send, data, material=material)["state"] == "done"
        again = done(send, data, material=material)
        assert again["state"] == "asking"
        assert "You have an experiment of this name" in again["faults"][0]
        assert Experiment.objects.count() == 1

    def test_votes_make_an_experiment_and_are_added_to_one(self, send, admin_call):
        made = done(send, VOTES)
        experiment = made["experiment"]
        assert (made["rows"], experiment["state"]) == (1, "paused")
        to: dict[str, Any] = {"experiment": experiment["id"]}
        renamed, won = VOTES.replace(b"winner", b"won", 1), {"columns": "won=winner"}
        assert done(send, renamed, **to)["state"] == "asking"
        assert "All 1 votes" in done(send, renamed, **to, **won)["faults"][0]
        assert done(send, renamed, **to, **won, counted="again")["rows"] == 1
        grown = b"task,policy_a,policy_b,winner,response_a,response_b,judged_at\n" + b"".join(
            b"Hi,A,B,a,Hello,Good day,2026-03-01T10:00:%02d\n" % second for second in range(3)
        )
        assert done(send, grown[:-1].rpartition(b"\n")[0], **to)["rows"] == 2
        assert "2 of the 3 votes count in this" in done(send, grown, **to)["faults"][0]
        assert done(send, grown, **to, counted="only_new")["rows"] == 1
        status = admin_call("get", f"/experiments/{experiment['id']}").json()
        assert status["comparisons"] == 5
        assert "5 past votes count." in status["caveats"][0]
        admin_call("post", f"/experiments/{experiment['id']}/actions/start")
        assert "Pause it first." in done(send, VOTES, **to)["faults"][0]
        assert send(RESPONSES, material="responses", **to).status_code == 422, "only votes are added"

    @pytest.mark.parametrize("where", ["page", "api"])
    def test_a_faulty_file_is_refused_in_the_same_words(self, where, send, admin):
        """One reader, one worker."""
        faulty = VOTES.replace(b",a,", b",nobody,")
        if where == "api":
            said = "".join(done(send, faulty)["faults"])
        else:
            client = Client()
            client.force_login(admin)
            form = {"name": "x", "votes": SimpleUploadedFile("table.csv", faulty)}
            said = imported(client, "/experiments/new/votes/", form).content.decode()
        assert "line 2" in said
        assert "nobody" in said
        assert not Experiment.objects.exists()

    def test_the_rows_that_cannot_be_read_are_listed_and_left_out_on_request(self, send):
        faulty = VOTES + b"Hi,A,B,nobody,x,y,zoe\n,A,B,a,x,y,zoe\n"
        asked = done(send, faulty)
        assert asked["summary"].startswith("1 of 3 rows can be read.")
        assert [each.partition(":")[0] for each in asked["faults"]] == ["line 3", "line 4"]
        made = done(send, faulty, leave_out="true")
        assert (made["rows"], made["faults"]) == (1, [])

    def test_an_import_tells_its_progress_and_is_cancelled(self, send, admin_call, caller_for):
        answer = send(VOTES, name="Mine")
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
        path = answer["Location"].removeprefix("/api")
        Upload.objects.update(state=Upload.State.READING, found={"rows": 500})
        told = admin_call("get", path).json()
        assert (told["state"], told["rows"], told["experiment"]) == ("reading", 500, None)
        assert caller_for(make_user("other", is_superuser=True))("get", path).status_code == 404
        assert admin_call("delete", path).status_code == 204
        assert admin_call("get", path).status_code == 404
        run_imports()
        assert not Experiment.objects.exists()

    def test_files_that_wait_are_not_pushed_out_by_more_of_them(self, send):
        answers = [send(VOTES, name=f"{n}").status_code for n in range(Upload.MOST_OF_ONE_USER + 1)]
        assert answers == [202] * Upload.MOST_OF_ONE_USER + [409]
        assert Upload.objects.count() == Upload.MOST_OF_ONE_USER


def done(send: Send, content: bytes, **fields: Any) -> Any:
    """What is told of an import once a worker has done it."""
    named = {} if "experiment" in fields else {"name": "By program"}
    answer: Any = send(content, **named | fields)
    assert answer.status_code == 202, answer.content
    run_imports()
    admin = User.objects.get(username="admin")
    return Client().get(answer["Location"], headers=bearer(admin)).json()


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
