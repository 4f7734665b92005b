"""Every format of the export, the filter, the manifest, and the page that offers them."""

import csv
import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import override_settings
from django.urls import reverse

from engine.core import Design
from engine.importing.formula_cells import STARTS, as_it_was, defused
from engine.importing.votes import Vote, Winner
from engine.models import Experiment, Flag, Judgment, Response, User
from engine.models.append_only import lifted
from engine.selectors import counts
from engine.selectors.agreement import agreement_of_people
from engine.selectors.browsing import Selection
from engine.selectors.designs import shown
from engine.selectors.snapshots import latest_snapshot
from engine.services.evidence import settle
from engine.services.judging import void_judgment
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from engine.services.voids import restore_judgment
from labeling.exports import copying
from labeling.exports.files import Export, Tally
from labeling.exports.formats import csv_pieces, json_lines
from labeling.exports.judgments import COLUMNS, read_rows
from labeling.exports.people import pseudonym
from labeling.formatting import agreement_figures
from tests.downloads import ask
from tests.factories import add_member, click, make_experiment, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"
HOSTILE = [
    "=1+1",
    "-5",
    "-5\n",
    "+a|b",
    "@x",
    'say "yes", twice',
    "two\nlines\r\n",
    " spaces ",
    "naïve 🙂",
    "%d %s",
    "",
    "\\.",
]
# Every character that begins a formula, alone, in front of one, and behind apostrophes.
ATTACKS = sorted(
    {
        "'",
        "''",
        "'tis",
        "-1.5",
        "'-1.5",
        "''-1.5",
        "-1.5\n",
        "1\r2",
        "a\r\nb",
        "\\",
        "=a|b\\|c",
        '="',
        "\ufeff=1",
    }
    | {quotes + start + rest for start in STARTS for quotes in ("", "'", "''") for rest in ("", "=1+1", "x")}
    # A spreadsheet whose separator is a semicolon or a tab splits a cell there, and at its line breaks.
    | {
        f"yes{separator}{quotes}{dropped}{mark}1+1{separator}{mark}2"
        for separator in (";", "\t", "\n", "\r\n", ";;", "\n\n")
        for quotes in ("", "'", "''")
        for dropped in ("", " ", '"', '" \u00a0')
        for mark in "=+-@＝＋－＠"
    }
)


def content(response) -> bytes:
    assert response.status_code == 200
    return b"".join(response.streaming_content)


def get(client, name: str, experiment: Experiment, **query: str):
    return ask(client, name, experiment.pk, **query)


def csv_rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def json_rows(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in data.decode().splitlines()]


def annotators_of(experiment: Experiment) -> list[User]:
    judged = Judgment.objects.filter(comparison__experiment=experiment)
    return list(User.objects.filter(judgments__in=judged).distinct())


@pytest.fixture
def viewer_of_rich(rich) -> User:
    user = make_user()
    add_member(rich, user, "viewer")
    return user


@pytest.fixture
def annotator(db: None) -> User:
    """The annotator of ``rich``, where the tests of the class share it."""
    return User.objects.filter(username="ann").first() or make_user("ann")


@pytest.fixture
def admin(db: None) -> User:
    """The same person as voids judgments of ``rich``, where the tests of the class share it."""
    return User.objects.filter(username="admin").first() or make_user(
        "admin", is_staff=True, is_superuser=True
    )


@pytest.fixture
def rich(rich_once: int) -> Experiment:
    return Experiment.objects.get(pk=rich_once)


@pytest.fixture(scope="class")
def rich_once(shared_rows: None) -> int:
    """Judged by two people, with ties, hostile texts, a flag, a voided and a restored judgment."""
    annotator, other, admin = (
        make_user("ann"),
        make_user("-ben"),
        make_user("admin", is_staff=True, is_superuser=True),
    )
    # All planned and written at once: a random sampler does not care for what was judged before.
    with override_settings(BUFFER_MIN=18, BUFFER_MAX=18):
        experiment = make_experiment(
            name="Rich",
            ready=True,
            annotators=(annotator, other),
            allow_tie=True,
            sampler="random",
            n_tasks=12,
            delta=1e-6,
        )
    for number in range(14):
        click(experiment, (annotator, other)[number % 2], ("left", "right", "tie")[number % 3])
    # The tasks that were drawn follow from a secret. One with an answer that stands comes first, to get a
    # formula.
    last = Judgment.objects.latest("pk").comparison.task
    for number, task in enumerate([last, *experiment.tasks.exclude(pk=last.pk)]):
        task.prompt, task.reference = HOSTILE[number] or "x", HOSTILE[-number]
        task.save()
    for number, response in enumerate(Response.objects.order_by("pk")):
        response.text = HOSTILE[number % len(HOSTILE)]
        response.save()
    judgments = list(Judgment.objects.order_by("pk"))
    for judgment in judgments[:3]:
        void_judgment(judgment_id=judgment.pk, by=admin, reason="=A slip|")
    restore_judgment(judgment_id=judgments[0].pk)
    for reason in ("broken", "leak"):
        user = annotator if reason == "broken" else other
        Flag.objects.create(comparison=judgments[5].comparison, annotator=user, reason=reason)
    with lifted():
        Judgment.objects.filter(pk=judgments[6].pk).update(
            comment="-Hm", reason="|", shown_at=None, annotator=None
        )
    experiment.refresh_from_db()
    settle(experiment=experiment)
    return experiment.pk


