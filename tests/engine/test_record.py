"""The record of the judgments: a line each, a chain over them, and exports held against it."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
from django.core.management import CommandError
from django.urls import reverse

from engine.domain.judgment_record import COLUMNS, chained, line_digest
from engine.management.commands.verify import _rows
from engine.models import AuditEntry, Experiment, Judgment, User
from engine.models.append_only import lifted
from engine.selectors.browsing import Selection
from engine.selectors.record import Record, concluded_record, lines, record_of
from engine.selectors.verifying import differences_from, faults_of
from engine.services import serving
from engine.services.experiments import stop
from engine.services.forgetting import forget_person
from engine.services.judging import take_back_judgment
from engine.services.setting_changes import reopen
from engine.services.voids import restore_judgment, void_one
from labeling.exports.judgments import read_rows
from tests.accounts import logged_in
from tests.commands import run
from tests.factories import add_member, assign, click_on, make_experiment, make_user
from tests.labeling.exported import export

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def experiment(annotator: User, admin: User) -> Experiment:
    """Concluded after five answers: one voided, one restored, one taken back and given again."""
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 4)
    first, second = Judgment.objects.order_by("pk")[:2]
    void_one(judgment_id=first.pk, by=admin, reason="Spam")
    void_one(judgment_id=second.pk, by=admin, reason="Spam")
    restore_judgment(judgment_id=second.pk, by=admin)
    take_back_judgment(judgment_id=Judgment.objects.latest("pk").pk, annotator=annotator, watches=False)
    click_on(experiment, annotator, 2)
    stop(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    return experiment


@pytest.fixture(params=["csv", "jsonl"])
def file(request: pytest.FixtureRequest, experiment: Experiment, tmp_path: Path) -> Path:
    return export(experiment, tmp_path, "--all", kind=request.param)


def rows_of(file: Path) -> list[dict[str, str]]:
    if file.suffix == ".csv":
        with file.open(newline="") as opened:
            return list(csv.DictReader(opened))
    return [json.loads(line) for line in file.read_text().splitlines()]


def write(file: Path, rows: list[dict[str, str]]) -> None:
    with file.open("w", newline="") as opened:
        if file.suffix == ".csv":
            writer = csv.DictWriter(opened, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        else:
            opened.writelines(json.dumps(row) + "\n" for row in rows)


def test_a_line_and_the_chain_by_hand():
    line = line_digest("a", "1")
    assert line == hashlib.sha256(b'["a", "1"]').hexdigest()
    assert chained([]) == ""
    first = hashlib.sha256(line.encode()).hexdigest()
    assert chained([line]) == first
    assert chained([line, line]) == hashlib.sha256((first + line).encode()).hexdigest()


def test_the_conclusion_has_the_record_of_its_evidence(experiment):
    record = record_of(experiment)
    assert record == concluded_record(experiment)
    assert record.judgments == Judgment.objects.count()
    details = AuditEntry.objects.get(action="stop").details
    assert Record(details["judgments"], details["digest"]) == record


def test_the_rows_of_an_export_make_the_same_lines(experiment, file):
    """With the digest in PostgreSQL's own words too, where it writes the file."""
    rows = rows_of(file)
    said = [line_digest(*("" if row[name] is None else str(row[name]) for name in COLUMNS)) for row in rows]
    assert said == [row["line_digest"] for row in rows] == [digest for _, digest in lines(experiment)]
    manifest = json.loads(Path(f"{file}.manifest.json").read_text())["experiment"]
    assert manifest["record"] == manifest["record_at_conclusion"]
    assert manifest["record"] == {"judgments": len(rows), "digest": chained(said)}
    assert {row["void_kind"] or "" for row in rows} >= {"voided", ""}


def test_the_digest_of_a_row_is_the_same_in_python(experiment, file):
    column = list(rows_of(file)[0]).index("line_digest")
    made = [row[column] for row in read_rows(experiment, Selection())]
    assert made == [row["line_digest"] for row in rows_of(file)]


def test_a_file_as_it_was_agrees(experiment, file):
    assert "in order" in run("verify", experiment.pk, export=file)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows[2].update(choice="tie"), "Row 3, judgment"),
        (lambda rows: rows.pop(1), "Row 2 is judgment"),
        (lambda rows: rows.pop(), "The database has judgments after"),
        (lambda rows: rows.reverse(), "Row 1 is judgment"),
    ],
)
def test_the_first_row_that_differs_is_named(experiment, file, change, says):
    rows = rows_of(file)
    change(rows)
    write(file, rows)
    with pytest.raises(CommandError):
        run("verify", experiment.pk, export=file)
    assert next(iter(differences_from(experiment, _rows(file)))).startswith(says)


def test_whoever_changes_the_database_is_found_out(experiment, file, capsys):
    """With or without a file: the log has the chain's end."""
    third = Judgment.objects.order_by("pk")[2]
    with lifted():
        Judgment.objects.filter(pk=third.pk).update(choice="tie")
    with pytest.raises(CommandError):
        run("verify", experiment.pk)
    assert any("are not the" in fault and "conclusion" in fault for fault in faults_of(experiment))
    [first] = differences_from(experiment, _rows(file))
    assert first.startswith(f"Row 3, judgment {third.pk}, is not what the database says")


def test_an_experiment_and_a_file_of_judgments_must_be_named(experiment, tmp_path):
    make_experiment(name="Another")
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(CommandError, match="Name the one experiment"):
        run("verify", export=file)
    with pytest.raises(CommandError, match="no column line_digest"):
        run("verify", experiment.pk, export=file)


def test_to_forget_a_person_leaves_the_record(experiment, annotator, admin):
    make_user("second", is_superuser=True)
    forget_person(user_id=annotator.pk, by=None, blank_comments=True)
    forget_person(user_id=admin.pk, by=None)
    assert record_of(experiment) == concluded_record(experiment)


def test_a_click_after_the_end_is_no_part_of_it(annotator):
    """Nor one of a pair that was taken back, and comes after the end."""
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 2)
    taken_back = Judgment.objects.latest("pk")
    take_back_judgment(judgment_id=taken_back.pk, annotator=annotator, watches=False)
    held = assign(experiment, annotator)
    stop(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    before = record_of(experiment)
    assert serving.answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
    assert Judgment.objects.count() == 3
    assert record_of(experiment) == before == concluded_record(experiment)


def test_a_reopened_experiment_has_the_record_of_its_last_conclusion(experiment, annotator):
    first = concluded_record(experiment)
    reopen(experiment_id=experiment.pk, by=None, budget=4000)
    experiment.refresh_from_db()
    assert concluded_record(experiment) is None
    click_on(experiment, annotator, 1)
    stop(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert concluded_record(experiment) == record_of(experiment) != first


def test_the_report_shows_the_digest(experiment):
    viewer = make_user()
    add_member(experiment, viewer, "viewer")
    page = logged_in(viewer).get(reverse("report", args=[experiment.pk])).content.decode()
    assert f'data-digest="{record_of(experiment).digest}"' in page


def test_the_manifest_tells_the_voids_without_names(experiment, admin, tmp_path):
    file = export(experiment, tmp_path, "--all")
    manifest = json.loads(Path(f"{file}.manifest.json").read_text())["experiment"]
    [group] = manifest["voids"]["by_hand"]
    assert group["judgments"] == 1
    assert group["reasons"] == ["Spam"]
    assert group["by"].startswith("annotator-")
    assert group["by"] != group["of"]
    assert set(manifest["voids"]) == {"by_hand", "given", "without"}
