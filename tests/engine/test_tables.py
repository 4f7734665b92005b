"""What the reading process makes of files, and what it does with files that ask for too much."""

import gc
import gzip
import io
import os
import zipfile
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from engine.domain.limits import JUDGMENTS, VOTES_BYTES
from engine.importing.reading_process import Source, as_one, source_at
from engine.importing.rows import Fault, ImportingError, Row
from engine.importing.votes import read_votes
from tests.tables import archive, source, workbook

pytestmark = pytest.mark.slow


def rows(data: bytes | str, name: str = "given.csv", **more: Any) -> list[dict[str, Any]]:
    found = list(source(data, name, **more).rows())
    assert all(isinstance(row, Row) for row in found), found
    return [dict(row.fields) for row in found if isinstance(row, Row)]


def faults(data: bytes | str, name: str = "given.csv", **more: Any) -> list[str]:
    return [str(row) for row in source(data, name, **more).rows() if isinstance(row, Fault)]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n",
        "a;b\r\n1;x\r\n",
        "a\tb\r1\tx",
        "\ufeffa|b\n\n1|x\n\n",
        '[{"a": "1",\n"b": "x"}]',
        '{"a": "1", "b": "x"}\n\n',
        '{"data": [{"a": "1", "b": "x"}], "total": 1}',
        '{\n "a": "1",\n "b": "x"}',
        "a,b\n1,x\n".encode("utf-16"),
        gzip.compress(b"a,b\n1,x\n"),
        workbook([["a", "b"], [], ["1", "x"]]),
        archive({"data/t.csv": b"a,b\n1,x\n", "__MACOSX/t.csv": b"?", "README.md": b"?"}),
    ],
    ids=lambda data: f"{data[:3]!r}",
)
def test_every_kind_of_file_has_the_same_rows(text):
    assert rows(text) == [{"a": "1", "b": "x"}]


def test_a_byte_that_is_no_text_is_named_by_its_line_and_nothing_is_guessed():
    for data in (b"a,b\nx,gr\xfcn\n", b"a,b\nx,\x00\n"):
        with pytest.raises(ImportingError, match="line 2: This is not UTF-8 text"):
            list(source(data).rows())
    with pytest.raises(ImportingError, match="damaged"):
        list(source(b"PK\x03\x04nothing").rows())
    with pytest.raises(ImportingError, match="Two columns are named 'a'"):
        list(source("a,b,a\n1,2,3\n").rows())


def test_each_faulty_row_is_told_by_its_place_and_the_others_are_read():
    assert faults("a,b\n1,2\n1,2,3\n1\n5,6\n") == [
        f"line {n}: The number of cells is {n_cells}, but the first line names 2 columns. Put a cell "
        f"that holds "
        "a separator into quotation marks."
        for n, n_cells in ((3, 3), (4, 1))
    ]
    assert [
        text.partition(":")[0] for text in faults('{"a": 1}\n{"a": Infinity}\n[1]\n{"a"\n{"a": 2}\n')
    ] == [
        "line 2",
        "line 3",
        "line 4",
    ]
    assert faults('[{"a": 1}, {"a": 1e999}, {"a": 1, "a": 2}, {"a": 3}]')[0].startswith("entry 2: 1e999")
    assert len(list(source('[{"a": 1}, {"a": 1e999}, {"a": 3}]').rows())) == 3
    assert faults('a,b\n1,"2\n')[0].startswith("line 2: The row is no CSV")


def sheet(cells: str, shared: str = "") -> bytes:
    """An XLSX as few programs write it: its sheet is exactly this XML."""
    book = io.BytesIO(workbook([["a"]]))
    with zipfile.ZipFile(book) as given:
        parts = {name: given.read(name) for name in given.namelist()}
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    parts["xl/worksheets/sheet1.xml"] = (
        f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>".encode()
    )
    parts["xl/sharedStrings.xml"] = f"<sst {main}><si><t>a</t></si>{shared}</sst>".encode()
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    override = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'.encode()
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(b"</Types>", override)
    return archive(parts)


NAMED = '<row><c t="s"><v>0</v></c></row>'


@pytest.mark.parametrize("digits", ["107505301260286111", "9007199254740993", "3", "-12"])
def test_whole_numbers_keep_their_digits(digits):
    assert rows(sheet(f"{NAMED}<row><c><v>{digits}</v></c></row>")) == [{"a": digits}]
    assert rows(f'{{"a": {digits}}}') == [{"a": int(digits)}]
    assert rows(f"a\n{digits}\n") == [{"a": digits}]


def test_values_of_a_workbook_are_the_texts_that_csv_would_hold():
    values = [0.1 + 0.2, True, datetime(2026, 3, 1, 10, 30), date(2026, 3, 1), time(3, 4), "007", None]
    names = [f"c{n}" for n in range(len(values))]
    [row] = rows(workbook([names, values]))
    assert list(row.values()) == ["0.3", "true", "2026-03-01T10:30:00", "2026-03-01", "03:04:00", "007", ""]
    [row] = rows(workbook([["a"], [timedelta(hours=30)]]))
    assert row["a"] == "1 day, 6:00:00"


def test_a_sheet_is_chosen_by_name_and_the_names_are_told():
    data = workbook([["a"], ["1"]], [["b"], ["2"]])
    given = source(data)
    assert [row.fields for row in given.rows() if isinstance(row, Row)] == [{"a": "1"}]
    assert given.sheets == ["Sheet 1", "Sheet 2"]
    assert rows(data, sheet="Sheet 2") == [{"b": "2"}]
    with pytest.raises(ImportingError, match="There is no sheet 'Other'"):
        rows(data, sheet="Other")


