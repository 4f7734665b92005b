"""Workbooks, shards and archives: all rows come through, and no file unpacks to more than is allowed."""

from __future__ import annotations

import base64
import bz2
import dataclasses
import errno
import gzip
import io
import json
import math
import random
import re
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
from django.core.management import CommandError, call_command
from openpyxl.cell.read_only import EmptyCell
from openpyxl.worksheet._reader import WorkSheetParser

from engine.domain import limits
from engine.domain.conversations import Message
from engine.importing.items import as_typed, read_responses, read_tasks
from engine.importing.mapping import parse_columns
from engine.importing.parquet import _READ_IT_ALL
from engine.importing.rows import Fault, ImportingError
from engine.importing.sources import Source, source_at, source_of, tables_in
from engine.importing.votes.reading import read_votes
from engine.importing.warnings import warnings_of_tasks
from engine.management.mapping import REMEDIES
from engine.models import Experiment

MOST = limits.Limit("bytes", 200_000, "A test.", "Give less.")


def source(data: bytes, sheet: str = "") -> Source:
    return source_of([("given", io.BytesIO(data))], MOST, sheet)


def workbook(*sheets: list[list[Any]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets, 1):
        page = book.create_sheet(f"Sheet {number}")
        for row in rows:
            page.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def archive(files: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return file.getvalue()


def shard(*records: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(pa.Table.from_pylist([dict(each) for each in records]), file)
    return file.getvalue()


SQUAD = [
    {"context": "Two cats.", "question": "How many?", "answers": {"text": ["2", "two"], "answer_start": [0]}},
    {"context": "A dog.", "question": "And how old?", "answers": {"text": [], "answer_start": []}},
]  # fmt: skip
DATA_SET = {
    "README.md": b"# About",
    "dataset_infos.json": b"{}",
    "data/train-00000-of-00002.parquet": shard(SQUAD[0]),
    "data/train-00001-of-00002.parquet": shard(SQUAD[1]),
}


def told(given: Source) -> list[tuple[str, str, str]]:
    return [(task.prompt, task.reference, task.variables["context"]) for task in read_tasks(given)]


AS_TOLD = [("How many?", "2", "Two cats."), ("And how old?", "", "A dog.")]


def test_a_workbooks_cells_are_what_csv_would_hold():
    rows = [
        [],
        ["Question", "Answer", "Tags", "Customer", "Since"],
        ["1 + 1?", 2, "sums; easy", "Ann", datetime(2026, 1, 2, 3, 4)],
        [None, None, None, None, None],
        ["Is it?", True, None, 7.5, None],
    ]
    first, second = read_tasks(source(workbook(rows, [["other"], ["no"]])))
    assert (first.prompt, first.reference, first.tags) == ("1 + 1?", "2", ("sums", "easy"))
    assert first.variables == {"customer": "Ann", "since": "2026-01-02T03:04:00"}
    assert (second.prompt, second.reference, second.variables["customer"]) == ("Is it?", "true", "7.5")


def test_a_workbook_holds_responses_and_votes_and_another_sheet_is_read_by_its_name():
    votes = [["task", "policy_a", "policy_b", "winner"], ["T", "P", "Q", "a"]]
    wide = [["q", "GPT 4", "Claude"], ["One?", 1, "one"]]
    book = workbook(votes, wide)
    [vote] = read_votes(source(book)).votes
    assert (vote.task, vote.policy_a, vote.winner) == ("T", "P", "a")
    columns = parse_columns(["q=task", "GPT 4=response", "Claude=response"])
    answers = read_responses(source(book, "Sheet 2"), columns)
    assert [(r.policy, r.response) for r in answers.responses] == [("GPT 4", "1"), ("Claude", "one")]
    with pytest.raises(ImportingError, match=r"There is no sheet 'Votes'\. Found: Sheet 1, Sheet 2"):
        read_votes(source(book, "Votes"))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["task", "Task"], ["a", "b"]], "row 1: 2 columns are named 'task'"),
        ([["task"], ["a", "b"]], "row 2: A cell stands right of the last column"),
        ([[f"c{n}" for n in range(401)], ["a"]], "row 1: 401 columns of one table; the limit is 400"),
    ],
)
def test_a_workbook_that_is_no_table_is_refused_with_the_row(rows, words):
    with pytest.raises(ImportingError, match=words):
        read_tasks(source(workbook(rows)))


def test_shards_are_one_table_in_a_folder_by_a_pattern_and_in_an_archive(tmp_path: Path):
    for name, data in DATA_SET.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert told(source_at(tmp_path, MOST)) == AS_TOLD
    assert told(source_at(tmp_path / "data" / "train-*", MOST)) == AS_TOLD
    assert told(source(archive({f"squad/{name}": data for name, data in DATA_SET.items()}))) == AS_TOLD
    numbered = [tmp_path / f"{number}.jsonl" for number in (0, 2, 10, 21)]
    for file in numbered:
        file.write_text(json.dumps(file.stem))
    of_pattern = source_at(tmp_path / "*.jsonl", MOST)
    assert [name for name, _ in of_pattern.parts] == [file.name for file in numbered]
    for file in numbered:
        file.unlink()
    (tmp_path / "data" / "test-00000-of-00001.parquet").write_bytes(shard(SQUAD[0]))
    with pytest.raises(ImportingError, match=r"2 tables or splits here: data/test-0.*, data/train-0"):
        source_at(tmp_path, MOST)
    with pytest.raises(ImportingError, match=r"2 tables or splits.* number them as votes-0-of-2\."):
        # As DuckDB writes them.
        source(archive({"data_0.parquet": b"", "data_1.parquet": b""}))
    with pytest.raises(ImportingError, match="There is no table here"):
        source(archive({"README.md": b"", "__MACOSX/data/a.csv": b"task"}))