class TestFormats:
    def test_csv_json_lines_and_parquet_hold_the_same_rows(self, rich, admin, client_for):
        client = client_for(admin)
        query = {"judgments": "", "raw": "1"}
        as_csv = csv_rows(content(get(client, "judgments_csv", rich, **query)))
        as_json = json_rows(content(get(client, "judgments_jsonl", rich, **query)))
        table = pq.read_table(io.BytesIO(content(get(client, "judgments_parquet", rich, **query))))
        assert len(as_csv) == len(as_json) == table.num_rows == 15
        assert list(as_csv[0]) == list(as_json[0]) == table.column_names == list(COLUMNS)
        for line, item, typed in zip(as_csv, as_json, table.to_pylist(), strict=True):
            for name, column in COLUMNS.items():
                kind, value = column.kind, item[name]
                if kind in {"integer", "number"}:
                    assert (float(line[name]) if line[name] else None) == value == typed[name], name
                elif kind == "time":
                    assert line[name] == (value or ""), name
                    assert (typed[name] and typed[name].isoformat(timespec="microseconds")) == value, name
                elif kind == "truth":
                    assert line[name] == str(value) == str(typed[name]), name
                else:
                    assert line[name] == value == typed[name], name

    @pytest.mark.postgres_only
    @pytest.mark.parametrize("many", [0, 50_000])
    @pytest.mark.parametrize("raw", [False, True])
    @pytest.mark.parametrize("usernames", [False, True])
    def test_what_postgresql_writes_is_what_python_writes(self, usernames, raw, many, rich, monkeypatch):
        assert connection.vendor == "postgresql"
        monkeypatch.setattr(copying, "_MANY", many)
        tally = Tally()
        options = {"raw": raw, "usernames": usernames}
        export = Export(experiment=rich, format="csv", selection=Selection(), filter={}, **options)
        copied = b"".join(export.pieces(tally))
        written = b"".join(csv_pieces(read_rows(rich, Selection(), usernames=usernames), raw=raw))
        assert copied.split(b"\n")[0] == written.split(b"\n")[0]
        for theirs, ours in zip(csv_rows(copied), csv_rows(written), strict=True):
            for name, column in COLUMNS.items():
                # A small number may be written with an exponent or without.
                value = float if column.kind == "number" and ours[name] else str
                assert value(theirs[name]) == value(ours[name]), name
        assert tally.rows == 15

    def test_void_and_restored_rows_say_so(self, rich, admin, client_for):
        query = {"judgments": "", "usernames": "1"}
        rows = json_rows(content(get(client_for(admin), "judgments_jsonl", rich, **query)))
        assert [row["voided"] for row in rows] == [True] * 3 + [False] * 12
        assert {(row["voided_by"], row["void_reason"]) for row in rows[:3]} == {("admin", "=A slip|")}
        assert rows[-1]["restores"] == rows[0]["judgment_id"]
        assert {row["restores"] for row in rows[:-1]} == {None}

    def test_the_propensity_is_there_where_the_sampler_draws(self, rich, admin, client_for):
        rows = json_rows(content(get(client_for(admin), "judgments_jsonl", rich)))
        assert {row["propensity"] for row in rows} == {1 / 3}

    def test_flags_tokens_and_seconds_are_there(self, rich, admin, client_for):
        rows = json_rows(content(get(client_for(admin), "judgments_jsonl", rich, judgments="")))
        assert [row["flags"] for row in rows if row["flags"]] == ["broken leak"]
        judgment = Judgment.objects.get(pk=rows[4]["judgment_id"])
        response = judgment.comparison.response_i
        assert rows[4]["seconds"] == judgment.seconds
        assert rows[4]["completion_tokens_i"] == response.completion_tokens
        assert rows[4]["seed_i"] == response.seed
        assert rows[4]["response_i_id"] == response.pk

    def test_formulas_are_defused_unless_raw_is_asked_for(self, rich, admin, client_for):
        client = client_for(admin)
        raw = csv_rows(content(get(client, "judgments_csv", rich, usernames="1", raw="1")))
        safe = csv_rows(content(get(client, "judgments_csv", rich, usernames="1")))
        assert any(row["task"].startswith("=") for row in raw)
        assert {row["annotator"] for row in raw} == {"ann", "-ben", ""}
        assert {row["annotator"] for row in safe} == {"ann", "'-ben", ""}
        for row in safe:
            cells = [cell for name, cell in row.items() if COLUMNS[name].kind == "text" and cell]
            assert all(cell[0] not in "@+=|% \t\r\n＝＋－＠" for cell in cells)


