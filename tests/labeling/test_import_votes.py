"""Past votes by the command and by the page, and the way out and back."""

import gzip
import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from benchmarks.arena import arena, as_record
from engine.importing.votes import Vote, Winner
from engine.models import Experiment, Judgment, Level, User
from engine.selectors import counts
from engine.selectors.findings import ladder
from engine.services.planning import advance
from labeling.dashboard.explanations import explain
from labeling.dashboard.status import status_of
from tests.commands import run
from tests.factories import add_member, make_experiment, make_user
from tests.markup import text_of
from tests.tables import imported as imported_page

pytestmark = pytest.mark.django_db

VOTES = arena(120, policies=4, tasks=3, ties=0.3)
OTHERS = arena(20, policies=4, tasks=3, seed=2)


def jsonl(votes: list[Vote]) -> bytes:
    return "".join(f"{json.dumps(as_record(vote))}\n" for vote in votes).encode()


def file_of(folder: Path, votes: list[Vote] = VOTES) -> Path:
    file = folder / "votes.jsonl"
    file.write_bytes(jsonl(votes))
    return file


def imported(folder: Path, votes: list[Vote] = VOTES) -> Experiment:
    run("import_votes", file_of(folder, votes), "--experiment", "Past")
    return Experiment.objects.get(name="Past")


# ---------------------------------------------------------------- commands


def test_the_command_makes_the_experiment_and_shows_what_follows(tmp_path):
    ann = make_user("ann")
    said = run("import_votes", file_of(tmp_path), "--experiment", "Past", "--owner", "ann")
    experiment = Experiment.objects.get(name="Past")
    assert experiment.memberships.get(role="owner").user == ann
    assert "120 votes imported." in said
    assert [line.split()[0] for line in said.splitlines() if line.startswith("model-")]
    for words in (
        "Agreement: ",
        "Position bias: the left side was chosen in ",
        "To go on, start the experiment: new votes",
    ):
        assert words in said
    rungs = ladder(experiment).rungs
    assert len(rungs) == 3
    for rung in rungs:
        assert f"{'holds' if rung.holds or rung.follows_from else 'open '}  {rung.text}" in said
    assert not experiment.evidence_stale
    again = run("import_votes", file_of(tmp_path), "--experiment", "Past", "--again")
    assert "120 votes imported." in again
    assert counts.comparison_count(experiment.pk) == 240


def test_the_command_says_what_is_wrong_and_where(tmp_path):
    file = tmp_path / "votes.csv"
    with pytest.raises(CommandError, match="cannot be read"):
        run("import_votes", file, "--experiment", "Past")
    file.write_text("task,policy_a,policy_b,winner\nT,P,Q,a\nT,P,P,a\n")
    with pytest.raises(CommandError, match=r"votes\.csv, line 3: Both policies are 'P'"):
        run("import_votes", file, "--experiment", "Past")
    with pytest.raises(CommandError, match="There is no account 'nobody'"):
        run("import_votes", file_of(tmp_path), "--experiment", "Past", "--owner", "nobody")
    running = make_experiment()
    with pytest.raises(CommandError, match="Pause it first"):
        run("import_votes", file_of(tmp_path), "--experiment", running.name)
    assert Experiment.objects.count() == 1


# ---------------------------------------------------------------- pages


@pytest.fixture
def owner(client: Client) -> User:
    user = make_user("ann", is_superuser=True)
    client.force_login(user)
    return user


def upload(client: Client, data: bytes, name: str = "Past", filename: str = "votes.jsonl") -> Any:
    """The page at which the import of a file ends."""
    form = {"name": name, "votes": SimpleUploadedFile(filename, data)}
    return imported_page(client, reverse("import_votes"), form)


def test_agreement_is_the_same_in_whichever_order_a_format_has_the_people(tmp_path):
    """Three people judged the same two texts, and Argilla's records have them in another order."""
    rows = [
        {"task": f"T{n}", "policy_a": "P", "policy_b": "Q", "response_a": f"p{n}", "response_b": f"q{n}",
         "winner": winner, "annotator": by, "side_a": side}
        for n in range(20)
        for by, winner, side in (("ann", "a", "left"), ("bob", "tie", "right"), ("cyd", "both_bad", "right"))
    ]  # fmt: skip
    file, other = tmp_path / "votes.jsonl", tmp_path / "argilla.json"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def agreement(path, name):
        said = run("import_votes", path, "--experiment", name).splitlines()
        return next(line for line in said if line.startswith("Agreement: "))

    first = agreement(file, "First")
    assert "from 60 judgments of 20 pairs of responses" in first
    run("export", "First", "--format", "argilla", "--out", other)
    assert agreement(other, "Second") == first