def saved(*batches: pa.RecordBatch, as_file: bool = False, **options: Any) -> bytes:
    """An Arrow stream, as `datasets` 5.2.0 writes it with `save_to_disk`, or an Arrow file."""
    file = io.BytesIO()
    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    with new(file, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return file.getvalue()


def as_parquet(batch: pa.RecordBatch) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(pa.Table.from_batches([batch]), file)
    return file.getvalue()


def test_a_saved_data_set_is_read_from_its_folder_split_by_split(tmp_path: Path):
    batches = pa.Table.from_pylist(SQUAD).to_batches(max_chunksize=1)
    about = {"dataset_info.json": b"{}", "state.json": b"{}", "cache-1f.arrow": b"not read"}
    files = about | {
        "data-00000-of-00002.arrow": saved(batches[0]),
        "data-00001-of-00002.arrow": saved(batches[1], as_file=True),
    }
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        for name, data in files.items():
            (tmp_path / split / name).write_bytes(data)
    (tmp_path / "dataset_dict.json").write_bytes(b'{"splits": ["train", "test"]}')
    assert told(source_at(tmp_path / "train", MOST)) == AS_TOLD
    assert told(source(archive({f"train/{name}": data for name, data in files.items()}))) == AS_TOLD
    with pytest.raises(ImportingError, match=r"2 tables or splits here: test/data-0.*, train/data-0"):
        source_at(tmp_path, MOST)


def labelled(numbers: Sequence[int | None], labels: Sequence[str] = ("tie", "b", "a")) -> pa.RecordBatch:
    """Votes whose winner is a ClassLabel, as `datasets` 5.2.0 writes it to Parquet and to Arrow."""
    features = {"task": {"dtype": "string", "_type": "Value"}}
    features |= {"winner": {"names": labels, "_type": "ClassLabel"}}
    batch = pa.RecordBatch.from_pylist([VOTE | {"winner": number} for number in numbers])
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    return batch.replace_schema_metadata(about)


@pytest.mark.parametrize("written", [saved, as_parquet])
def test_a_label_of_datasets_is_read_and_not_its_number(written):
    """The number 1 would be read as a, and 2 as b."""
    votes = read_votes(source(written(labelled([2, 0, 1])))).votes
    assert [vote.winner for vote in votes] == ["a", "tie", "b"]


TURNS = {"role": ["system", "user"], "content": ["Be brief.", "One?"]}
ANSWERED = [{"role": ["user", "assistant"], "content": ["One?", each]} for each in ("1", "one")]


def in_json(batch: pa.RecordBatch) -> bytes:
    return json.dumps(batch.to_pylist()).encode()


@pytest.mark.parametrize("name", ["messages", "prompt"])
@pytest.mark.parametrize("written", [saved, as_parquet, in_json])
def test_roles_and_contents_in_two_lists_are_a_conversation(written, name):
    """`datasets` stores a list of objects so."""
    [task] = read_tasks(source(written(pa.RecordBatch.from_pylist([{name: TURNS}]))))
    assert task.messages == (Message("system", "Be brief."), Message("user", "One?"))
    vote = {"model_a": "P", "model_b": "Q", "winner": "a"}
    conversations = dict(zip(("conversation_a", "conversation_b"), ANSWERED, strict=True))
    [read] = read_votes(source(written(pa.RecordBatch.from_pylist([vote | conversations])))).votes
    assert (read.task, read.response_a, read.response_b) == ("One?", "1", "one")


def test_lists_of_several_lengths_are_no_conversation():
    with pytest.raises(ImportingError, match=r"^line 1: prompt "):
        read_tasks('{"prompt": {"role": ["user"], "content": []}}')


def test_a_label_that_is_missing_is_no_answer():
    with pytest.raises(ImportingError) as refused:
        read_votes(source(saved(labelled([1, None, -1, 3]))))
    assert [fault.place for fault in refused.value.faults] == ["row 2, row 3", "row 4"]


def test_a_long_label_counts_in_each_row():
    """The file has it once."""
    with pytest.raises(ImportingError, match=r"larger than 0\.2 MB"):
        read_votes(source(saved(labelled([0] * 300, ["a" * 1000]))))


@pytest.mark.parametrize(
    "about",
    ["no JSON", "[]", '{"info": {"features": []}}', '{"info": {"features": {"winner": {"names": 1}}}}'],
)
def test_what_another_program_writes_about_a_column_is_no_label(about):
    batch = pa.RecordBatch.from_pylist([VOTE | {"winner": 1}]).replace_schema_metadata({"huggingface": about})
    assert read_votes(source(saved(batch))).votes[0].winner == "a"


def test_arrow_gives_each_row_its_number_and_all_plain_values():
    rows = [{"q": "A", "n": n, "at": datetime(2026, 1, 2), "none": None, "Tags": ["x"]} for n in range(1001)]
    given = source(saved(pa.RecordBatch.from_pylist(rows[:3]), pa.RecordBatch.from_pylist(rows[3:])))
    *_, last = given.rows()
    assert (last.place, last.heading) == ("row 1001", ["q", "n", "at", "none", "Tags"])
    assert last.fields == {"q": "A", "n": 1000, "at": "2026-01-02T00:00:00", "none": None, "tags": ["x"]}


def test_values_that_are_no_texts_are_left_out_on_the_page_as_on_the_command_line():
    file = io.BytesIO()
    columns = {"task": ["One?"], "picture": [b"\xff"], "took": [timedelta(seconds=5)]}
    pa.parquet.write_table(pa.table(columns), file)
    given = source(file.getvalue())
    for each in (given, as_typed(given)):
        [task] = read_tasks(each)
        assert task.variables == {}
        [warning] = warnings_of_tasks([task], each)
        assert warning.startswith("2 columns left out: 'picture', 'took'.")


def test_parquet_gives_times_and_exact_numbers_as_texts_and_nan_as_nothing():
    columns = {"task": ["One?", "Two?"], "price": [Decimal("1.50"), None], "share": [math.nan, 0.5]}
    columns |= {"day": [date(2026, 1, 2), None], "at": [datetime(2026, 1, 2, 3, 4, tzinfo=UTC), None]}
    table = pa.table({name: pa.array(values, from_pandas=False) for name, values in columns.items()})
    file = io.BytesIO()
    pa.parquet.write_table(table, file)
    first, second = read_tasks(source(file.getvalue()))
    assert first.variables == {"price": "1.50", "day": "2026-01-02", "at": "2026-01-02T03:04:00+00:00"}
    assert second.variables == {"share": "0.5"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99),
            r"an old workbook \(\.xls\).*Save it as CSV or XLSX",
        ),
        (b"%PDF-1.4\n\x80", "a PDF"),
        (bz2.compress(b"task\nOne?\n"), "a bzip2 archive"),
        (
            archive({"mimetype": b"", "content.xml": b"<x/>"}),
            "given: This is a document of an office program, and no XLSX. Save",
        ),
        (
            archive({"[Content_Types].xml": b"", "xl/workbook.bin": b""}),
            "given: This is a document of an office",
        ),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_name(data, words):
    with pytest.raises(ImportingError, match=words):
        read_tasks(source(data))


