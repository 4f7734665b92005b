"""llmpo_client against the server: the whole path of an experiment, retries, pages, downloads, errors."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx2
import pytest

from engine.models import Experiment, Flag, Notification, Token, User
from engine.selectors.agreement import agreement_of_people
from engine.services.planning import advance
from engine.services.tokens import make_token
from labeling.api import api
from labeling.exports.files import FORMATS
from llmpo_client import (
    ApiError,
    Client,
    ConflictError,
    InvalidError,
    NotFoundError,
    NotPermittedError,
    UnavailableError,
    UnreachableError,
    types,
)
from llmpo_site.wsgi import application
from tests.backends import ScriptedBackend, system_of
from tests.factories import make_experiment, make_user, write_responses
from tests.tables import run_imports

SPEC: dict[str, Any] = {
    "factors": [
        {"name": "Prompt", "kind": "prompt",
         "levels": {"short": {"text": "Be short."}, "kind": {"text": "Be kind."}}},
    ],
    "tasks": [{"prompt": f"What is {n} + 1?", "tags": ["sums"]} for n in range(5)],
    "settings": {"claim": "good_enough", "epsilon": 0.3, "delta": 0.2},
}  # fmt: skip


@pytest.fixture
def client(admin: User, connection_stays_open: None) -> Iterator[Client]:
    """Straight to the application, with every scope."""
    _, secret = make_token(user=admin, name="t", valid_days=1, scopes=Token.Scope.values)
    transport = httpx2.WSGITransport(application)
    # A worker imports a file while the client waits for it.
    with Client("http://testserver", secret, transport=transport, sleep=lambda _: run_imports()) as made:
        yield made


def work(experiment_id: int) -> None:
    """Do the work of the workers."""
    advance(experiment_id=experiment_id)
    write_responses(ScriptedBackend(lambda request: f"{system_of(request)} Seed {request.seed}."))


@pytest.mark.django_db
def test_from_creation_to_the_decision_and_out(client, admin, tmp_path):
    made = client.create_experiment("By client", **SPEC)
    assert client.act(made["id"], "start")["state"] == "running"
    clicks = 0
    while clicks < 100:
        work(made["id"])
        if (status := client.status(made["id"]))["conclusion"]:
            break
        pair = client.next_pair(made["id"])["pair"]
        # The model of the tests says who it is; a person would read.
        best = "left" if "Be kind." in pair["left"] else "right"
        assert client.judge(made["id"], pair["token"], best)["created"]
        clicks += 1
    assert (status["conclusion"], status["comparisons"], status["winner"]) == ("certified", clicks, "P2")
    first, second = client.ranking(made["id"])
    assert (first["label"], first["name"], first["standing"]) == ("P2", "kind", "winner")
    assert (second["standing"], second["comparisons"]) == ("perhaps as good", clicks)
    assert first["log_odds"] == pytest.approx(-second["log_odds"])
    assert 0 <= first["leader"]["low"] < first["leader"]["estimate"] < first["leader"]["high"] <= 1
    by_task = client.results_by_task(made["id"])
    assert sum(each["comparisons"] for each in by_task) == clicks
    assert {each["policies"][1]["share"] for each in by_task} == {1.0}
    [of_tag] = client.results_by_tag(made["id"])
    assert (of_tag["tag"], of_tag["tasks"], of_tag["comparisons"]) == ("sums", len(by_task), clicks)
    assert of_tag["policies"][0] == {"policy": "P1", "wins": 0.0, "comparisons": clicks, "share": 0.0}
    assert client.results_by_task(made["id"], tag="sums") == by_task
    # An empty list would pass for "nothing was judged".
    with pytest.raises(NotFoundError, match="This experiment has sums"):
        client.results_by_task(made["id"], tag="else")
    path = client.download(made["id"], "judgments.jsonl", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == clicks
    assert all(row["via"] == "api" and row["annotator_could_see_policies"] for row in rows)
    [newest] = client.log(made["id"], limit=1)
    assert (newest["by"], newest["action"]) == ("admin", "export")
    assert client.act(made["id"], "archive")["archived"]
    assert [each["id"] for each in client.experiments(archived=True)] == [made["id"]]


@pytest.mark.django_db
def test_material_people_and_pairs(client, tmp_path):
    table = tmp_path / "answers.csv"
    table.write_text("question,system,text\nHi,A,Hello\nHi,B,Good day\nBye,A,See you\nBye,B,Farewell\n")
    columns = {"question": "task", "system": "policy", "text": "response"}
    made = client.create_from_responses("Ready", table, columns=columns)["experiment"]
    texts = [each["text"] for each in client.responses(made["id"], page_size=3)]
    assert texts == ["Hello", "Good day", "See you", "Farewell"]
    votes = tmp_path / "votes.csv"
    votes.write_text("task,policy_a,policy_b,winner,response_a,response_b\nHi,A,B,a,Hello,Good day\n")
    assert client.add_votes(made["id"], votes)["rows"] == 1
    past = client.create_from_votes("Votes", votes)["experiment"]
    assert past["state"] == "paused"
    assert client.add_votes(past["id"], votes, counted="again")["rows"] == 1
    with votes.open("a") as file:
        file.write("Hi,B,A,b,Good day,Hello\nHi,A,B,b,Hello,Good day\n")
    added = client.add_votes(past["id"], votes, counted="only_new")
    assert (added["rows"], added["warnings"][-1]) == (1, "2 votes left out that counted already.")
    with pytest.raises(InvalidError, match="All 3 votes count"):
        client.add_votes(past["id"], votes, counted="only_new")
    changed = client.change_settings(made["id"], budget=77, tags="tone, mail")
    assert (changed["budget"], changed["tags"]) == (77, ["mail", "tone"])
    assert client.clone(made["id"], "Copy")["state"] == "draft"
    client.act(made["id"], "start")
    work(made["id"])
    first = client.next_pair(made["id"])["pair"]
    client.skip(made["id"], first["token"], "task")
    work(made["id"])
    second = client.next_pair(made["id"])["pair"]
    client.skip(made["id"], second["token"], "leak", comment="It says so.")
    assert Flag.objects.get(comment="It says so.").reason == "leak"
    make_user("zoe")
    member = client.add_member(made["id"], "zoe", "viewer")
    assert client.change_role(made["id"], member["id"], "editor")["role"] == "editor"
    client.remove_member(made["id"], member["id"])
    assert {each["role"] for each in client.members(made["id"])} == {"owner", "annotator"}
    link = client.invite(made["id"], "annotator", most_uses=2)
    assert link["link"].startswith("http://testserver/join/")
    client.end_invitation(made["id"], link["id"])
    [mailed] = client.invite_by_mail(made["id"], "viewer", ["a@example.org"])
    assert mailed["email"] == "a@example.org"
    Notification.objects.update(state="sent")
    assert client.resend_invitation(made["id"], mailed["id"])["id"] == mailed["id"]
    client.end_invitation(made["id"], mailed["id"])
    assert client.invitations(made["id"]) == []
    client.act(made["id"], "stop")
    assert client.reopen(made["id"], budget=99)["state"] == "running"


@pytest.mark.django_db
def test_a_refusal_is_an_error_with_the_servers_words(client):
    experiment = make_experiment(ready=True)
    refusals: list[tuple[type[ApiError], Callable[[], object], str]] = [
        (NotFoundError, lambda: client.status(10**6), "GET /api/experiments lists yours."),
        (ConflictError, lambda: client.act(experiment.pk, "start"), "Only a draft or paused experiment"),
        (InvalidError, lambda: client.change_settings(experiment.pk, delta=7.0), "delta"),
        (NotPermittedError, lambda: client.next_pair(experiment.pk), "You may not judge here."),
        (ConflictError, lambda: client.stop_on(experiment.pk, "best"), "it does not hold"),
    ]
    for kind, call, words in refusals:
        with pytest.raises(kind, match=words) as raised:
            call()
        assert str(raised.value) == f"{raised.value.status}: {raised.value.detail}"


class TestPatience:
    """Without a server: answers that are made up."""

    def served(self, *answers: Any, **options: Any) -> tuple[Client, list[float]]:
        """A client to which these answers are given in turn, and the seconds for which it waited."""
        waited: list[float] = []
        given = iter(answers)

        def answer(request: httpx2.Request) -> httpx2.Response:
            each = next(given)
            if isinstance(each, Exception):
                raise each
            status, headers, body = each
            return httpx2.Response(status, headers=headers, json=body)

        transport = httpx2.MockTransport(answer)
        return Client("http://far", "t", transport=transport, sleep=waited.append, **options), waited

    def test_it_waits_as_long_as_it_is_told_and_sends_again(self):
        busy = {"detail": "busy"}
        client, waited = self.served(
            (503, {"Retry-After": "2"}, busy),
            (429, {"Retry-After": "40"}, busy),
            (503, {}, busy),
            (200, {}, []),
        )
        assert client.members(1) == []
        assert waited == [2.0, 40.0, 4.0]

    def test_it_gives_up_after_the_last_try_and_does_not_wait_too_long(self):
        answers = [(503, {"Retry-After": "1"}, {"detail": "busy"})] * 3
        client, waited = self.served(*answers, retries=2)
        with pytest.raises(UnavailableError, match="503: busy"):
            client.undo(1)
        assert waited == [1.0, 1.0]
        client, waited = self.served((429, {"Retry-After": "600"}, {"detail": "later"}))
        with pytest.raises(UnavailableError, match="later"):
            client.undo(1)
        assert waited == []

    def test_no_answer_is_an_error_of_its_own(self):
        client, _ = self.served(httpx2.ConnectError("refused"), retries=0)
        with pytest.raises(UnreachableError, match="refused"):
            client.undo(1)

    def test_a_server_that_starts_anew_is_waited_for(self):
        """A program that looks every minute should live through it."""
        client, waited = self.served(
            httpx2.ConnectError("refused"), httpx2.ReadError("reset"), (502, {}, ""), (200, {}, [])
        )
        assert client.members(1) == []
        assert waited == [1.0, 2.0, 4.0]

    def test_a_write_that_may_have_had_its_effect_is_not_sent_again(self):
        client, waited = self.served(httpx2.ConnectError("refused"), httpx2.ReadError("reset"))
        with pytest.raises(UnreachableError, match="reset"):
            client.undo(1)
        assert waited == [1.0]
        client, waited = self.served((504, {}, "slow"))
        with pytest.raises(ApiError, match=r"504: .*slow"):
            client.undo(1)
        assert waited == []

    def test_a_wrong_address_is_named(self):
        client, _ = self.served((301, {"Location": "https://far/api/experiments/1/members"}, ""))
        with pytest.raises(ApiError, match="301: The server is elsewhere: https://far/api/experiments"):
            client.members(1)
        portal = httpx2.MockTransport(lambda request: httpx2.Response(200, text="<html>Log in</html>"))
        with Client("http://far", "t", transport=portal) as client, pytest.raises(ApiError, match="not JSON"):
            client.members(1)
        with Client("far", "t") as client, pytest.raises(UnreachableError, match="http://"):
            client.members(1)

    @pytest.mark.parametrize(
        ("fault", "waits"),
        [
            (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), []),
            (ssl.SSLCertVerificationError("certificate verify failed"), []),
            # A name server that starts anew, and a server that does.
            (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), [1.0, 2.0]),
            (ConnectionRefusedError("refused"), [1.0, 2.0]),
        ],
        ids=["unknown host", "another host's certificate", "no name server", "no server"],
    )
    def test_a_mistyped_host_is_told_at_once(self, fault, waits, monkeypatch):
        def refuse(*args: Any, **options: Any) -> Any:
            raise fault

        monkeypatch.setattr(socket, "create_connection", refuse)
        waited: list[float] = []
        with Client("http://far", "t", retries=2, sleep=waited.append) as client:
            with pytest.raises(UnreachableError, match=fault.args[-1]):
                client.members(1)
            assert waited == waits
            with pytest.raises(UnreachableError):
                client.undo(1)
            assert waited == waits * 2

    def test_an_undo_names_the_pair_that_it_is_told(self):
        """So it may be sent again by somebody who never saw the answer."""
        asked: list[str] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            asked.append(request.url.raw_path.decode())
            return httpx2.Response(200, json={})

        with Client("http://far", "t", transport=httpx2.MockTransport(answer)) as client:
            client.undo(1)
            client.undo(1, "7c1e")
        assert asked == ["/api/label/1/undo", "/api/label/1/undo?token=7c1e"]

    @pytest.mark.parametrize("token", ["", " ", "llmpo_x\n", "tök"])
    def test_what_cannot_be_a_token_is_told_before_any_request(self, token):
        """As of a variable that is not set, and of a line of a file."""
        with pytest.raises(ValueError, match="The token is empty, or has"):
            Client("http://far", token)

    def test_a_web_page_is_called_one_and_not_shown(self):
        portal = httpx2.MockTransport(lambda request: httpx2.Response(404, text="<!DOCTYPE html>\n<title>No"))
        told = "404: The answer is a web page, not the API's"
        with Client("http://far", "t", transport=portal) as client, pytest.raises(NotFoundError, match=told):
            client.members(1)

    def test_a_list_is_read_page_by_page(self):
        pages = [{"count": 5, "items": [1, 2]}, {"count": 5, "items": [3, 4]}, {"count": 5, "items": [5]}]
        client, _ = self.served(*((200, {}, page) for page in pages))
        assert list(client.experiments(page_size=2)) == [1, 2, 3, 4, 5]

    def test_a_broken_download_leaves_no_file(self, tmp_path: Path):
        class Broken(httpx2.SyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                yield b"half"
                raise httpx2.ReadError("gone")

        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Broken()))
        with Client("http://far", "t", transport=transport) as client, pytest.raises(UnreachableError):
            client.download(1, "judgments.csv", tmp_path / "out.csv", usernames=True)
        assert list(tmp_path.iterdir()) == []


def test_agreement_and_position_bias_are_those_of_the_page(client, tmp_path):
    """25 pairs of texts: two people agree on 20, and chose the left in 29 of 35 choices of a side."""
    lines = ["task,policy_a,policy_b,winner,response_a,response_b,annotator,judged_at,side_a"]
    for n in range(25):
        first, second = ("a", "a") if n < 15 else ("tie", "tie") if n < 20 else ("a", "tie")
        for person, winner in (("ann", first), ("bob", second)):
            side = "left" if n < 14 or person == "bob" else "right"
            lines.append(f"T{n},P,Q,{winner},p{n},q{n},{person},2026-01-01T10:{n:02}:00Z,{side}")
    votes = tmp_path / "votes.csv"
    votes.write_text("\n".join(lines))
    made = client.create_from_votes("Votes", votes)["experiment"]["id"]
    quality = client.quality(made)
    found = agreement_of_people(Experiment.objects.get(pk=made))
    agreement = quality["agreement"]
    assert (agreement["alpha"], (agreement["low"], agreement["high"])) == (found.value, found.interval)
    assert agreement["low"] < agreement["alpha"] < agreement["high"]
    assert (agreement["pairs"], agreement["judgments"], agreement["same"]) == (25, 50, 0.8)
    assert quality["past_votes"] == {"votes": 50, "with_texts": 50, "repeated": 25, "left": 29, "sided": 35}
    empty = client.create_experiment("New", **SPEC)["id"]
    assert client.quality(empty) == {
        "agreement": {
            "alpha": None, "low": None, "high": None, "pairs": 0, "judgments": 0, "same": 1.0, "chance": 1.0
        },
        "past_votes": {"votes": 0, "with_texts": 0, "repeated": 0, "left": 0, "sided": 0},
    }  # fmt: skip


def test_its_types_are_those_of_the_description():
    """A field that the API gains or loses has to be in the client, too."""
    described = api.get_openapi_schema()["components"]["schemas"]
    pairs = {
        types.Experiment: "ExperimentOut", types.Status: "StatusOut", types.ClaimState: "ClaimOut",
        types.Conclusion: "ConclusionOut",
        types.Policy: "PolicyOut", types.Pair: "PairOut", types.Imported: "ImportedOut",
        types.Response: "ResponseOut", types.Entry: "EntryOut", types.ShownPair: "ShownOut",
        types.Shown: "NextOut", types.Judged: "JudgedOut", types.Member: "MemberOut",
        types.Invitation: "InvitationOut", types.NewInvitation: "NewInvitationOut", types.Task: "TaskIn",
        types.Factor: "FactorIn", types.Gold: "GoldIn", types.Changes: "ChangesIn",
        types.Patch: "PatchIn",
        types.Message: "MessageIn", types.Rate: "RateOut", types.Ranked: "RankedOut",
        types.Won: "WonOut", types.TaskResult: "TaskResultOut", types.TagResult: "TagResultOut",
        types.Quality: "QualityOut", types.Agreement: "AgreementOut", types.PastVotes: "PastVotesOut",
    }  # fmt: skip
    for kind, name in pairs.items():
        assert set(get_type_hints(kind)) == set(described[name]["properties"]), name
    assert set(get_args(types.Download)) == {each.suffix for each in FORMATS.values()} | {"winner.yaml"}
    assert set(get_args(types.Reason)) == set(Flag.Reason.values)