class TestAttacks:
    """CSV cells that a spreadsheet would run.
    Leading whitespace and full-width signs used to slip through.
    """

    @pytest.fixture
    def attacked(self, annotator) -> Experiment:
        """A judgment for each attack, which is its comment."""
        experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=1)
        task = experiment.tasks.get()
        task.prompt, task.reference = "＝1+1", "\r=1"
        task.save()
        comparison = click(experiment, annotator).comparison
        Judgment.objects.bulk_create(
            Judgment(
                comparison=comparison, judge="rule", via="rule", choice="left", outcome=1.0, comment=text
            )
            for text in ATTACKS
        )
        return experiment

    def test_every_text_survives_being_defused_and_turned_back(self):
        for text in ATTACKS:
            assert as_it_was(defused(text)) == text
            assert defused(text)[:1] not in STARTS or re.fullmatch("-?[0-9.,]+", text)
        assert len({defused(text) for text in ATTACKS}) == len(ATTACKS)

    def test_nothing_is_run_by_a_spreadsheet_that_splits_a_line_elsewhere(self):
        """One whose separator is a semicolon ran what stood behind it, and behind a line break."""
        for text in ATTACKS:
            file = io.StringIO()
            csv.writer(file).writerow(["a task", defused(text), "left"])
            _, *cells = re.split("[;\t\r\n]", file.getvalue())
            for cell in cells:
                assert cell.strip(' "\u00a0\ufeff\v\f')[:1] not in set("=+-@＝＋－＠")

    def test_numbers_and_plain_texts_stay_as_they_are(self):
        for text in ("-5", "-1,000.5", "7", "'tis", "''", "a=b", "A | B", "a; b", "a\n\nb", "-", ""):
            assert defused(text) == (f"'{text}" if text == "-" else text)

    @pytest.mark.parametrize("raw", [False, True])
    def test_a_file_is_read_back_exactly(self, raw, attacked, tmp_path):
        file = tmp_path / "judgments.csv"
        export = Export(experiment=attacked, format="csv", selection=Selection(), filter={}, raw=raw)
        file.write_bytes(b"".join(export.pieces(Tally())))
        read = str if raw else as_it_was
        rows = [{name: read(cell) for name, cell in row.items()} for row in csv_rows(file.read_bytes())]
        assert [row["comment"] for row in rows] == ["", *ATTACKS]
        assert {(row["task"], row["reference"]) for row in rows} == {("＝1+1", "\r=1")}
        cells = [row["comment"] for row in csv_rows(file.read_bytes())]
        assert cells[1:] == [text if raw else defused(text) for text in ATTACKS]

    @pytest.mark.postgres_only
    @pytest.mark.parametrize("raw", [False, True])
    def test_postgresql_writes_the_same_bytes_as_python(self, raw, attacked):
        """A lone carriage return, which Python leaves unquoted, ends the row for many readers."""
        export = Export(experiment=attacked, format="csv", selection=Selection(), filter={}, raw=raw)
        written = b"".join(csv_pieces(read_rows(attacked, Selection()), raw=raw))
        assert b"".join(export.pieces(Tally())) == written