@pytest.mark.parametrize(
    ("n", "said_of_it"),
    [
        (5, "which chance may explain (p = 0.06)."),
        (9, "which chance seldom brings (p = 0.0039)."),
        (11, "more often than chance explains (p = 0.0010)."),
    ],
)
def test_a_share_that_is_rare_but_no_proof_of_a_habit_is_not_called_usual(n, said_of_it, tmp_path):
    # The two were shown in both orders, and the left one was chosen each time.
    rows = [f"T{k},P,Q,{'a' if k % 2 else 'b'},{'left' if k % 2 else 'right'}\n" for k in range(n)]
    file = tmp_path / "votes.csv"
    file.write_text("task,policy_a,policy_b,winner,side_a\n" + "".join(rows))
    said = run("import_votes", file, "--experiment", "Past")
    assert f"chosen in {n} of {n} votes with a side, {said_of_it}" in said


def test_where_side_and_policy_coincide_a_habit_is_not_told_from_a_preference(tmp_path):
    """Policy A was always on the left and won 36 of 40."""
    rows = [f"T{k},P,Q,{'a' if k < 36 else 'b'},left\n" for k in range(40)]
    file = tmp_path / "votes.csv"
    file.write_text("task,policy_a,policy_b,winner,side_a\n" + "".join(rows))
    said = run("import_votes", file, "--experiment", "Past")
    assert "Position bias: cannot be told." in said
    assert "more often than chance" not in said


@pytest.mark.usefixtures("owner")
def test_the_page_imports_and_leads_to_the_result(client):
    assert reverse("import_votes") in client.get(reverse("new_experiment")).content.decode()
    assert client.get(reverse("import_votes")).status_code == 200
    result = upload(client, gzip.compress(jsonl(VOTES)), filename="votes.jsonl.gz").content.decode()
    experiment = Experiment.objects.get(name="Past")
    dashboard, quality = (reverse(name, args=[experiment.pk]) for name in ("dashboard", "quality"))
    page = result + client.get(quality).content.decode()
    for words in (
        "120 votes imported.",
        "120 past votes came from files.",
        "because of its result",
        "Agreement: ",
        "Position bias: ",
        "Go on from here",
        "The evidence is being recomputed.",
        "model-3",
    ):
        assert words in page
    advance(experiment_id=experiment.pk)
    assert "recomputed" not in client.get(dashboard).content.decode()
    file = client.get(reverse("ranking_file", args=[experiment.pk]))
    assert file["Content-Disposition"] == 'attachment; filename="past-ranking.csv"'
    assert file.content.decode() == run("ranking", "Past", "--format", "csv")
    assert (
        reverse("ranking_file", args=[experiment.pk])
        in client.get(reverse("export", args=[experiment.pk])).content.decode()
    )
    started = client.post(reverse("change_state", args=[experiment.pk]), {"action": "start"})
    assert started.status_code == 302
    experiment.refresh_from_db()
    assert experiment.state == "running"
    assert "Go on from here" not in client.get(quality).content.decode()


@pytest.mark.usefixtures("owner")
def test_the_page_keeps_the_name_and_says_what_is_wrong(client):
    page = upload(client, b"task,policy_a,policy_b,winner\nT,P,Q,maybe\n", name="Mine").content.decode()
    assert "line 2: winner is &#x27;maybe&#x27;." in page
    assert 'value="Mine"' in page
    assert "There are no votes here" in upload(client, b"", name="Mine").content.decode()
    for name, data in (("", jsonl(VOTES)), ("Mine", b"a" * 10_000_001)):
        assert upload(client, data, name=name).status_code == 400
    assert client.post(reverse("import_votes"), {"name": "Mine"}).status_code == 400
    assert not Experiment.objects.exists()


@pytest.mark.usefixtures("owner")
def test_the_page_adds_to_an_experiment_that_the_person_runs(client):
    upload(client, jsonl(VOTES))
    upload(client, jsonl(OTHERS))
    assert Experiment.objects.get().past_votes == 140


