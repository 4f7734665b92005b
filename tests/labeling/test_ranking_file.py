"""The ranking of the policies: on the command line and as a file."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from engine.importing import Vote, Winner
from engine.selectors import counts
from engine.services.past_votes import start_from_votes
from tests.arena import arena
from tests.factories import add_member, make_experiment, make_user

pytestmark = pytest.mark.django_db

VOTES = [vote for vote in arena(120, policies=4, tasks=3, ties=0.3) if vote.winner != Winner.TIE] * 3


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command(*map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


COLUMNS = ["policy", "strength", "low", "high", "comparisons", "standing"]


def test_the_ranking_as_csv_is_best_first(tmp_path):
    experiment = start_from_votes(name="Past", votes=VOTES)
    rows = list(csv.DictReader(run("ranking", "Past", "--format", "csv").splitlines()))
    assert list(rows[0]) == COLUMNS
    assert rows[0]["standing"] == "leads"
    assert {row["standing"] for row in rows} <= {"leads", "open", "ruled out"}
    assert {row["policy"] for row in rows} == {f"model-{n}" for n in range(4)}
    for row in rows:
        low, strength, high = (float(row[name]) for name in ("low", "strength", "high"))
        assert 0 <= low <= strength <= high <= 1
    assert sum(int(row["comparisons"]) for row in rows) == 2 * counts.comparison_count(experiment.pk)
    out = tmp_path / "ranking.csv"
    assert "4 policies in" in run("ranking", experiment.pk, "--format", "csv", "--out", out)
    assert list(csv.DictReader(out.read_text().splitlines())) == rows
    assert [line.split()[0] for line in run("ranking", "Past").splitlines()[1:]] == [
        row["policy"] for row in rows
    ]


def test_a_policy_named_like_a_formula_is_defused():
    start_from_votes(name="Past", votes=[Vote("line 2", "T", "=1+1", "Q", Winner.A)])
    assert run("ranking", "Past", "--format", "csv").splitlines()[1].startswith("'=1+1,")


def test_the_file_is_what_the_command_prints(client):
    experiment = make_experiment(name="Which is best?")
    viewer = make_user("vic")
    add_member(experiment, viewer, "viewer")
    client.force_login(viewer)
    file = client.get(reverse("ranking_file", args=[experiment.pk]))
    assert file["Content-Type"] == "text/csv; charset=utf-8"
    assert file["Content-Disposition"] == 'attachment; filename="which-is-best-ranking.csv"'
    assert file.content.decode() == run("ranking", experiment.pk, "--format", "csv")