VOTE = {"task": "T", "policy_a": "P", "policy_b": "Q", "winner": "a"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"votes": [VOTE, VOTE], "version": "1.0"}),
        json.dumps({"columns": list(VOTE), "index": [0, 1], "data": [list(VOTE.values())] * 2}),
        json.dumps({name: {"0": value, "1": value} for name, value in VOTE.items()}),
        "task|policy_a|policy_b|winner\n" + "T|P|Q|a\n" * 2,
        "sep=|\ntask|policy_a|policy_b|winner\n" + "T|P|Q|a\n" * 2,
        json.dumps(
            {"task": "T", "generator_1": "P", "generator_2": "Q", "preference": 1.0} | {"votes": [{}]}
        ),
    ],
)
def test_tables_are_read_however_programs_write_them(text):
    votes = read_votes(source(text.encode())).votes
    assert {(v.task, v.policy_a, v.policy_b, v.winner) for v in votes} == {("T", "P", "Q", "a")}
    assert len(votes) == 2 - ("generator_1" in text)


@pytest.mark.parametrize(
    "document",
    [
        {"columns": list(VOTE), "data": [[*VOTE.values(), "one more"]]},
        {name: {"0": value, "x": value} for name, value in VOTE.items()},
        {name: {"0": value} for name, value in VOTE.items()} | {"response_a": {}},
    ],
)
def test_no_cell_of_an_odd_table_is_dropped(document):
    with pytest.raises(ImportingError):
        read_votes(source(json.dumps(document).encode()))


def test_an_open_quotation_mark_is_told_where_its_row_begins():
    with pytest.raises(ImportingError, match="line 3: A quotation mark in this row is not closed"):
        read_tasks(source(b'task,answer\nOne?,1\n"Two?,2\nThree?,3\n'))


def test_a_name_that_ends_like_a_fraction_is_a_name():
    rows = [VOTE | {"policy_a": "gpt-4.0", "policy_b": "gpt-4", "winner": "gpt-4.0"}]
    rows += [VOTE | {"policy_a": "2.0", "policy_b": "x", "winner": "2.0"}, VOTE | {"winner": 2.0}]
    found = read_votes(source("\n".join(map(json.dumps, rows)).encode())).votes
    assert [vote.winner for vote in found] == ["a", "a", "b"]


def test_a_workbook_without_rows_names_its_sheets():
    book = workbook([["About this file"]], [list(VOTE), list(VOTE.values())])
    with pytest.raises(ImportingError, match=r"the sheet Sheet 1 of Sheet 1, Sheet 2\.") as error:
        read_votes(source(book))
    [said] = error.value.said(REMEDIES)
    assert said.endswith(" Choose another by --sheet NAME.")


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"task": ["a" * 99]}, {"compression": "zstd"}, "The Arrow file is compressed"),
        ({"task": ["a" * 300_000]}, {}, "larger than 0.2 MB"),
        ({"task": ["a"], "Task": ["b"]}, {}, "2 columns are named 'task'"),
        ({"task": pa.array(["a"]).dictionary_encode()}, {}, "The column task has the type dictionary"),
        ({"task": pa.array([[None]], pa.list_(pa.null()))}, {}, "The column task has the type null"),
        ({"task": pa.array([{}], pa.struct([]))}, {}, "The column task has the type struct<>"),
        ({"task": pa.array([b"a"])}, {}, "The column task has the type binary"),
    ],
)
def test_arrow_that_would_unpack_to_more_or_is_no_text_is_refused(columns, options, words):
    data = saved(pa.RecordBatch.from_pydict(columns), **options)
    with pytest.raises(ImportingError, match=words):
        read_tasks(source(data))