def test_rows_that_cannot_be_read_are_listed_and_left_out_only_on_request(tmp_path):
    file = tmp_path / "votes.csv"
    file.write_text("task,policy_a,policy_b,winner\nT,P,Q,a\nT,P,P,a\nT,P,Q,maybe\n")
    with pytest.raises(
        CommandError, match=r"line 3: .*\n.*line 4: .*\n1 of 3 rows can be read\. .*--leave-out"
    ):
        run("import_votes", file, "--experiment", "Past")
    said = run("import_votes", file, "--experiment", "Past", "--leave-out", "--judged-by", "llm")
    assert "1 of 3 rows can be read." in said
    assert Judgment.objects.get().judge == "llm"


def test_nobody_adds_votes_to_an_experiment_of_others_but_may_use_its_name(client):
    theirs = make_experiment(running=False, name="Theirs")
    maker = make_user("bob")
    maker.user_permissions.add(*_may_create())
    client.force_login(maker)
    upload(client, jsonl(VOTES), name="Theirs")
    theirs.refresh_from_db()
    assert theirs.past_votes == 0
    own = Experiment.objects.get(maker=maker)
    assert (own.name, own.past_votes) == ("Theirs", 120)
    # Two of one name, and both of them theirs to change: the name does not say which.
    own.maker = make_user("cat")
    own.save()
    add_member(theirs, maker, "editor")
    assert b"You may change 2 experiments of this name" in upload(client, jsonl(VOTES), name="Theirs").content


def _may_create() -> list[Any]:
    from django.contrib.auth.models import Permission  # noqa: PLC0415

    return list(Permission.objects.filter(codename="add_experiment"))


def test_the_status_and_each_comparison_say_where_the_votes_come_from(tmp_path):
    experiment = imported(tmp_path)
    assert "120 past votes count." in status_of(experiment).sentence
    first = experiment.comparisons.first()
    assert first is not None
    assert explain(first, [])[0] == ["This is a past vote from a file. No sampler chose its pair here."]


@pytest.mark.usefixtures("owner")
def test_of_votes_without_responses_and_sides_the_page_claims_to_know_neither(client):
    """It counted votes on equal tasks as votes on equal responses, and drawn sides as chosen ones."""
    rows = [f"T{n % 4},P,Q,{'ab'[n % 3 > 1]},{'ann' if n % 2 else 'bob'}\n" for n in range(60)]
    upload(client, ("task,policy_a,policy_b,winner,annotator\n" + "".join(rows)).encode(), filename="v.csv")
    experiment = Experiment.objects.get()
    words = text_of(client.get(reverse("quality", args=[experiment.pk])).content.decode())
    assert "Repeated responses: unknown." in words
    assert "that an earlier vote was about" not in words
    assert "No two people are known to have judged the same two responses." in words
    assert "Position bias: unknown." in words
    assert "People 60 – – unknown" in words
    assert "none found" not in words
    assert f"ann@import-{experiment.pk} 30 – –" in words


@pytest.mark.usefixtures("owner")
def test_only_choices_with_a_known_side_are_counted_by_side(client):
    rows = [f"T{n},P,Q,a,{'left' if n < 20 else ''}\n" for n in range(29)] + ["T,Q,P,a,left\n"]
    upload(client, ("task,policy_a,policy_b,winner,side_a\n" + "".join(rows)).encode(), filename="v.csv")
    words = text_of(client.get(reverse("quality", args=[Experiment.objects.get().pk])).content.decode())
    assert "People 30 – 21 of 21" in words
    assert "the left side was chosen in 21 of 21 votes with a side" in words


@pytest.mark.usefixtures("owner")
def test_some_votes_with_responses_are_told_from_those_without(client):
    rows = [f"T,P,Q,a,{'p,q' if n < 5 else ','}\n" for n in range(8)]
    head = "task,policy_a,policy_b,winner,response_a,response_b\n"
    upload(client, (head + "".join(rows)).encode(), filename="v.csv")
    words = text_of(client.get(reverse("quality", args=[Experiment.objects.get().pk])).content.decode())
    assert "4 of 5 votes with both responses are about two responses that an earlier vote was about." in words


