"""Long work in a web process rests, so that the clicks of its other threads go on."""

from __future__ import annotations

import json
import time
from io import BytesIO, StringIO

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from benchmarks.arena import arena, as_record
from engine.domain.limits import VOTES_BYTES
from engine.importing import pacing
from engine.importing.pacing import paced, unhurried
from engine.importing.sources import source_of
from engine.importing.votes.reading import read_votes
from engine.models import Task
from engine.services.bulk_rows import insert, prepared
from engine.services.past_votes import start_from_votes
from tests.factories import make_user


class Clock:
    """Time that passes only where a test lets it, and in rests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.rests: list[float] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


def test_a_rest_is_as_long_as_the_work_before_it(monkeypatch):
    clock = Clock(monkeypatch)
    with unhurried():
        for seconds in paced([0.004, 0.004, 0.010, 1.0, 0.001]):
            clock.now += seconds
    assert clock.rests == pytest.approx([0.008, 0.010, 0.020])


def test_without_anybody_to_wait_for_it_the_work_goes_on(monkeypatch):
    clock = Clock(monkeypatch)
    with unhurried():
        pass
    for seconds in paced([1.0, 1.0]):
        clock.now += seconds
    assert clock.rests == []


@pytest.fixture
def rests(monkeypatch) -> list[bool]:
    """For each rest, one after each row: true if this thread had a transaction."""
    seen: list[bool] = []
    monkeypatch.setattr(pacing, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(time, "sleep", lambda _: seen.append(connection.in_atomic_block))
    return seen


VOTES = "".join(f"{json.dumps(as_record(vote))}\n" for vote in arena(20, policies=4)).encode()


@pytest.mark.django_db(transaction=True)
def test_nobody_rests_while_other_writers_wait(rests):
    with unhurried():
        votes = read_votes(source_of([("votes.jsonl", BytesIO(VOTES))], VOTES_BYTES)).votes
        n_read = len(rests)
        made = start_from_votes(name="Rested", votes=votes)
        assert n_read == 20
        assert len(rests) > 4 * 20
        with transaction.atomic():
            insert(
                prepared(Task, [Task(experiment=made, position=n, prompt="T") for n in range(99, 109)]), {}
            )
    assert not any(rests)


@pytest.mark.django_db
def test_imports_of_a_web_process_rest_and_those_of_a_command_do_not(rests, tmp_path):
    owner = make_user("owner", is_superuser=True)
    client = Client()
    client.force_login(owner)
    form = {"name": "By page", "votes": SimpleUploadedFile("votes.jsonl", VOTES)}
    assert client.post("/experiments/new/votes/", form).status_code == 302
    by_page = len(rests)
    (tmp_path / "votes.jsonl").write_bytes(VOTES)
    call_command("import_votes", tmp_path / "votes.jsonl", experiment="By command", stdout=StringIO())
    assert (by_page >= 20, len(rests)) == (True, by_page)