def test_damaged_arrow_is_refused():
    whole = saved(pa.RecordBatch.from_pydict({"task": ["One?", "Two?"]}))
    offsets = bytes([0, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0])
    assert whole.count(offsets) == 1
    beyond = whole.replace(offsets, bytes([0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 9]))
    for data in (beyond, whole[:40], whole[: len(whole) // 2], whole[:4]):
        with pytest.raises(ImportingError, match=r"The Arrow file cannot be read: .*[^.]\. Write it as"):
            read_tasks(source(data))


def test_arrow_that_begins_with_rows_is_refused():
    """pyarrow would take their head for that of a schema, and end the process."""
    whole = saved(pa.RecordBatch.from_pydict({"task": ["One?"]}))
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(whole))
    messages.read_next_message()
    rows = messages.read_next_message().serialize().to_pybytes()
    with pytest.raises(ImportingError, match="a part of the type record batch where one of the type schema"):
        read_tasks(source(rows))


@pytest.mark.parametrize("written", [saved, as_parquet])
def test_times_of_nanoseconds_are_read_to_the_microsecond(written):
    times = [1_000_000_001_001, None]
    nested = pa.list_(pa.struct([("at", pa.timestamp("ns"))]))
    columns = {
        "task": ["One?", "Two?"],
        "at": pa.array(times, pa.timestamp("ns")),
        "clock": pa.array(times, pa.time64("ns")),
        "more": pa.array([[{"at": each}] for each in times], nested),
    }
    first, second = source(written(pa.RecordBatch.from_pydict(columns))).rows()
    assert (first.fields["at"], first.fields["clock"]) == ("1970-01-01T00:16:40.000001", "00:16:40.000001")
    assert first.fields["more"] == [{"at": datetime(1970, 1, 1, 0, 16, 40, 1)}]
    assert second.fields["at"] is None


@pytest.mark.parametrize("written", [saved, as_parquet])
def test_a_time_that_nobody_can_write_is_refused(written):
    columns = {"task": ["One?"], "at": pa.array([2**60], pa.timestamp("us"))}
    with pytest.raises(ImportingError, match=r"file cannot be read: .*Write it a"):
        read_tasks(source(written(pa.RecordBatch.from_pydict(columns))))


def test_the_other_process_has_no_fault_of_its_own():
    """It passes over all that is wrong with a file, and must not pass over its own faults."""
    file = shard({"task": "One?"})
    numbers = (1000, 200_000, 100_000_000, len(file))
    subprocess.run(
        [sys.executable, "-I", "-c", _READ_IT_ALL.replace("pass", "raise"), *map(str, numbers)],
        input=file,
        check=True,
    )


def test_parquet_that_would_end_the_process_ends_another(monkeypatch):
    monkeypatch.setattr("engine.importing.parquet._READ_IT_ALL", "import os; os.abort()")
    with pytest.raises(ImportingError, match="The Parquet file is damaged"):
        read_tasks(source(shard({"task": "One?"})))


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise MemoryError",
        "pass",
    ],
    ids=["killed", "failed", "nothing said"],
)
def test_parquet_that_the_other_process_has_not_looked_at_is_not_read(monkeypatch, program):
    """It is what protects this one."""
    monkeypatch.setattr("engine.importing.parquet._READ_IT_ALL", program)
    with pytest.raises(ImportingError, match="could not check the Parquet file"):
        read_tasks(source(shard({"task": "One?"})))