class TestPeople:
    """User names leave the house only when an owner asks for them, and the log says so."""

    def names(self, client, experiment, kind: str, **query: str) -> list[str]:
        data = content(get(client, f"judgments_{kind}", experiment, judgments="", **query))
        if kind == "parquet":
            return [row["annotator"] for row in pq.read_table(io.BytesIO(data)).to_pylist()]
        return [row["annotator"] for row in (csv_rows if kind == "csv" else json_rows)(data)]

    def test_pseudonyms_by_default_and_the_same_in_every_format(self, rich, viewer_of_rich, client_for):
        client = client_for(viewer_of_rich)
        as_csv, as_json, as_parquet = (self.names(client, rich, kind) for kind in ("csv", "jsonl", "parquet"))
        assert as_csv == as_json == as_parquet == self.names(client, rich, "csv")
        assert set(as_csv) == {"", *(pseudonym(rich, user.pk) for user in annotators_of(rich))}
        assert all(re.fullmatch("annotator-[0-9a-f]{12}", name) for name in set(as_csv) - {""})

    def test_no_column_and_no_manifest_holds_a_user_name(self, rich, viewer_of_rich, client_for):
        User.objects.filter(username="ann").update(username="ann.of.kiel")
        User.objects.filter(username="admin").update(username="the.boss")
        for name in ("judgments_csv", "judgments_jsonl", "judgments_parquet", "dpo_jsonl"):
            query = {"judgments": "", "annotator": "ann.of.kiel", "zip": "1"}
            archive = zipfile.ZipFile(
                io.BytesIO(content(get(client_for(viewer_of_rich), name, rich, **query)))
            )
            for part in archive.namelist():
                assert b"ann.of.kiel" not in archive.read(part), part
                assert b"the.boss" not in archive.read(part), part
            manifest = json.loads(archive.read(archive.namelist()[1]))
            assert manifest["people"] == "pseudonyms"
            assert manifest["filter"]["annotator"].startswith("annotator-")

    def test_who_knows_all_accounts_but_not_the_key_cannot_tell(self, rich, settings):
        [user, *_] = annotators_of(rich)
        before = pseudonym(rich, user.pk)
        assert pseudonym(make_experiment(), user.pk) != before, "two experiments cannot be put together"
        settings.SECRET_KEY = "another key, which is as long as it has to be"
        assert pseudonym(rich, user.pk) != before

    @pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
    def test_an_owner_gets_user_names_and_the_log_says_so(self, kind, rich, client_for):
        owner = make_user()
        add_member(rich, owner, "owner")
        assert set(self.names(client_for(owner), rich, kind, usernames="1", raw="1")) == {"ann", "-ben", ""}
        entry = rich.audit_entries.filter(action="export").latest("pk")
        assert entry.by == owner
        assert entry.details["usernames"] is True
        assert entry.text == f"Exported judgments as {kind} (all), with usernames."

    def test_the_log_of_a_filtered_export_holds_nobodys_name(self, rich, admin, client_for):
        get(client_for(admin), "judgments_csv", rich, annotator="ann")
        entry = rich.audit_entries.filter(action="export").latest("pk")
        assert "ann" not in str(entry.details | {"sentence": entry.sentence}).replace("annotator", "")
        assert entry.text == "Exported judgments as csv (annotator ann, judgments standing)."


class TestDpo:
    def pairs(self, experiment, client, **query) -> list[dict[str, object]]:
        return json_rows(content(get(client, "dpo_jsonl", experiment, **query)))

    def test_each_two_texts_are_one_row_by_majority_of_any_author(self, tmp_path):
        """Of 2,231 rows of a real export, 389 were distinct, and some were each other's opposite."""
        votes = [
            ("P", "Q", "Red", "Blue", "a"),
            ("Q", "P", "Blue", "Red", "a"),
            ("P", "Q", "Red", "Blue", "a"),
            ("P", "Q", "Red", "Blue", "tie"),
            ("R", "Q", "Red ", "Green", "b"),
            ("R", "P", "Green", "Blue", "a"),
            ("R", "P", "Green", "Blue", "b"),
            ("P", "Q", "Red", "", "a"),
            ("P", "R", "Red", "Red", "a"),
        ]
        experiment = start_from_votes(
            name="Texts",
            votes=[
                Vote(f"row {n}", "T", a, b, Winner(winner), response_a=text_a, response_b=text_b)
                for n, (a, b, text_a, text_b, winner) in enumerate(votes)
            ],
        )

        def rows(kind: str, *options: str) -> list[dict[str, object]]:
            file = tmp_path / kind
            call_command("export", str(experiment.pk), "--format", kind, "--out", str(file), *options)
            return json_rows(file.read_bytes())

        assert rows("dpo") == [
            {"prompt": "T", "chosen": "Red", "rejected": "Blue", "margin": 0.25, "comparisons": 4},
            {"prompt": "T", "chosen": "Green", "rejected": "Red ", "margin": 1.0, "comparisons": 1},
        ]
        assert rows("reward")[0] == {"chosen": "T\n\nRed", "rejected": "T\n\nBlue", "margin": 0.25}
        assert rows("reward", "--conversational")[1]["chosen"] == [
            {"role": "user", "content": "T"},
            {"role": "assistant", "content": "Green"},
        ]
        # Red is chosen once more than rejected over all its pairs, by the empty text too.
        assert {(row["completion"], row["label"]) for row in rows("kto")} == {
            ("Red", True),
            ("Blue", False),
            ("Green", True),
        }

    def test_of_what_was_voided_there_is_no_pair(self, experiment, annotator, admin, client_for):
        judgment = click(experiment, annotator)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        assert self.pairs(experiment, client_for(admin), judgments="") == []


