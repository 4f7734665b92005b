"""Exports for other tools: our own importer reads them again, and the data set is what its card says."""

import io
import json
import zipfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pyarrow.parquet
import pytest
import yaml

from engine.domain.conversations import Message, text_and_messages
from engine.domain.limits import VOTES_BYTES
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError
from engine.importing.votes import Vote, Winner, read_votes
from engine.models import Judgment
from engine.services.past_votes import start_from_votes
from engine.services.voids import void_one
from labeling.exports.judgments import COLUMNS
from tests.downloads import ask
from tests.factories import make_user

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VOTES = [
    Vote(
        "",
        f"Task {n % 3}\nwith *two* lines",
        "Terse | *P*",
        "Warm",
        winner,
        f"p{n}",
        f"q{n}",
        annotator=("ann", "bob")[n % 2],
        judged_at=NOON + timedelta(minutes=n),
        a_on_left=n % 3 > 0,
    )
    for n, winner in enumerate([*Winner, *Winner])
]


@pytest.fixture
def experiment():
    return start_from_votes(name="Which *tone*", votes=VOTES, by=None)


@pytest.fixture
def owner(client):
    user = make_user(is_superuser=True)
    client.force_login(user)
    return user


def exported(client, experiment, name: str, **query: str) -> bytes:
    return b"".join(ask(client, name, experiment.pk, **query).streaming_content)


def of_p(vote: Vote) -> tuple:
    """A vote as it is whichever of its policies comes first."""
    sides = [(vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)]
    winner = vote.winner
    if winner in {Winner.A, Winner.B}:
        winner = sides[winner == Winner.B][0]
    left = sides[not vote.a_on_left][0]
    return vote.task, sorted(sides), winner, left, vote.judged_at


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("name", ["lmarena_jsonl", "argilla_json"])
def test_votes_come_back_as_they_went_out(name, client, experiment):
    data = exported(client, experiment, name, usernames="1")
    found = read_votes(source_of([("votes", io.BytesIO(data))], VOTES_BYTES))
    assert list(map(of_p, found.votes)) == list(map(of_p, VOTES))
    people = [vote.annotator for vote in found.votes]
    assert [people[0], people[1]] * 4 == people
    assert people[0] != people[1]


# Texts that a spreadsheet would run, that look defused, that are JSON, and that end lines.
ODD = ["=1+1", "'=1", '["a"]', "a\u2028b\r\nc", "", "-5"]


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("judgments_csv", {}),
        ("judgments_jsonl", {"zip": "1"}),
        ("judgments_parquet", {}),
        ("huggingface_zip", {}),
    ],
)
def test_an_export_of_judgments_is_a_file_of_votes(name, packed, client, owner):
    messages = (Message("system", "Be kind."), Message("user", "Hi"))
    odd = [
        replace(vote, task=f"{text} {n}", response_a=text, response_b=ODD[n - 1])
        for n, (vote, text) in enumerate(zip(VOTES, ODD, strict=False))
    ]
    asked = text_and_messages(messages)
    votes = [*odd, replace(VOTES[6], task=asked[0], messages=asked[1]), VOTES[7]]
    experiment = start_from_votes(name="Odd", votes=votes)
    void_one(judgment_id=Judgment.objects.order_by("-pk")[0].pk, by=owner, reason="A test.")
    data = exported(client, experiment, name, usernames="1", judgments="", **packed)
    found = read_votes(source_of([("votes", io.BytesIO(data))], VOTES_BYTES))
    assert list(map(of_p, found.votes)) == list(map(of_p, votes[:-1]))
    assert [vote.messages for vote in found.votes] == [vote.messages for vote in votes[:-1]]