def test_parquet_is_not_read_where_no_other_process_can_be_started(monkeypatch):
    def refuse(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(ImportingError, match="could not check the Parquet file"):
        read_tasks(source(shard({"task": "One?"})))


def test_parquet_that_takes_too_long_to_read_is_refused(monkeypatch):
    monkeypatch.setattr("engine.importing.parquet._READ_IT_ALL", "import time; time.sleep(60)")
    monkeypatch.setattr("engine.importing.parquet._MOST_SECONDS", 0.1)
    with pytest.raises(ImportingError, match="takes too long to read"):
        read_tasks(source(shard({"task": "One?"})))


def test_squad_as_it_is_published_is_its_questions():
    paragraph = {
        "context": "Two cats.",
        "qas": [
            {"id": "1", "question": "How many?", "answers": [{"text": "2"}, {"text": "two"}]},
            {"id": "2", "question": "How old?", "answers": [], "is_impossible": True},
        ],
    }  # fmt: skip
    document = {"version": "v2.0", "data": [{"title": "Cats", "paragraphs": [paragraph]}]}
    first, second = read_tasks(json.dumps(document))
    assert (first.prompt, first.reference, second.prompt, second.reference) == (
        "How many?",
        "2",
        "How old?",
        "",
    )
    assert first.variables == {"context": "Two cats.", "title": "Cats", "id": "1"}
    paragraph["qas"] = [7, {"question": "", "answers": 7}]
    document["data"].append({"paragraphs": ["text"]})
    with pytest.raises(ImportingError) as refused:
        read_tasks(json.dumps(document))
    assert [fault.place for fault in refused.value.faults] == [
        "article 1, paragraph 1, question 1",
        "article 1, paragraph 1, question 2",
        "article 2, paragraph 1",
    ]


@pytest.mark.parametrize(
    ("shards", "others"),
    [
        (["default/train/0000.parquet", "default/train/0001.parquet"], []),
        (["train-00000-of-00002-0a1b.parquet", "train-00001-of-00002-2c3d.parquet"], ["dataset_info.json"]),
        (["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"], ["state.json", "cache-36f0.arrow"]),
        (["part-1-of-3/data.csv"], []),
        ([f"train/{number}.parquet" for number in range(12)], []),
        ([f"a-{number}-of-11.csv" for number in range(1, 12)], []),
        (["data.jsonl.gz"], [".git/a.csv", "state.json", "README.md"]),
    ],
)
def test_the_shards_of_one_table_are_known_by_their_names(shards, others):
    assert tables_in([*reversed(shards), *others]) == shards


@pytest.mark.parametrize(
    ("names", "here"),
    [
        (["train-00000-of-00002.csv"], "1 of 2 files"),
        (["train-00000-of-00003-0a1b.csv.gz", "train-00002-of-00003-2c3d.csv.gz"], "2 of 3 files"),
        (["train-00000-of-00002.csv", "train-00001-of-00002.csv"], None),
        (["votes.csv"], None),
    ],
)
def test_shards_that_were_chosen_without_the_others_are_read_with_a_warning(names, here, tmp_path):
    for n, name in enumerate(names):
        rows = f"task,policy,response\nT{n},P,a{n}\nT{n},Q,b{n}\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(rows) if name.endswith(".gz") else rows)
    pattern = names[0] if len(names) == 1 else "train-*"
    answers = read_responses(source_at(tmp_path / pattern, MOST))
    assert len(answers.responses) == 2 * len(names)
    assert answers.warnings == (
        [
            f"{here} of this table read, going by the names. Bring the others too, unless this is all that "
            "you want."
        ]
        if here
        else []
    )


@pytest.mark.parametrize(
    ("shards", "missing"),
    [
        (["a/train-00000-of-00003.parquet", "a/train-00002-of-00003.parquet"], 1),
        (["a-1-of-3.csv", "a-2-of-3.csv"], 0),
    ],
)
def test_a_table_without_one_of_its_shards_is_refused(shards, missing):
    with pytest.raises(ImportingError, match=f"3 files belong to this table .* number {missing} is missing"):
        tables_in(shards)
    assert tables_in(["a-1-of-2.csv", "a-2-of-2.csv"]) == ["a-1-of-2.csv", "a-2-of-2.csv"]


def test_a_row_that_cannot_be_read_is_named_with_its_shard():
    broken = archive({"a-0-of-2.csv": b"task\nOne?\n", "a-1-of-2.csv": b"task,x\n,1\n"})
    with pytest.raises(ImportingError, match=r"a-1-of-2.csv, line 2: task is empty"):
        read_tasks(source(broken))


def test_openai_evals_are_conversations_with_their_ideal_answer():
    evals = [
        {
            "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
            "ideal": ["4", "four"],
        },
        {"input": "3 + 3?", "ideal": "6"},
    ]
    first, second = read_tasks(source("\n".join(map(json.dumps, evals)).encode()))
    assert first.messages == (Message("system", "Be brief."), Message("user", "2 + 2?"))
    assert (first.reference, second.prompt, second.reference, second.messages) == ("4", "3 + 3?", "6", ())


def test_no_archive_or_workbook_unpacks_to_more_than_the_limit(monkeypatch):
    """Sizes are added up before anything is unpacked."""
    bombs = [
        archive({"a-0-of-2.csv": b"task\n" + b"a" * 150_000, "a-1-of-2.csv": b"task\n" + b"b" * 150_000}),
        workbook([["task"], *([["a" * 30_000]] * 10)]),
        archive({f"data/train-{n}-of-9.parquet": shard({"task": "a" * 30_000}) for n in range(9)}),
    ]
    assert all(len(each) < MOST.most / 10 for each in bombs)
    opened: list[str] = []
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *args, **_: opened.append(args[1]))
    for bomb in bombs[:2]:
        with pytest.raises(ImportingError, match=r"The unpacked file is larger than 0\.2 MB"):
            list(source(bomb).rows())
    assert not opened
    monkeypatch.undo()
    with pytest.raises(ImportingError, match=r"The unpacked file is larger than 0\.2 MB"):
        list(source(bombs[2]).rows())
    with pytest.raises(ImportingError, match="1,001 files in one archive; the limit is 1,000"):
        source(archive({f"{n}": b"" for n in range(1001)}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"task\nOne?\nTwo\x00?\n", "line 3: This is not UTF-8 text: it holds a NUL character"),
        ("task\nOne?\n".encode("utf-16-le"), "line 1: This is not UTF-8 text.*“CSV UTF-8”"),
        (
            b"task,x\nOne?," + b"y" * 60_001 + b"\n",
            "line 2: More than 60,000 characters in one cell of a CSV",
        ),
        (b'task\n"One?\n' + b"Two?\n" * 20_000, "line 2: .*Look for such a mark"),
        (b"task\n" + b"\n" * 1000, "1,001 lines in one file; the limit is 1,000"),
        (b"\r" * 1001, "1,001 lines in one file"),
    ],
)
def test_a_bomb_of_text_is_refused_before_rows_are_made_of_it(text, words, monkeypatch):
    """NULs of 200 kB in an archive took 2.4 GB of memory, and empty lines two minutes."""
    monkeypatch.setattr(
        limits, "CELL_CHARACTERS", dataclasses.replace(limits.CELL_CHARACTERS, default=60_000)
    )
    lines = 1000 if text.count(b"\n") <= 1001 else 100_000
    monkeypatch.setattr(limits, "LINES", dataclasses.replace(limits.LINES, default=lines))
    with pytest.raises(ImportingError, match=words):
        read_tasks(source(archive({"tasks.csv": text})))


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """The rows at once with which this process unpacks each Parquet file."""
    asked = []
    read = pyarrow.parquet.ParquetFile.iter_batches

    def watched(self: pyarrow.parquet.ParquetFile, batch_size: int) -> Iterator[Any]:
        asked.append(batch_size)
        return read(self, batch_size=batch_size)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", watched)
    return asked