class TestFilter:
    def ids(self, rich, client, **query: str) -> set[int]:
        rows = json_rows(content(get(client, "judgments_jsonl", rich, **query)))
        return {row["judgment_id"] for row in rows}

    def test_each_field_leaves_what_it_says(self, rich, admin, client_for):
        client = client_for(admin)
        judgments = {j.pk: j for j in Judgment.objects.select_related("comparison")}
        standing = set(counts.standing_judgments(rich.pk).values_list("pk", flat=True))
        policies = {p.label: p.pk for p in rich.policies.all()}

        def expected(condition) -> set[int]:
            return {pk for pk in standing if condition(judgments[pk])}

        def sides(j) -> set[int]:
            return {j.comparison.policy_i_id, j.comparison.policy_j_id}

        p1, p2 = policies["P1"], policies["P2"]
        cases = {
            (): lambda j: True,
            (("policy", "P1"),): lambda j: p1 in sides(j),
            (("policy", "P2"), ("against", "P1")): lambda j: sides(j) == {p1, p2},
            (("winner", "P1"),): lambda j: (
                j.comparison.outcome is not None
                and {j.comparison.policy_i_id: 1.0, j.comparison.policy_j_id: 0.0}.get(p1)
                == j.comparison.outcome
            ),
            (("annotator", "-ben"),): lambda j: j.annotator is not None and j.annotator.username == "-ben",
            (("choice", "tie"),): lambda j: j.choice == "tie",
            (("judge", "rule"),): lambda j: False,
            (("flag", "any"),): lambda j: j.comparison.flags.exists(),
            (("flag", "task"),): lambda j: False,
            (("state", "judged"),): lambda j: j.comparison.state == "judged",
            (("text", "NAÏVE"),): lambda j: (
                connection.vendor == "postgresql"
                and "naïve 🙂"
                in {j.comparison.task.prompt, j.comparison.response_i.text, j.comparison.response_j.text}
            ),
            (("text", "YES"),): lambda j: (
                'say "yes", twice'
                in {j.comparison.task.prompt, j.comparison.response_i.text, j.comparison.response_j.text}
            ),
        }  # fmt: skip
        for query, condition in cases.items():
            if connection.vendor == "sqlite" and dict(query).get("text") == "NAÏVE":
                continue  # SQLite knows capitals of ASCII only
            assert self.ids(rich, client, **dict(query)) == expected(condition), query

    def test_a_filter_that_leaves_nothing_leaves_the_heading(self, rich, admin, client_for):
        """On PostgreSQL the download broke off, where Django knew the answer without asking."""
        client = client_for(admin)
        assert csv_rows(content(get(client, "judgments_csv", rich, text="nowhere"))) == []
        assert content(get(client, "judgments_csv", rich, text="nowhere")).startswith(b"judgment_id,")
        assert self.ids(rich, client, text="nowhere") == set()

    @pytest.mark.parametrize(
        "query", [{"policy": "P9"}, {"annotator": "nobody"}, {"judgments": "x"}, {"text": "x" * 201}]
    )
    def test_what_cannot_be_is_refused(self, query, rich, admin, client_for):
        client = client_for(admin)
        for name in ("judgments_csv", "judgments_jsonl", "judgments_parquet", "dpo_jsonl", "export"):
            assert get(client, name, rich, **query).status_code == 400