def test_parquet_and_arrow_come_with_their_types():
    table = pa.table(
        {
            "n": [107505301260286111, None],
            "f": [1.5, float("nan")],
            "at": pa.array([1, 2], pa.timestamp("ns", "UTC")),
            "turns": [[{"role": "user", "content": "Hi"}], []],
        }
    )
    wanted = [
        {
            "n": 107505301260286111,
            "f": 1.5,
            "at": "1970-01-01T00:00:00+00:00",
            "turns": [{"role": "user", "content": "Hi"}],
        },
        {"n": None, "f": None, "at": "1970-01-01T00:00:00+00:00", "turns": []},
    ]
    parquet, stream, file = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet)
    for sink, new in ((stream, ipc.new_stream), (file, ipc.new_file)):
        with new(sink, table.schema) as writer:
            writer.write_table(table)
    for kind in (parquet, stream, file):
        assert rows(kind.getvalue()) == wanted
    with pytest.raises(ImportingError, match="cannot be read"):
        rows(parquet.getvalue()[:-20])


def test_several_files_of_one_table_are_one_and_their_rows_say_of_which_they_are(tmp_path):
    parts = {"part-10.csv": b"a,b\n3,z\n", "part-2.csv": b"a,b\n2,y\n", "state.json": b"{}"}
    for name, data in parts.items():
        (tmp_path / name).write_bytes(data)
    at = source_at(tmp_path, VOTES_BYTES)
    zipped = source(archive(parts))
    for given in (at, zipped, source(as_one(at)[1])):
        found = [(row.place, row.fields["a"]) for row in given.rows() if isinstance(row, Row)]
        assert found == [("part-2.csv, line 2", "2"), ("part-10.csv, line 2", "3")]
    with pytest.raises(ImportingError, match=r"x\.csv: The columns are not those of the first file"):
        list(source(archive({"a.csv": b"a\n1\n", "x.csv": b"b\n1\n"})).rows())


# ---------------------------------------------------------------- files that ask for too much

LISTS = "[" * 48 + "]" * 48
BOMBS = {
    "a row of empty cells": sheet("<row>" + "<c/>" * 2_300_000 + "</row>"),
    "empty rows": sheet("<row/>" * 1_500_000),
    "shared strings": sheet(NAMED, "<si/>" * 1_800_000),
    "one string in each cell": sheet(
        NAMED + '<row><c t="s"><v>1</v></c></row>' * 220_000, f"<si><t>{'a' * 9000}</t></si>"
    ),
    "a document of nested lists": f'{{"data":[{",".join([LISTS] * 90_000)}]}}'.encode(),
    "a list of nested lists": f"[{','.join([LISTS] * 90_000)}]".encode(),
    "objects": b"[" + b",".join([b"{}"] * 1_100_000) + b"]",
    "lines of objects": b"{}\n" * 3_300_000,
    "a line of cells": b"," * 4_900_000,
    "carriage returns": b"a\n" + b"\r" * 9_900_000,
    "a gzip of zeros": gzip.compress(b"\x00" * 300_000_000, 1),
}


def own_megabytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        [line] = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


@pytest.mark.parametrize("name", BOMBS)
def test_the_child_meets_its_limits_and_the_parent_hardly_grows(name, monkeypatch):
    # The limit on time is tested below: in the test of each file it would only take time.
    monkeypatch.setattr("engine.importing.reading_process._SECONDS", 1)
    before = own_megabytes()
    # Its reader ends it once there are more rows than the limit allows.
    with suppress(ImportingError):
        for _ in zip(
            range(JUDGMENTS.most), Source([("file", BOMBS[name])], VOTES_BYTES).rows(), strict=False
        ):
            pass
    assert own_megabytes() - before <= 64


def test_a_file_that_takes_too_long_or_too_much_memory_is_refused_in_words(monkeypatch):
    monkeypatch.setattr("engine.importing.reading_process._SECONDS", 1)
    monkeypatch.setattr("engine.importing.reading_process._BYTES_PER_SECOND", 1 << 40)
    with pytest.raises(ImportingError, match="too much time"):
        list(Source([("file", BOMBS["empty rows"])], VOTES_BYTES).rows())
    monkeypatch.setattr("engine.importing.reading_process._SECONDS", 40)
    with pytest.raises(ImportingError, match="too much memory"):
        list(Source([("file", BOMBS["a document of nested lists"])], VOTES_BYTES).rows())


def children() -> list[str]:
    """The processes that read a file for this one."""
    return [
        pid
        for pid in filter(str.isdecimal, os.listdir("/proc"))
        if os.path.exists(f"/proc/{pid}/cmdline")
        and b"engine.importing.table_files" in open(f"/proc/{pid}/cmdline", "rb").read()
        and open(f"/proc/{pid}/stat", encoding="ascii").read().split()[3] == str(os.getpid())
    ]


def test_the_child_has_no_environment_and_ends_with_its_reader(monkeypatch):
    monkeypatch.setenv("A_SECRET", "hunter2")
    given = Source([("file", b"a\n" + b"1\n" * 400_000)], VOTES_BYTES).rows()
    next(given)
    [child] = children()
    with open(f"/proc/{child}/environ", "rb") as environment:
        assert b"hunter2" not in environment.read()
    given.close()
    assert children() == []


def test_the_child_ends_where_its_rows_are_refused():
    """Each kept one of the two children that a process may have, until the garbage was collected."""
    gc.disable()
    try:
        with pytest.raises(ImportingError, match="50,001 rows"):
            read_votes(Source([("file", BOMBS["objects"])], VOTES_BYTES))
        assert children() == []
    finally:
        gc.enable()