def test_no_parquet_is_unpacked_beyond_the_limit(asked):
    """A text that comes again is stored once: 100 kB here would be 400 MB."""
    with pytest.raises(ImportingError, match=r"The unpacked file is larger than 0\.2 MB"):
        list(source(shard(*[{"task": "a" * 100_000}] * 4000)).rows())
    assert asked == [7], "rows at once"
    for bomb in ([{"task": f"{n}" * 50_000} for n in range(5)], [{"task": None}] * 300_000):
        with pytest.raises(ImportingError, match=r"The unpacked file is larger than 0\.2 MB"):
            list(source(shard(*bomb)).rows())
    assert asked == [7], "refused for what it states"


def test_parquet_that_states_less_than_it_holds_is_not_unpacked_here(asked):
    """Its pages say themselves how much memory they need, and 6 kB of them asked for gigabytes."""
    file = io.BytesIO()
    table = pa.table({"task": ["a" * 80_000_000]})
    pa.parquet.write_table(table, file, compression="zstd", use_dictionary=False, write_statistics=False)
    data = file.getvalue()
    head = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    size = pyarrow.parquet.read_metadata(file).row_group(0).column(0).total_uncompressed_size
    # A number of Thrift's, of 7 bits a byte: the same place can hold a smaller one.
    written = bytes((2 * size >> 7 * n) & 0x7F | (0x80 if n < 3 else 0) for n in range(4))
    forged = data[:head] + data[head:].replace(written, b"\xd0\x8f\x80\x00")
    assert pyarrow.parquet.read_metadata(io.BytesIO(forged)).row_group(0).total_byte_size == 1000
    with pytest.raises(ImportingError, match=r"The unpacked file is larger than 0\.2 MB"):
        list(source(forged).rows())
    assert not asked


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04 and no more", "The ZIP file is damaged"),
        (archive({"xl/workbook.xml": b"<workbook"}), "The XLSX workbook cannot be read"),
        (archive({"a.csv": b"task\nOne?\n" * 9}).replace(b"One", b"Two"), None),
        (archive({"a.csv": b"task\n" + bytes(range(65, 91))})[:-40] + b"x" * 40, "The ZIP file is damaged"),
    ],
)
def test_a_damaged_archive_is_refused(data, words):
    if words is None:
        packed = bytearray(data)
        packed[packed.index(b"a.csv") + 8] ^= 0xFF
        data, words = bytes(packed), "cannot be unpacked"
    with pytest.raises(ImportingError, match=words):
        list(source(data).rows())


@pytest.mark.django_db
def test_the_commands_read_folders_and_sheets(tmp_path: Path):
    votes = [["task", "policy_a", "policy_b", "winner"], *([["T", "P", "Q", "a"]] * 3)]
    (tmp_path / "votes.xlsx").write_bytes(workbook([["x"], [1]], votes))
    call_command(
        "import_votes", tmp_path / "votes.xlsx", experiment="Votes", sheet="Sheet 2", stdout=io.StringIO()
    )
    assert Experiment.objects.get(name="Votes").policies.count() == 2
    (tmp_path / "set" / "data").mkdir(parents=True)
    for number, record in enumerate(
        ({"task": "T", "policy": "P", "response": "p"}, {"task": "T", "policy": "Q", "response": "q"})
    ):
        (tmp_path / "set" / "data" / f"train-{number:05}-of-00002.parquet").write_bytes(shard(record))
    (tmp_path / "experiment.yaml").write_text("name: Ready\nresponses_file: set\n")
    call_command("load_experiment", tmp_path / "experiment.yaml", stdout=io.StringIO())
    assert Experiment.objects.get(name="Ready").policies.count() == 2
    with pytest.raises(CommandError, match="There is no sheet 'Nine'"):
        call_command("import_votes", tmp_path / "votes.xlsx", experiment="Votes", sheet="Nine")


def test_a_data_set_in_an_archive_is_in_memory_once(tmp_path: Path):
    """A ZIP of 190 MB took 400 MB: itself, its part, and what the reader of the part copied."""
    texts = [base64.b64encode(random.Random(n).randbytes(100_000)).decode() for n in range(40)]
    table = pa.table({"task": [f"T{n}" for n in range(40)], "reference": texts})
    pa.parquet.write_table(table, tmp_path / "train.parquet", row_group_size=1)
    packed = tmp_path / "set.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(tmp_path / "train.parquet", "data/train.parquet")
    (tmp_path / "train.parquet").unlink()
    most = limits.Limit("bytes", 10_000_000, "A test.", "Give less.")
    tracemalloc.start()
    try:
        n_rows = sum(1 for _ in source_at(packed, most).rows())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_rows == 40
    assert peak < 1.5 * packed.stat().st_size


def test_an_archive_that_states_a_wrong_size_is_unpacked_no_further_than_the_limit(monkeypatch):
    """Of “bzip2” and others Python unpacks everything at once: 676 bytes were 1.4 GB."""
    real = zipfile.ZipExtFile.read
    asked: list[int | None] = []
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=-1: asked.append(n) or real(self, n))
    table = b"task\n" + b"a" * 5_000_000
    packed = bytearray(archive({"a.csv": table}))
    for place in (packed.index(b"PK\x03\x04") + 22, packed.index(b"PK\x01\x02") + 24):
        packed[place : place + 4] = (27).to_bytes(4, "little")
    with pytest.raises(ImportingError, match="cannot be unpacked"):
        source(bytes(packed))
    assert asked
    assert all(n is not None and 0 <= n <= MOST.most + 1 for n in asked)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as unusual:
        unusual.writestr("a.csv", table)
    with pytest.raises(ImportingError, match="packed in an unusual way"):
        source(file.getvalue())


