"""Improvements in files, messages, the report and the API."""

import json
from datetime import datetime

import numpy as np
import pytest

from engine.core import Improvement as Race
from engine.models import Connection, Notification, Proposal
from engine.selectors.browsing import Selection
from engine.selectors.improvements import race_of
from engine.selectors.verifying import faults_of
from engine.services.improvements import add_proposals, claim_writing, go_on_improving, stop_improvement
from labeling.dashboard.report import report_of
from labeling.exports.events import event_rows
from labeling.exports.files import EVENTS, Export, Tally, manifest_bytes
from tests.engine.test_improvements import begun
from tests.factories import add_member, make_user, subscribed
from tests.improving import FACTOR, make_world, one_change_at_a_time, run_to_the_end

pytestmark = pytest.mark.django_db


def index(code: str) -> int:
    return int(code[1:]) - 1


def again(own: dict, lines: list[dict]) -> Race:
    """The race from an export alone, as docs/export.md has it."""
    turns = list(own["turns"])
    clicks = own["clicks"] - sum(more or 0 for _, more in turns)
    race = Race(index(own["original"]), clicks=clicks, delta=own["delta"], seed=own["seed"])
    children = {index(each["policy"]) for each in own["proposals"] if each["policy"]}
    phases = {number: phase for phase, numbers in own["comparisons"].items() for number in numbers}
    first, *events = lines
    known, policy = set(), len(first["policies"])
    for number, event in enumerate(events, 1):
        call = event.pop("call")
        joined, policy = policy, policy + (call == "add")
        if not own["first"] < number <= (own["last"] or number):
            continue
        while turns and number > turns[0][0]:
            [_, more] = turns.pop(0)
            race.certify() if more is None else race.go_on(more)
        if call == "add" and joined in children:
            race.add(joined, event["parent"])
        elif call == "retire" and event["policy"] in race.challengers:
            race.withdraw(event["policy"])
        elif call == "show" and phases.get(event["showing"]) == race.phase:
            known.add(race.show(**event))
        elif event.get("showing") in known:
            getattr(race, call)(**event)
    return race


def test_the_race_follows_from_the_exported_files_and_the_report_says_its_end(annotator):
    rng = np.random.default_rng(7)
    improvement = begun([annotator], clicks=48)
    experiment = improvement.experiment
    subscription = subscribed(experiment, events=["improved"])
    run_to_the_end(improvement, [annotator], one_change_at_a_time(rng), rng)
    [told] = Notification.objects.filter(subscription=subscription)
    before, champion = improvement.used, improvement.champion
    go_on_improving(improvement_id=improvement.pk, clicks=24)
    improvement.refresh_from_db()
    assert (improvement.clicks, improvement.champion) == (before + 24, champion)
    run_to_the_end(improvement, [annotator], one_change_at_a_time(rng), rng)
    assert improvement.used > before
    assert list(faults_of(experiment)) == []
    lines = [json.loads(json.dumps(row)) for row in event_rows(experiment)]
    manifest = Export(experiment, EVENTS, Selection(), {}).manifest(Tally())
    [own] = json.loads(manifest_bytes(manifest))["experiment"]["improvements"]
    race, stored = again(own, lines), race_of(improvement)
    assert race.used == improvement.used > 0
    assert (race.promotions, race.dropped, race.verdict) == (
        stored.promotions,
        stored.dropped,
        stored.verdict,
    )
    texts = {each.text for each in improvement.proposals.all()}
    assert {each["text"] for each in own["proposals"]} == texts
    assert all(each["sent"] and datetime.fromisoformat(each["at"]) for each in own["writings"])
    assert {each["probability"] for each in own["dropped"]} <= {
        each["probability"] for each in own["proposals"]
    }
    assert report_of(experiment)["improvements"] == [own["sentence"]]
    message = Notification.objects.filter(subscription=subscription).exclude(pk=told.pk).get()
    assert own["sentence"] in message.text


def test_each_end_is_told_also_after_as_many_clicks(annotator):
    improvement = begun([annotator], clicks=48)
    subscription = subscribed(improvement.experiment, events=["improved"])
    for n in (1, 2):
        stop_improvement(improvement_id=improvement.pk)
        assert Notification.objects.filter(subscription=subscription).count() == n
        go_on_improving(improvement_id=improvement.pk, clicks=48)


def test_the_whole_of_it_by_the_api(annotator, caller_for):
    editor = make_user("editor")
    experiment = make_world([annotator])
    add_member(experiment, editor, "editor")
    address = f"/experiments/{experiment.pk}/improvement"
    call = caller_for(editor)
    assert call("get", address).status_code == 404
    assert call("post", address, {"clicks": 2}).status_code == 422
    # A token lends nothing: it would start a race whose writer is never asked.
    Connection.objects.create(name="Mine", provider="compatible", model_id="m", owner=editor)
    barred = call("post", address, {"connection": "Mine"})
    assert barred.status_code == 422
    assert "Mine" in barred.json()["detail"]
    started = call("post", address, {"clicks": 40, "wish": "Be kind.", "writer": "prepared"})
    assert started.status_code == 200, started.content
    assert (started.json()["state"], started.json()["wish"]) == ("open", "Be kind.")
    assert call("post", address, {}).status_code == 409
    improvement = experiment.improvements.get()
    claim_writing(improvement_id=improvement.pk)
    written = [(text, "Because.") for text in ("You are kind.", "You are rude.")]
    add_proposals(improvement_id=improvement.pk, parent=improvement.original.index, written=written)
    accepted = call("post", f"{address}/proposals/1/accept", {"text": "You are very kind."}).json()
    refused = call("post", f"{address}/proposals/2/refuse", {"reason": "No."}).json()
    assert [each["state"] for each in refused["proposals"]] == ["joined", "refused"]
    assert (accepted["proposals"][0]["text"], accepted["proposals"][0]["policy"]) == (
        "You are very kind.",
        "P3",
    )
    assert experiment.factors.get(name=FACTOR).levels.count() == 3
    assert call("post", f"{address}/proposals/2/accept", {}).status_code == 409
    assert call("post", f"{address}/proposals/9/accept", {}).status_code == 404
    # Nobody was compared yet: the original stays.
    assert call("post", f"{address}/certify").json()["phase"] == "ended"
    assert call("post", f"{address}/certify").status_code == 409
    assert call("post", f"{address}/go-on", {}).status_code == 409
    assert call("post", f"{address}/stop").json()["state"] == "stopped"
    went_on = call("post", f"{address}/go-on", {"clicks": 30}).json()
    assert (went_on["state"], went_on["phase"], went_on["clicks"]) == ("open", "explore", 30)
    assert call("post", f"{address}/stop").json()["state"] == "stopped"
    assert call("get", address).json()["ended_at"] is not None
    assert Proposal.objects.get(number=1).state == Proposal.State.LEFT
