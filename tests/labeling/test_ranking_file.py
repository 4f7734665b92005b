"""The ranking of the policies: on the command line and as a file."""

import csv
import io

import pytest
from django.urls import reverse

from benchmarks.arena import arena
from engine.importing.votes import Vote, Winner
from engine.models import Task
from engine.selectors import counts
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from labeling.dashboard.figures import result_figures
from tests.commands import run
from tests.factories import add_member, make_experiment, make_user

pytestmark = pytest.mark.django_db

VOTES = [vote for vote in arena(120, policies=4, tasks=3, ties=0.3) if vote.winner != Winner.TIE] * 3


AGAINST = ["against_leader", "against_leader_low", "against_leader_high"]
COLUMNS = ["policy", "strength", "low", "high", *AGAINST, "comparisons", "standing"]


def test_the_ranking_as_csv_is_best_first(tmp_path):
    experiment = start_from_votes(name="Past", votes=VOTES)
    rows = list(csv.DictReader(run("ranking", "Past", "--format", "csv").splitlines()))
    assert list(rows[0]) == COLUMNS
    assert rows[0]["standing"] == "leads"
    assert {row["standing"] for row in rows} <= {"leads", "open", "not clearly better", "ruled out"}
    assert {row["policy"] for row in rows} == {f"model-{n}" for n in range(4)}
    for row in rows:
        low, strength, high = (float(row[name]) for name in ("low", "strength", "high"))
        assert 0 <= low <= strength <= high <= 1
    assert [rows[0][name] for name in AGAINST] == ["", "", ""]
    shown = result_figures(experiment)["policies"][1:]
    assert [row["policy"] for row in rows[1:]] == [row["name"].name for row in shown]
    rates = [float(row["against_leader"]) for row in rows[1:]]
    assert rates == sorted(rates, reverse=True)
    for row, policy in zip(rows[1:], shown, strict=True):
        estimate, low, high = (100 * float(row[name]) for name in AGAINST)
        assert policy["bar"]["percents"] == pytest.approx((estimate, low, high), abs=0.6)
    assert sum(int(row["comparisons"]) for row in rows) == 2 * counts.comparison_count(experiment.pk)
    out = tmp_path / "ranking.csv"
    assert "4 policies in" in run("ranking", experiment.pk, "--format", "csv", "--out", out)
    assert list(csv.DictReader(out.read_text().splitlines())) == rows
    table, _, agreement = run("ranking", "Past").partition("\n\n")
    assert [line.split()[0] for line in table.splitlines()[1:]] == [row["policy"] for row in rows]
    assert agreement.startswith("Agreement: ")


def test_a_policy_named_like_a_formula_is_defused():
    start_from_votes(name="Past", votes=[Vote("line 2", "T", "=1+1", "Q", Winner.A)])
    assert run("ranking", "Past", "--format", "csv").splitlines()[1].startswith("'=1+1,")


def test_before_the_first_judgment_nobody_leads():
    experiment = make_experiment()
    rows = csv.DictReader(run("ranking", experiment.pk, "--format", "csv").splitlines())
    assert {row["standing"] for row in rows} == {"open"}
    assert {row["word"] for row in result_figures(experiment)["policies"]} == {"open"}


def test_the_file_is_what_the_command_prints(client):
    experiment = make_experiment(name="Which is best?")
    viewer = make_user("vic")
    add_member(experiment, viewer, "viewer")
    client.force_login(viewer)
    file = client.get(reverse("ranking_file", args=[experiment.pk]))
    assert file["Content-Type"] == "text/csv; charset=utf-8"
    assert file["Content-Disposition"] == 'attachment; filename="which-is-best-ranking.csv"'
    assert file.content.decode() == run("ranking", experiment.pk, "--format", "csv")


def test_results_by_task_and_by_tag_are_counts_of_what_was_judged(client):
    user = make_user(is_superuser=True)
    client.force_login(user)
    votes = [
        Vote("", task, "=P", "Q", winner, f"p of {task}", f"q of {task}")
        for task, winners in (("One", "aaab"), ("Two", "ab"), ("Three", "bbbb"))
        for winner in map(Winner, winners)
    ]
    votes.append(Vote("", "Two", "=P", "Q", Winner.TIE, "p of Two", "q of Two"))
    experiment = start_from_votes(name="Tagged", votes=votes, by=user)
    Task.objects.filter(prompt="One").update(tags=["sums", "easy"])
    Task.objects.filter(prompt="Two").update(tags=["sums"])

    def read(**query):
        answer = client.get(reverse("results_file", args=[experiment.pk]), query)
        return answer["Content-Disposition"], list(csv.reader(io.StringIO(answer.content.decode())))

    said, rows = read()
    assert said == 'attachment; filename="tagged-by-task.csv"'
    assert rows == [
        ["task", "tags", "policy", "wins", "comparisons", "share"],
        ["One", "sums; easy", "'=P", "3.0", "4", "0.75"],
        ["One", "sums; easy", "Q", "1.0", "4", "0.25"],
        ["Two", "sums", "'=P", "1.5", "3", "0.5"],
        ["Two", "sums", "Q", "1.5", "3", "0.5"],
        ["Three", "", "'=P", "0.0", "4", "0.0"],
        ["Three", "", "Q", "4.0", "4", "1.0"],
    ]
    said, rows = read(by="tag")
    assert said == 'attachment; filename="tagged-by-tag.csv"'
    assert rows[1:] == [
        ["easy", "1", "'=P", "3.0", "4", "0.75"],
        ["easy", "1", "Q", "1.0", "4", "0.25"],
        ["sums", "2", "'=P", "4.5", "7", "0.6429"],
        ["sums", "2", "Q", "2.5", "7", "0.3571"],
    ]
    assert [row[0] for row in read(tag="easy")[1][1:]] == ["One", "One"]
    assert [row[0] for row in read(tag="easy", by="tag")[1][1:]] == ["easy", "easy", "sums", "sums"]
    unknown = client.get(reverse("results_file", args=[experiment.pk]), {"tag": "hard"})
    assert (unknown.status_code, "hard is not one" in unknown.content.decode()) == (400, True)
    advance(experiment_id=experiment.pk)
    page = client.get(reverse("dashboard", args=[experiment.pk])).content.decode()
    assert "of 2 tags some differ by chance alone" in page
    table = page[page.index('id="tags-details"') :]
    assert '64% <small class="muted">of 7</small>' in table
    assert "=P 75%" in table


def test_a_file_says_so_where_it_cannot_be_filtered(client):
    user = make_user(is_superuser=True)
    client.force_login(user)
    experiment = start_from_votes(name="Tagged", votes=VOTES, by=user)
    Task.objects.filter(experiment=experiment).update(tags=["sums", "easy"])
    for name, query, words in (
        ("ranking_file", {"tag": "sums"}, "There is no ranking of one tag"),
        ("ranking_file", {"tag": "sums"}, "This experiment has easy, sums."),
        ("ranking_file", {"tag": "sums"}, "/results.csv?by=tag"),
        ("ranking_file", {"policy": "P1"}, "Unknown parameter: policy. There are none for this file."),
        ("results_file", {"policy": "P1"}, "Unknown parameter: policy. There are: by, tag."),
        ("results_file", {"by": "policy"}, "by= takes task or tag."),
        ("judgments_csv", {"tags": "sums", "by": "tag"}, "Unknown parameters: by, tags. There are: policy,"),
    ):
        ask = client.post if name == "judgments_csv" else client.get
        refused = ask(reverse(name, args=[experiment.pk], query=query))
        assert (refused.status_code, refused["Content-Type"]) == (400, "text/plain")
        assert words in refused.content.decode()