def test_a_workbook_that_is_locked_or_damaged_is_refused():
    book = workbook([["task"], ["One?"]])
    locked = bytearray(book)
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := locked.find(mark, at + 1)) >= 0:
            locked[at + flags] |= 1
    damaged = bytearray(book)
    at = damaged.index(b"xl/worksheets/sheet1.xml") + len("xl/worksheets/sheet1.xml")
    damaged[at : at + 9] = b"\xff" * 9
    for data in (locked, damaged):
        with pytest.raises(ImportingError, match="The XLSX workbook is damaged or locked"):
            source(bytes(data))


def test_a_workbook_whose_part_is_longer_than_it_states_is_refused():
    """Of the stated size the sum is right, so that only counting tells."""
    with zipfile.ZipFile(io.BytesIO(workbook([["task"], ["One?"]]))) as book:
        parts = {each: book.read(each) for each in book.namelist()}
    honest = parts["xl/workbook.xml"]
    parts["xl/workbook.xml"] += b" " * 5_000_000
    packed = bytearray(archive(parts))
    central = packed.index(b"xl/workbook.xml", packed.index(b"PK\x01\x02")) - 46
    packed[central + 16 : central + 20] = zlib.crc32(honest).to_bytes(4, "little")
    packed[central + 24 : central + 28] = len(honest).to_bytes(4, "little")
    with pytest.raises(ImportingError, match="The XLSX workbook is damaged or locked"):
        source(bytes(packed))


def test_a_table_has_no_more_columns_than_may_be_shown():
    names = [f"c{n}" for n in range(500)]
    for data in (",".join(names).encode() + b"\n", json.dumps([dict.fromkeys(names, "x")]).encode()):
        [row] = source(data).rows()
        assert isinstance(row, Fault)
        assert "500 columns of one table; the limit is 400" in row.message


def test_a_workbooks_row_of_an_impossible_number_is_refused_after_no_more_rows_than_there_may_be(monkeypatch):
    monkeypatch.setattr("engine.importing.workbook._MOST_ROWS", 5000)
    with zipfile.ZipFile(io.BytesIO(workbook([["task"], ["One?"]]))) as book:
        parts = {each: book.read(each) for each in book.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = (
        parts[sheet].replace(b'<row r="2"', b'<row r="30000000"').replace(b'r="A2"', b'r="A30000000"')
    )
    assert [type(row).__name__ for row in source(archive(parts)).rows()] == ["Fault"]


@pytest.fixture
def looked_at(monkeypatch) -> list[EmptyCell]:
    """The cells without a value that were asked for one, as often as they were."""
    cells = []

    class Watched(EmptyCell):
        @property
        def value(self) -> None:
            cells.append(self)

    monkeypatch.setattr("openpyxl.worksheet._read_only.EMPTY_CELL", Watched())
    return cells


def test_rows_that_are_missing_before_a_large_number_are_looked_at_once(looked_at):
    """5 kB took 13 seconds: for each of a million rows, all of its cells were asked for their values."""
    with zipfile.ZipFile(io.BytesIO(workbook([["task"], ["One?"]]))) as book:
        parts = {each: book.read(each) for each in book.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b'<row r="2"', b'<row r="900"').replace(b'r="A2"', b'r="A900"')
    [row] = source(archive(parts)).rows()
    assert (row.place, row.fields) == ("row 900", {"task": "One?"})
    assert len(looked_at) < 4 * limits.COLUMNS.most


def with_rows(*more: str) -> bytes:
    """A workbook with two tasks, and these rows below them."""
    with zipfile.ZipFile(io.BytesIO(workbook([["task"], ["One?"], ["Two?"]]))) as book:
        parts = {each: book.read(each) for each in book.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b"</sheetData>", "".join((*more, "</sheetData>")).encode())
    return archive(parts)


EMPTY_ROWS = {
    "no cells": '<row r="{0}" spans="1:1" ht="15"/>',
    "formatted": '<row ht="15" r="{0}"><c r="A{0}" s="0"/>\n<c r="B{0}" s="0"></c></row>\n',
    "no value": '<row r="{0}"><c r="A{0}"><v/></c><c r="B{0}"><v></v></c></row>',
}
LAST = '<row r="{0}"><c r="A{0}" t="str"><v>Last?</v></c></row>'


def gap(row: str, first: int, length: int) -> str:
    return "".join(map(row.format, range(first, first + length)))


@pytest.mark.parametrize("row", EMPTY_ROWS.values(), ids=EMPTY_ROWS)
@pytest.mark.parametrize("last", ["", LAST.format(1504)], ids=["at the end", "above a task"])
def test_the_cells_of_many_empty_rows_are_not_looked_at(row, last, looked_at):
    """A sheet that was formatted down to its last row took 21 seconds."""
    rows = list(source(with_rows(gap(row, 4, 1500), last)).rows())
    assert [each.place for each in rows] == ["row 2", "row 3", *(["row 1504"] if last else [])]
    assert len(looked_at) < 8 * limits.COLUMNS.most


@pytest.mark.parametrize("row", EMPTY_ROWS.values(), ids=EMPTY_ROWS)
def test_reading_ends_where_only_empty_rows_follow(row, monkeypatch):
    read = []
    parse_row = WorkSheetParser.parse_row

    def noted(self, given):
        read.append(given)
        return parse_row(self, given)

    monkeypatch.setattr(WorkSheetParser, "parse_row", noted)
    assert len(list(source(with_rows(gap(row, 4, 1500))).rows())) == 2
    # Whether a sheet has cells is asked of its first rows.
    assert len(read) < 50


@pytest.mark.parametrize("row", [*EMPTY_ROWS.values(), "<row/>", '<row><c s="0"/></row>'])
@pytest.mark.parametrize("length", [1, 3, 999, 1000, 1001, 1500])
def test_a_row_after_empty_ones_is_read_however_many_they_are(row, length):
    [*_, last] = source(with_rows(gap(row, 4, length), LAST.format(4 + length))).rows()
    assert (last.place, last.fields) == (f"row {4 + length}", {"task": "Last?"})


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        ('<c r="A1504"><v>7</v></c>', "7"),
        ('<c r="A1504" t="inlineStr"><is><t>7</t></is></c>', "7"),
        ('<c/><c/><c/><c r="D1504"><v>7</v></c>', "A cell stands right of the last column"),
        ('<c r="A1504"><f>1+1</f></c>', "This formula has no stored result"),
    ],
    ids=["number", "text", "another column", "formula"],
)
def test_no_value_and_no_formula_is_lost_between_empty_rows(cells, read):
    empty = EMPTY_ROWS["no cells"]
    between = f'<row r="1504">{cells}</row>'
    rows = source(with_rows(gap(empty, 4, 1500), between, gap(empty, 1505, 1500))).rows()
    [found] = [row for row in rows if row.place in ("row 1504", "cell A1504")]
    assert (found.message if isinstance(found, Fault) else found.fields["task"]).startswith(read)