@pytest.mark.usefixtures("owner")
def test_the_result_leads_to_all_conditions(client):
    upload(client, jsonl(VOTES))
    experiment = Experiment.objects.get()
    html = client.get(reverse("dashboard", args=[experiment.pk])).content.decode()
    assert f'href="{reverse("quality", args=[experiment.pk])}#past-title">All conditions for past vo' in html
    assert "because of its result, which nobody can check" in status_of(experiment).sentence


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("texts", [True, False])
def test_votes_without_responses_are_not_offered_as_preferences(texts, client):
    """It offered up to 638 pairs, and the file was empty."""
    upload(client, jsonl(arena(40, policies=3, tasks=3, texts=texts)))
    page = client.get(reverse("export", args=[Experiment.objects.get().pk])).content.decode()
    assert ("no comparison has both responses and a decision for one of them" in page) != texts
    assert ('<dd id="preferences">0</dd>' in page) != texts
    for name in ("DPO pairs", "Reward", "KTO"):
        assert (f">{name}</button>" in page) == texts
    assert ">CSV</button>" in page


@pytest.mark.usefixtures("owner")
def test_a_winner_of_which_only_its_name_is_known_has_no_settings_to_copy(client):
    """The button copied a request with the policy's name as the model, and with default settings."""
    upload(client, jsonl(arena(120, policies=4, tasks=3, texts=False)))
    experiment = Experiment.objects.get()
    winner = experiment.policies.get(index=1)
    Experiment.objects.filter(pk=experiment.pk).update(
        state="concluded", conclusion="stopped", winner=winner, concluded_at=timezone.now()
    )
    result, own = reverse("dashboard", args=[experiment.pk]), reverse("policy", args=[experiment.pk, 2])
    for address in (result, own):
        html = client.get(address).content.decode()
        assert "written elsewhere, so" in html
        assert "Copy prompt and settings" not in html
        assert "No system prompt" not in html
    request = reverse("policy_request", args=[experiment.pk, 2])
    assert client.get(request).status_code == 404
    # A draft that votes were added to may call a model by another name than its own.
    level = winner.levels.get()
    Level.objects.filter(pk=level.pk).update(value={"name": "qwen-3"})
    assert client.get(request).status_code == 200
    Level.objects.filter(pk=level.pk).update(value=level.value)
    assert client.get(request).status_code == 404
    # Once a backend of this installation has written for it, its settings are known.
    written = winner.responses.earliest("pk")
    winner.responses.filter(pk=written.pk).update(state="done", text="Yes.", model="model-1")
    assert client.get(request).status_code == 200
    assert "Copy prompt and settings" in client.get(result).content.decode()


# ---------------------------------------------------------------- out and back


def as_exported(row: dict[str, Any]) -> tuple[Any, ...]:
    """The content of a vote, from a row of an export of judgments."""
    left, right = ("i", "j") if row["left_policy"] == row["policy_i"] else ("j", "i")
    sides = {
        side: (row[f"policy_{half}_name"], row[f"response_{half}"])
        for side, half in (("left", left), ("right", right))
    }
    return (
        row["task"],
        sides["left"],
        sides["right"],
        row["choice"],
        datetime.fromisoformat(row["judged_at"]),
        row["annotator"],
    )


def as_given(vote: Vote, experiment: Experiment) -> tuple[Any, ...]:
    a, b = (vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)
    left, right = (a, b) if vote.a_on_left else (b, a)
    choice = vote.winner.value
    if vote.winner in {Winner.A, Winner.B}:
        choice = "left" if (vote.winner == Winner.A) == vote.a_on_left else "right"
    assert vote.judged_at is not None
    return (
        vote.task,
        left,
        right,
        choice,
        vote.judged_at,
        f"{vote.annotator}@import-{experiment.pk}",
    )


def exported(experiment: Experiment, file: Path) -> list[dict[str, Any]]:
    run("export", experiment.pk, "--format", "jsonl", "--usernames", "--out", file)
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_went_in_comes_out_vote_by_vote(tmp_path):
    experiment = imported(tmp_path)
    rows = exported(experiment, tmp_path / "out.jsonl")
    assert Counter(map(as_exported, rows)) == Counter(as_given(vote, experiment) for vote in VOTES)
    assert {row["via"] for row in rows} == {"import"}


def test_a_text_that_is_not_there_is_nobodys_training_data(tmp_path):
    file = tmp_path / "votes.csv"
    file.write_text("task,policy_a,policy_b,winner,response_a,response_b\nT,P,Q,a,,\nT,P,Q,a,Red,Green\n")
    run("import_votes", file, "--experiment", "Past")
    run("export", "Past", "--format", "dpo", "--out", tmp_path / "dpo.jsonl")
    [row] = map(json.loads, (tmp_path / "dpo.jsonl").read_text().splitlines())
    assert (row["chosen"], row["rejected"]) == ("Red", "Green")
    assert Judgment.objects.count() == 2