@pytest.mark.parametrize(("texts_known", "text"), [(True, ""), (False, None)])
def test_two_empty_responses_are_texts_where_the_export_knows_them(texts_known, text):
    row = {"policy_i": "P1", "policy_j": "P2", "policy_i_name": "A", "policy_j_name": "B"} | {
        "left_policy": "P1", "choice": "tie", "voided": False, "task": "Hi", "response_i": "",
        "response_j": "", "texts_known": texts_known,
    }  # fmt: skip
    [vote] = read_votes(source_of([("votes", io.BytesIO(json.dumps(row).encode()))], VOTES_BYTES)).votes
    assert (vote.response_a, vote.response_b) == (text, text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task_variables": '{"name": "Ann"}'}, r"The task has variables.*LMArena"),
        ({"left_policy": "P9"}, "left_policy is 'P9', and no policy of the row"),
        ({"left_policy": ["P1"]}, r"left_policy is \['P1'\], and no policy of the row"),
        ({"voided": "no"}, "voided is 'no'. Write true or false"),
        ({"task_messages": "[{"}, "task_messages is no list of messages"),
    ],
)
def test_a_row_of_an_export_that_cannot_be_a_vote_says_so(change, words):
    row = {"policy_i": "P1", "policy_j": "P2", "policy_i_name": "A", "policy_j_name": "B"} | {
        "left_policy": "P1", "choice": "left", "voided": False, "task": "Hi",
    }  # fmt: skip

    def read(said: dict[str, object]) -> list[Vote]:
        source = source_of([("votes", io.BytesIO(json.dumps(said).encode()))], VOTES_BYTES)
        return list(read_votes(source).votes)

    assert [vote.policy_a for vote in read(row)] == ["A"]
    with pytest.raises(ImportingError, match=words):
        read(row | change)


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("name", ["lmarena_jsonl", "argilla_json", "judgments_csv", "judgments_jsonl"])
def test_votes_without_texts_come_back_without_texts(name, client):
    """Empty texts would make an experiment on ready-made responses, all of them equal."""
    votes = [
        replace(vote, response_a=None, response_b=None, a_on_left=None, judged_at=None) for vote in VOTES[:2]
    ]
    experiment = start_from_votes(name="No texts", votes=votes)
    data = exported(client, experiment, name)
    found = read_votes(source_of([("votes", io.BytesIO(data))], VOTES_BYTES)).votes
    assert [(vote.response_a, vote.response_b) for vote in found] == [(None, None)] * 2
    assert [vote.judged_at for vote in found] == [None, None], "not the time of the import"
    assert start_from_votes(name="Again", votes=found).responses == "fresh"


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("name", ["lmarena_jsonl", "argilla_json", "judgments_jsonl"])
@pytest.mark.parametrize(
    ("a", "b"), [("model_b", "model_a"), ("response_b", "response_a"), ("right", "left"), ("tie", "B")]
)
def test_policies_may_be_called_as_sides_are(name, a, b, client):
    votes = [replace(vote, policy_a=a, policy_b=b) for vote in VOTES]
    data = exported(client, start_from_votes(name="Crosswise", votes=votes), name)
    found = read_votes(source_of([("votes", io.BytesIO(data))], VOTES_BYTES)).votes
    assert list(map(of_p, found)) == list(map(of_p, votes))


def test_voided_votes_and_names_stay_out(client, experiment, owner):
    last = Judgment.objects.order_by("-pk")[0]
    void_one(judgment_id=last.pk, by=owner, reason="A test.")
    arena = exported(client, experiment, "lmarena_jsonl", judgments="")
    argilla = exported(client, experiment, "argilla_json", judgments="")
    records = json.loads(argilla)
    assert len(arena.splitlines()) == len(records) == len(VOTES) - 1
    assert last.annotator.username not in (arena + argilla).decode()
    assert records[0]["metadata"]["annotators"][0].startswith("annotator-")


@pytest.mark.usefixtures("owner")
def test_answers_about_the_same_two_responses_are_one_record_of_argilla(client):
    """As `argilla.Record.from_dict` takes it, and its server: a person is a UUID and answers once."""
    people = ["ann", "bob", "ann", "", "cyd"]
    votes = [
        replace(VOTES[n % 4], annotator=by, response_a="p", response_b="q", task="T", a_on_left=n != 4,
                judged_at=None if n == 1 else NOON + timedelta(minutes=n))
        for n, by in enumerate(people)
    ]  # fmt: skip
    data = exported(client, start_from_votes(name="Five", votes=votes), "argilla_json", usernames="1")
    records = json.loads(data)
    assert [len(record["responses"]["preference"]) for record in records] == [1, 3, 1]
    for record in records:
        assert set(record) == {"id", "fields", "metadata", "responses"}
        assert all(isinstance(each, (str, list)) for each in record["metadata"].values())
        answers = record["responses"]["preference"]
        assert all(set(each) == {"value", "user_id", "status"} for each in answers)
        assert len({UUID(each["user_id"]) for each in answers}) == len(answers)
    found = read_votes(source_of([("a", io.BytesIO(data))], VOTES_BYTES)).votes
    assert sorted(of_p(each)[2:4] for each in found) == sorted(of_p(each)[2:4] for each in votes)
    assert sorted(each.annotator.partition("@")[0] for each in found) == sorted(people)
    assert Counter(each.judged_at for each in found) == Counter(each.judged_at for each in votes)


@pytest.mark.usefixtures("owner")
def test_the_data_set_is_parquet_with_a_card(client, experiment):
    packed = zipfile.ZipFile(io.BytesIO(exported(client, experiment, "huggingface_zip")))
    card = packed.read("README.md").decode()
    _, head, body = card.split("---\n", 2)
    described = yaml.safe_load(head)
    assert described["pretty_name"] == "Which *tone*"
    assert described["size_categories"] == ["n<1K"]
    [files] = described["configs"][0]["data_files"]
    assert files == {"split": "train", "path": "data/train-*.parquet"}
    [name] = [name for name in packed.namelist() if name.startswith("data/train-")]
    table = pyarrow.parquet.read_table(io.BytesIO(packed.read(name)))
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == len(VOTES)
    assert f"{len(VOTES)} rows, one per judgment. Agreement: unknown." in body
    assert "# Which \\*tone\\*" in body
    assert "* Terse \\| \\*P\\*" in body
    assert all(f"| `{column}` |" in body for column in COLUMNS)
    # It is a folder of a data set to our own importer too.
    source = source_of(
        [("set.zip", io.BytesIO(exported(client, experiment, "huggingface_zip")))], VOTES_BYTES
    )
    assert sum(1 for _ in source.rows()) == len(VOTES)