def test_empty_rows_with_the_numbers_of_others_hide_none():
    rows = source(with_rows(gap(EMPTY_ROWS["formatted"], 2, 1500))).rows()
    assert [row.fields["task"] for row in rows] == ["One?", "Two?"]


def test_cells_that_hold_white_space_cost_no_more_than_others():
    """Eight of them took 17 seconds, and each one more took three times as long."""
    blank = '<c r="A4">\n      </c>' * 40
    [*_, last] = source(with_rows(f'<row r="4">{blank}<c r="A4" t="str"><v>Last?</v></c></row>')).rows()
    assert last.place == "row 4"


def test_a_sheet_whose_rows_are_all_empty_has_no_row():
    empty = EMPTY_ROWS["formatted"]
    with zipfile.ZipFile(io.BytesIO(workbook([[]]))) as book:
        parts = {each: book.read(each) for each in book.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    rows = f"<sheetData>{gap(empty, 1, 1500)}</sheetData>".encode()
    parts[sheet] = re.sub(rb"<sheetData ?/>|<sheetData></sheetData>", rows, parts[sheet])
    assert gap(empty, 1, 1).encode() in parts[sheet]
    assert list(source(archive(parts)).rows()) == []


def test_a_formula_that_nobody_computed_is_no_empty_cell():
    """Programs write formulas without results. An empty text is a result."""
    table = [["task", "policy", "response"], ["T", "A", "=1+1"], ["T", "=1", "B"]]
    faults = [str(row) for row in source(workbook(table)).rows()]
    said = (
        "This formula has no stored result. If it is a text that begins with “=”, save the table as CSV or "
        "JSON Lines; else open the workbook in a spreadsheet program, and save it."
    )
    assert faults == [f"cell C2: {said}", f"cell B3: {said}"]
    with zipfile.ZipFile(io.BytesIO(workbook(table))) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    for cell in (b'<c r="C2"><f>1+1</f></c>', b'<c r="C2"><f t="shared" si="0"/></c>'):
        sheet = re.sub(rb'<c r="C2".*?</c>', cell, files["xl/worksheets/sheet1.xml"])
        fault = next(iter(source(archive(files | {"xl/worksheets/sheet1.xml": sheet})).rows()))
        assert str(fault) == f"cell C2: {said}"
    for computed, text in (
        (b'<c r="C2" t="str"><f>1+1</f><v></v></c>', ""),
        (b'<c r="C2"><f>1+1</f><v>2</v></c>', "2"),
    ):
        sheet = re.sub(rb'<c r="C2".*?</c>', computed, files["xl/worksheets/sheet1.xml"])
        sheet = re.sub(rb'<c r="B3".*?</c>', b'<c r="B3"><v>7</v></c>', sheet)
        rows = list(source(archive(files | {"xl/worksheets/sheet1.xml": sheet})).rows())
        assert [(row.fields["policy"], row.fields["response"]) for row in rows] == [("A", text), ("7", "B")]


def test_texts_that_a_program_saved_as_formulas_are_counted_in_a_warning():
    """Some write "=1+1" as a formula with the result 0, which is read without a fault."""
    with zipfile.ZipFile(io.BytesIO(workbook([["task", "policy", "response"], ["T", "A", "=1+1"]]))) as book:
        files = {name: book.read(name) for name in book.namelist()}
    sheet = re.sub(rb"<f>1\+1</f><v>.*?</v>", b"<f>1+1</f><v>0</v>", files["xl/worksheets/sheet1.xml"])
    answers = read_responses(source(archive(files | {"xl/worksheets/sheet1.xml": sheet})))
    assert [each.response for each in answers.responses] == ["0"]
    assert [each for each in answers.warnings if "formula" in each] == [
        "1 formula read by the last result. Where a text begins with “=”, some programs save it as a "
        "formula: bring such a table as CSV or JSON Lines."
    ]
    answers = read_responses(source(workbook([["task", "policy", "response"], ["T", "A", "a < f"]])))
    assert not any("formula" in each for each in answers.warnings)