class TestManifest:
    def test_the_zip_holds_the_file_and_a_manifest_that_fits_it(self, rich, admin, client_for):
        query = {"zip": "1", "annotator": "ann", "usernames": "1"}
        response = get(client_for(admin), "judgments_csv", rich, **query)
        assert response["Content-Type"] == "application/zip"
        assert response["Content-Disposition"] == 'attachment; filename="rich-judgments.csv.zip"'
        archive = zipfile.ZipFile(io.BytesIO(content(response)))
        assert archive.namelist() == ["rich-judgments.csv", "rich-judgments.csv.manifest.json"]
        data = archive.read("rich-judgments.csv")
        manifest = json.loads(archive.read("rich-judgments.csv.manifest.json"))
        assert manifest["sha256"] == hashlib.sha256(data).hexdigest()
        assert manifest["bytes"] == len(data)
        assert manifest["rows"] == len(csv_rows(data)) > 0
        assert manifest["filter"] == {"judgments": "standing", "annotator": "ann"}
        assert manifest["experiment"]["agreement"] == agreement_figures(agreement_of_people(rich))
        assert manifest["versions"]["schema"] == 2
        assert manifest["versions"]["database"].startswith("0")
        assert manifest["experiment"]["spec"]["settings"]["delta"] == rich.delta
        assert manifest["experiment"]["evidence"] == latest_snapshot(rich).evidence

    def test_evidence_that_is_being_recomputed_is_left_out(self, rich, admin, client_for):
        """Stale evidence is not that of the rows."""
        Experiment.objects.filter(pk=rich.pk).update(evidence_stale=True)
        archive = zipfile.ZipFile(io.BytesIO(content(get(client_for(admin), "judgments_csv", rich, zip="1"))))
        manifest = json.loads(archive.read("rich-judgments.csv.manifest.json"))
        assert manifest["experiment"]["evidence"] is None


class TestPage:
    def test_it_counts_before_the_download(self, rich, admin, client_for):
        client = client_for(admin)
        page = get(client, "export", rich).content.decode()
        assert '<dd id="judgments">12</dd>' in page
        page = get(client, "export", rich, judgments="", annotator="ann", raw="1").content.decode()
        n = Judgment.objects.filter(annotator__username="ann").count()
        assert f'<dd id="judgments">{n}</dd>' in page
        assert f"{reverse('judgments_csv', args=[rich.pk])}?judgments=&amp;annotator=ann&amp;raw=1" in page


def test_json_lines_are_lines_for_programs_that_know_the_ends_of_unicode():
    """httpx among them: it broke a row at each of these characters."""
    text = "One\u2028two\u2029three\x85four\x0b\x1c\r\nfive 🙂"
    pieces = b"".join(json_lines([{"a": text}, {"a": "x"}]))
    assert [json.loads(line)["a"] for line in pieces.decode().splitlines()] == [text, "x"]
    assert "🙂" in pieces.decode()


def test_the_document_has_the_table_of_columns():
    # The twin of a column about the first policy needs no line.
    told = [column for name, column in COLUMNS.items() if "_j" not in name]
    table = [f"| `{column.name}` | {column.kind} | {column.says} |" for column in told]
    lines = DOCUMENT.read_text().partition("## Columns")[2].splitlines()
    documented = [line for line in lines if line.startswith("| `")]
    assert documented == table, "\n".join(["Put this table into docs/export.md:", *table])


@pytest.mark.usefixtures("late_planner")
def test_an_answer_of_the_last_moment_has_its_outcome(annotator, admin_client):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click(experiment, annotator)
    export = admin_client.post(reverse("judgments_csv", args=[experiment.pk])).getvalue().decode()
    assert [row["outcome"] for row in csv.DictReader(io.StringIO(export))] in (["1.0"], ["0.0"])
    assert experiment.comparisons.filter(outcome__isnull=False).count() == 1


def test_the_core_reads_the_file_as_it_is(annotator, admin_client):
    """Columns of other names, and a claim of one's own, were asked for by two who tried it."""
    experiment = make_experiment(ready=True, annotators=(annotator,), epsilon=0.1, delta=0.2)
    for choice in ("left", "right", "left"):
        click(experiment, annotator, choice)
    advance(experiment_id=experiment.pk)
    export = admin_client.post(reverse("judgments_csv", args=[experiment.pk])).getvalue().decode()
    design = Design.from_dataframe(pd.read_csv(io.StringIO(export)), labels=["P1", "P2", "P3"])
    ours = shown(experiment).design
    assert np.array_equal(design.wins, ours.wins)
    assert (design.n_comparisons, design.delta, design.epsilon, design.claim) == (3, 0.2, 0.1, ours.claim)
