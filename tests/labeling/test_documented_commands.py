"""The commands that docs/votes.md and docs/export.md show, run as typed."""

import csv
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command

from engine.models import Experiment, User
from engine.selectors import counts
from engine.services.planning import advance
from tests.factories import click_on, make_experiment, make_user

pytestmark = pytest.mark.django_db
DOCUMENTS = Path(settings.BASE_DIR) / "docs"


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCUMENTS / document).read_text(), re.DOTALL)


def commands(block: str) -> Iterator[list[str]]:
    """The arguments of manage.py, line by line."""
    for line in block.splitlines():
        python, manage, *arguments = shlex.split(line, comments=True)
        assert (python, manage) == ("python", "manage.py"), line
        yield arguments


def test_past_votes_are_imported_and_ranked_as_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_user("ann")
    [file] = blocks("votes.md", "csv")
    Path("votes.csv").write_text(file, encoding="utf-8")
    [shown] = blocks("votes.md", "sh")
    for arguments in commands(shown):
        call_command(*arguments)
    experiment = Experiment.objects.get(name="Tone of voice")
    assert experiment.maker == User.objects.get(username="ann")
    advance(experiment_id=experiment.pk)
    assert counts.comparison_count(experiment.pk) == 2
    ranking = list(csv.DictReader(Path("ranking.csv").read_text().splitlines()))
    assert {row["policy"] for row in ranking} == {"Terse", "Warm", "Plain"}


def test_exports_are_made_as_the_document_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ann = make_user("ann")
    experiment = make_experiment(name="Counting", ready=True, annotators=(ann,))
    click_on(experiment, ann, 5)
    [shown] = blocks("export.md", "sh")
    for arguments in commands(shown):
        # The document says 3 where the number of one's own experiment goes.
        call_command(*[str(experiment.pk) if each == "3" else each for each in arguments])
    names = {each.name for each in tmp_path.iterdir()}
    assert len(names) == 8
    assert {f"{name}.manifest.json" for name in names if not name.endswith(".manifest.json")} <= names
