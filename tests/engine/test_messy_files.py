"""Files as people and their programs leave them: read as they are meant, warned of, or refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import time
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import openpyxl
import pytest

from engine.domain.limits import FILE_BYTES
from engine.importing import headings
from engine.importing.items import read_gold, read_responses, read_tasks
from engine.importing.rows import ImportingError
from engine.importing.sources import Source, source_of
from engine.importing.votes.reading import read_votes
from engine.importing.warnings import warnings_of_gold, warnings_of_tasks
from tests.engine.test_sources import MOST, source, workbook


def named(name: str, data: bytes | str) -> Source:
    return source_of([(name, io.BytesIO(data.encode() if isinstance(data, str) else data))], MOST)


def responses(given: Source | str) -> list[tuple[str, str, str]]:
    answers = read_responses(given)
    return [(answers.tasks[r.task].prompt, r.policy, r.response) for r in answers.responses]


def tasks(given: Source | str) -> list[tuple[str, str]]:
    return [(task.prompt, task.reference) for task in read_tasks(given)]


# ---------------------------------------------------------------- read as they are meant

TWO = [("One?", "A", "1"), ("One?", "B", "one")]


@pytest.mark.parametrize(
    "text",
    [
        # Of an old Mac.
        "task,policy,response\rOne?,A,1\rOne?,B,one\r",
        # Google Sheets, of a sheet with empty columns; then numbers of rows, as pandas and R write them.
        "task,policy,response,,,\r\nOne?,A,1,,,\r\nOne?,B,one,,,\r\n",
        ",task,policy,,response\n0,One?,A,x,1\n1,One?,B,y,one\n",
        # pandas' and datasets' to_dict().
        json.dumps({"task": ["One?", "One?"], "policy": ["A", "B"], "response": ["1", "one"]}),
        # pandas' orient="index", with numbers and with names of rows.
        json.dumps({str(n): {"task": t, "policy": p, "response": r} for n, (t, p, r) in enumerate(TWO)}),
        json.dumps({f"row-{p}": {"task": t, "policy": p, "response": r} for t, p, r in TWO}),
    ],
)
def test_tables_of_other_programs_are_read_row_by_row(text):
    assert responses(text) == TWO


def test_the_marks_of_two_files_in_one_are_part_of_no_name_and_no_line():
    """The second heading was a task."""
    table = "\ufefftask,reference\nOne?,1\n"
    with pytest.raises(ImportingError, match="line 3: This row has the names of the columns again"):
        read_tasks(table + table)
    assert tasks("\u200btask,\u200b reference\nOne?,1\n") == [("One?", "1")]
    line = '\ufeff{"task": "One?"}\n'
    assert tasks(line + line) == [("One?", "")] * 2


@pytest.mark.parametrize("delimiter", ",;|\t")
def test_a_space_behind_each_name_of_a_column_belongs_to_no_cell(delimiter):
    """Quotation marks behind such a space were part of the text."""
    lines = ["task~ policy~ response", f'"One{delimiter} or?"~ "A"~ "1"', "One?~ B~ one"]
    text = "\n".join(lines).replace("~", delimiter)
    assert responses(text) == [(f"One{delimiter} or?", "A", "1"), ("One?", "B", "one")]


def test_a_space_of_a_text_stays_where_the_names_have_none():
    assert responses("task,policy,response\nOne?,A, 1\n") == [("One?", "A", " 1")]


def in_csv(**columns: str) -> str:
    file = io.StringIO()
    csv.writer(file).writerows([columns.keys(), columns.values()])
    return file.getvalue()


def test_a_table_of_texts_holds_messages_variables_and_tags_as_json():
    """As DuckDB and JavaScript write them."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?"}]
    text = in_csv(messages=json.dumps(messages), variables='{"name": "Ann"}', tags='["sums", "easy; short"]')
    [task] = read_tasks(text)
    assert [asdict(each) for each in task.messages] == messages
    assert (task.variables, task.tags) == ({"name": "Ann"}, ("sums", "easy", "short"))
    [alone] = read_tasks(in_csv(messages=json.dumps(messages)))
    assert alone.messages == task.messages


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"task": "One?", "tags": "['sums', 'easy']"}, "line 2: tags is a list that a program has written"),
        ({"messages": "[{'role': 'user'}]", "n": "1"}, "line 2: messages: Messages are a list of objects"),
        (
            {"messages": '[{"role": "user", "content": "One?"}]', "task": "One?"},
            "line 2: The task is both in",
        ),
        ({"task": "One?", "variables": "{'name': 'Ann'}"}, "line 2: variables must be an object"),
    ],
)
def test_a_list_in_the_notation_of_python_is_refused(columns, words):
    """Its tags were "['sums'" and "'easy']"."""
    with pytest.raises(ImportingError, match=re.escape(words)):
        read_tasks(named("tasks.csv", in_csv(**columns)))


ALPACA = [
    {"instruction": "Translate.", "input": "cat", "output": "Katze"},
    {"instruction": "Name a colour.", "input": "", "output": "Red"},
]


@pytest.mark.parametrize(
    "text", [json.dumps(ALPACA), "instruction,input,output\nTranslate.,cat,Katze\nName a colour.,,Red\n"]
)
def test_alpacas_instruction_and_input_are_one_task(text):
    assert tasks(text) == [("Translate.\n\ncat", "Katze"), ("Name a colour.", "Red")]
    assert not any(task.variables for task in read_tasks(text))
    assert warnings_of_tasks(read_tasks(text), text) == []


def test_beside_a_task_an_instruction_is_a_variable():
    [task] = read_tasks("task,instruction\nOne?,Be brief.\n")
    assert (task.prompt, task.variables) == ("One?", {"instruction": "Be brief."})


def test_a_workbooks_cells_are_what_people_see():
    rows = [
        ["task", "answer", "due", "amount"],
        ["Who_x000D_\nis_x0009_it?", 1, datetime(2026, 3, 1), 0.1 + 0.2],
    ]
    [task] = read_tasks(source(workbook(rows)))
    assert task.prompt == "Who\r\nis\tit?"
    assert task.variables == {"due": "2026-03-01", "amount": "0.3"}


def formatted(value: float, number_format: str) -> str:
    """The answer of a workbook's task, in a cell of this format."""
    book = openpyxl.load_workbook(io.BytesIO(workbook([["task", "answer"], ["One?", value]])))
    book.active["B2"].number_format = number_format
    file = io.BytesIO()
    book.save(file)
    [(_, answer)] = tasks(source(file.getvalue()))
    return answer


ACCOUNTING = '_($* #,##0.00_);_($* \\(#,##0.00\\);_($* "-"??_);_(@_)'


@pytest.mark.parametrize(
    ("value", "number_format", "shown"),
    [
        (0.05, "0%", "5%"),
        (0.0625, "0.0%", "6.3%"),
        (0.051, "0.##%", "5.1%"),
        (0.05, "[Red]0.##%", "5%"),
        (-0.05, "0%", "-5%"),
        (3.5, '"$"#,##0.00', "$3.50"),
        (1234.5, '#,##0.00\\ "€"', "1,234.50 €"),
        (1234, "[$CHF-807]\\ #,##0.00", "CHF 1,234.00"),
        (3.5, ACCOUNTING, "$3.50"),
        (-3.5, ACCOUNTING, "$(3.50)"),
        (7, "000", "007"),
        (12, '0 "kg"', "12 kg"),
        (1e300, '"$"0', f"$1{'0' * 300}"),
    ],
)
def test_a_number_keeps_what_its_format_says(value, number_format, shown):
    """As a response, 0.05 is no 5%."""
    assert formatted(value, number_format) == shown


@pytest.mark.parametrize(
    "number_format",
    [
        "General", "0.00", "#,##0.00", "# ?/?", "0.00E+00", '#,##0,"k"', '"high"', "0_ ;[Red]\\-0\\ ", ";;;",
        '[>5]"a"0;"b"0', f"0.{'0' * 40}%", f"0%{' ' * 300}",
    ],
)  # fmt: skip
def test_a_number_of_any_other_format_is_its_value(number_format):
    """Grouped, the number of a person or of seconds would be none."""
    assert formatted(1234.5, number_format) == "1234.5"


def merged(*ranges: str) -> bytes:
    """Two votes of Ann, where these cells are merged."""
    heading = ["task", "policy_a", "policy_b", "winner", "response_a", "response_b", "annotator"]
    vote = ["T", "P", "Q", "a", "p", "q", "Ann"]
    book = openpyxl.load_workbook(io.BytesIO(workbook([heading, vote, vote])))
    for cells in ranges:
        book.active.merge_cells(cells)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


@pytest.mark.parametrize("cells", ["A2:A3", "G2:G3", "F2:G2"])
def test_merged_cells_are_refused_as_only_the_first_has_their_value(cells):
    """pandas merges those of an index of several columns. Votes of nobody would be read."""
    with pytest.raises(ImportingError, match=f"^cells {cells}: These cells are merged"):
        read_votes(source(merged(cells)))


def test_merged_cells_of_a_heading_and_without_a_value_are_no_fault():
    assert len(read_votes(source(merged("G1:H1", "J2:K3"))).votes) == 2


def titled(*rows: list[str], across: str = "") -> bytes:
    """A sheet of these rows, whose cells ``across`` are merged."""
    book = openpyxl.load_workbook(io.BytesIO(workbook(list(rows))))
    if across:
        book.active.merge_cells(across)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("rows", "across"),
    [
        ([["Questions of May"], [], ["task", "reference"], ["6 x 7?", "42"]], ""),
        ([["Questions of May"], ["by Ann"], [], ["task", "reference"], ["6 x 7?", "42"]], ""),
        ([["Questions of May"], ["task", "reference"], ["6 x 7?", "42"]], "A1:B1"),
    ],
)
def test_a_title_above_the_names_of_the_columns_is_passed_over(rows, across):
    assert tasks(source(titled(*rows, across=across))) == [("6 x 7?", "42")]


def test_a_single_column_is_no_title():
    data = titled(["task"], ["6 x 7?"], ["1 + 1?"])
    assert tasks(source(data)) == [("6 x 7?", ""), ("1 + 1?", "")]


def test_a_line_that_may_be_a_title_or_a_name_is_refused_where_cells_stand_beside_it():
    with pytest.raises(ImportingError, match="right of the last column"):
        tasks(source(titled(["task"], ["6 x 7?", "42"])))


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=1, hours=6), "30:00:00"),
        (timedelta(minutes=3, seconds=4.25), "0:03:04.25"),
        (-timedelta(minutes=90), "-1:30:00"),
    ],
)
def test_a_duration_is_read_as_a_spreadsheet_shows_it(duration, text):
    [task] = read_tasks(source(workbook([["task", "took"], ["One?", duration]])))
    assert task.variables == {"took": text}


VOTE = "T,P,Q,a\n"
BLANK = {"empty lines": "\n", "lines of Windows": "\r\n", "spaces": " \t\n", "empty cells": ",,,\n"}


@pytest.fixture
def looked_at(monkeypatch) -> list[str]:
    """The lines that are looked at one by one."""
    found: list[str] = []
    following = headings.Lines.__next__

    def next_line(lines: headings.Lines) -> str:
        found.append(following(lines))
        return found[-1]

    monkeypatch.setattr(headings.Lines, "__next__", next_line)
    return found


@pytest.mark.parametrize("blank", BLANK.values(), ids=BLANK)
def test_blank_lines_are_passed_over_in_one_go_and_counted(blank, looked_at):
    """Each took a microsecond, and a spreadsheet writes a million of them."""
    heading = "task,policy_a,policy_b,winner\n"
    n = 10_000
    votes = read_votes(source(f"{heading}{blank * n}{VOTE}{blank * n}{VOTE}{blank * n}".encode())).votes
    assert [vote.place for vote in votes] == [f"line {n + 2}", f"line {2 * n + 3}"]
    assert len(looked_at) < 10


@pytest.mark.parametrize("blank", ["\n", "\r\n", " \t\n"])
def test_blank_lines_below_tasks_are_passed_over_too(blank, looked_at):
    """The lines below the first say whether it is a heading, where they may be plain ones."""
    assert len(read_tasks(source(f"task,topic\nOne?,a\n{blank * 10_000}".encode()))) == 1
    assert len(looked_at) < 20


def test_blank_lines_in_a_cell_and_between_json_lines_count_too():
    table = 'task,policy_a,policy_b,winner\n"T\n\n \n,,,\nt",P,Q,a\n\nT,P,Q,b\n\r\n\rT,P,Q,x\n'
    with pytest.raises(ImportingError, match=r"^line 11: "):
        read_votes(source(table.encode()))
    votes = read_votes(source(table.replace("T,P,Q,x\n", "").encode())).votes
    assert [(vote.task, vote.place) for vote in votes] == [("T\n\n \n,,,\nt", "line 2"), ("T", "line 8")]
    lines = "\n \n".join(json.dumps({"task": each}) for each in ("One?", "Two?", None))
    with pytest.raises(ImportingError, match=r"^line 5: "):
        read_tasks(f"\n{lines}".removeprefix("\n"))


def hidden(*rows: list[list[str]]) -> bytes:
    """A workbook whose first sheet nobody sees, and whose second one is empty."""
    book = openpyxl.load_workbook(io.BytesIO(workbook(rows[0], [], *rows[1:])))
    book.worksheets[0].sheet_state = "hidden"
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def test_the_first_sheet_that_people_see_is_read_and_the_others_are_named():
    given = source(hidden([["task"], ["Old?"]], [["task"], ["New?"]]))
    assert tasks(given) == [("New?", "")]
    left_out = "1 sheet left out: 'Sheet 1'. Only 'Sheet 3' was read."
    assert warnings_of_tasks(read_tasks(given), given) == [left_out]
    table = [["task", "policy", "response"], ["One?", "A", "1"]]
    votes = [["task", "policy_a", "policy_b", "winner"], ["T", "P", "Q", "a"]]
    assert read_responses(source(workbook(table, table))).warnings[-1].startswith("1 sheet left out")
    assert read_votes(source(workbook(votes, table))).warnings[-1].startswith("1 sheet left out")
    # Who chose a sheet knows that there are others, and an empty one holds nothing.
    assert not read_votes(source(workbook(votes, table), "Sheet 1")).warnings
    assert not read_votes(source(workbook(votes, []))).warnings


def test_rows_that_a_filter_hides_are_read_and_counted():
    table = [["task", "policy", "response"], ["One?", "A", "1"], ["One?", "B", "one"], ["Two?", "A", "2"]]
    book = openpyxl.load_workbook(io.BytesIO(workbook(table, table)))
    page = book.worksheets[0]
    page.auto_filter.ref = "A1:C4"
    page.auto_filter.add_filter_column(0, ["Two?"])
    # The last one is empty.
    for row in (2, 3, 9):
        page.row_dimensions[row].hidden = True
    file = io.BytesIO()
    book.save(file)
    for sheet in ("Sheet 1", ""):
        answers = read_responses(source(file.getvalue(), sheet))
        assert len(answers.responses) == 3
        assert answers.warnings[0].startswith("2 hidden rows read too, as behind a filter.")
    assert not any("hidden" in each for each in read_responses(source(file.getvalue(), "Sheet 2")).warnings)
    assert read_responses(source(workbook(table))).warnings == []


@pytest.mark.parametrize(
    "beginning", [b'<row hidden="1">', b"<c ", b"<row ", b"<c><f>", b"<c><f/>" + 60 * b" "]
)
def test_a_sheet_of_beginnings_without_an_end_takes_no_longer_than_its_size(beginning):
    """A search from each to the end of the sheet holds the whole process."""
    file, changed = io.BytesIO(), io.BytesIO()
    book = openpyxl.Workbook()
    for row in (["task", "policy", "response"], ["T", "A", "a"], ["T", "B", "b"]):
        book.active.append(row)
    book.save(file)
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as hostile:
        for name in archive.namelist():
            end = b"</sheetData>"
            comment = end + b"<!--" + beginning * 20_000 + b"-->"
            hostile.writestr(name, archive.read(name).replace(end, comment))
    given = source_of([("hostile.xlsx", changed)], FILE_BYTES)
    began = time.process_time()
    assert len(read_responses(given).responses) == 2
    # About 0.2 s; such a search takes more than a minute.
    assert time.process_time() - began < 10


def test_spreadsheets_write_truths_in_capital_letters():
    text = "task,model_a,model_b,winner_model_a,winner_model_b,winner_tie\nT,P,Q,FALSE,TRUE,FALSE\n"
    assert [vote.winner for vote in read_votes(source(text.encode())).votes] == ["b"]


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("read", "given", "words"),
    [
        (
            read_responses,
            "task,policy,response\nOne?,A,1\nTask,policy, response\nTwo?,A,2\n",
            "line 3: This row has the names of the columns again",
        ),
        (
            read_responses,
            source(workbook([["task", "policy", "response"]] * 2)),
            "row 2: This row has the names of the columns again",
        ),
        (
            read_responses,
            '"task","policy","response"\n"1","One?","A","1"\n',
            "line 2: This row has 4 columns, but the first line has 3. Put a cell that holds a comma into "
            "quotation marks, and remove lines above the names. If the first cell numbers the rows, as R "
            "writes them, name it too.",
        ),
        (
            read_responses,
            "task;policy;response;a, long, note, here\nOne?;A;1;x\n",
            "line 2: This row has 1 column, but the first line has 4. Fill the row up, or remove it. If a "
            "comma separates no columns here, say in a first line what does, such as sep=;",
        ),
        (
            read_votes,
            source(b"task,policy_a,policy_b,label\nT,P,Q,2\nT,P,Q,0\n"),
            "line 3: winner is '0'. Write a, b, tie or both_bad, or the name of one of the two policies. "
            "Nothing says what a number stands for",
        ),
        (
            read_votes,
            source(b"task,policy_a,policy_b,winner,time\nT,P,Q,a,0\n"),
            "line 2: judged_at is 0.0, as spreadsheets count days",
        ),
        (read_responses, '"task" "policy" "response"\n"1" "One?" "A" "1"\n', "line 1: This is not valid CSV"),
        (
            read_tasks,
            "+------+\n| task |\n+------+\n| One? |\n+------+\n",
            "This is a table drawn with lines",
        ),
        (
            read_tasks,
            "┌──────┬───┐\n│ task │ n │\n├──────┼───┤\n│ One? │ 1 │\n└──────┴───┘\n",
            "This is a table drawn with lines",
        ),
        (read_tasks, " task | n \n------+---\n One? | 1\n(1 row)\n", "This is a table drawn with lines"),
        (
            read_tasks,
            "shape: (1, 2)\n| Frage | n |\n| ---   | - |\n| str   | i |\n| One?  | 1 |\n",
            "This is a table drawn with lines",
        ),
        (read_tasks, "id Frage\n-- -----\n1 One?\n", "This is a table drawn with lines"),
        (
            read_tasks,
            "-[ RECORD 1 ]-\nid    | 1\nFrage | One?\n",
            "This is a table drawn with lines",
        ),
        (
            read_tasks,
            f"{'*' * 27} 1. row {'*' * 27}\n   id: 1\nFrage: One?\n",
            "This is a table drawn with lines",
        ),
        (
            read_tasks,
            '"id" "Frage"\n"1" 1 "One?"\n',
            "These are columns with spaces between them",
        ),
        # pandas, with its numbers of rows, without them, and pasted; then columns of a fixed width.
        (read_tasks, "  Frage Antwort\n0  One?        1\n", "These are columns with spaces between them"),
        (read_tasks, " Frage  n\n  One?   1\nThree?   2\n", "These are columns with spaces between them"),
        (read_tasks, "Frage Antwort\n0  One?        1\n1  Two?        2", "These are columns with spaces"),
        (
            read_tasks,
            "ID   FRAGE            ANTWORT\n1    Name a colour.   red\n2    Name a fruit.    apple\n",
            "These are columns with spaces between them",
        ),
        # mysqldump, pg_dump and sqlite3.
        (
            read_tasks,
            "-- MySQL dump 10.13\n\n/*!40101 SET NAMES utf8 */;\nDROP TABLE IF EXISTS `t`;\n",
            "These are statements of SQL",
        ),
        (
            read_tasks,
            "--\n-- PostgreSQL database dump\n--\n\nCOPY public.t (id, task) FROM stdin;\n1\tOne?\n",
            "These are statements of SQL",
        ),
        (
            read_responses,
            "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t(task);\n",
            "These are statements of SQL",
        ),
        (read_tasks, "INSERT INTO t (id, task)\nVALUES (1, 'One?');\n", "These are statements of SQL"),
        (read_tasks, "insert into t (id, task)\nvalues (1, 'One?');\n", "These are statements of SQL"),
        (
            read_tasks,
            '{\n  "task": "One?"\n}\n{\n  "task": "Two?"\n}\n',
            "line 4: A value ends before this, and more follows. Write each on a line of its own",
        ),
        (read_tasks, '{"task": "One?"},\n{"task": "Two?"},\n', "line 1: A value ends before this"),
        (
            read_tasks,
            '{"id": 1, "input": {"question": "One?", "n": 1}}',
            "line 1: input is an object of 'question, n'. Write the one that is meant in its place",
        ),
        (
            read_tasks,
            '"task,reference"\n"""One?"",1"\n',
            "line 1: All names of columns stand in one cell: 'task,reference'. Separate the columns",
        ),
        (
            read_responses,
            source(workbook([["task;policy;response"], ["One?;A;1"]])),
            "row 1: All names of columns stand in one cell",
        ),
        # pandas writes a carriage return without quotation marks.
        (
            read_tasks,
            "task\nOne\rof two?\n",
            "line 2: A cell holds a line break outside of quotation marks. Put the cell into quotation",
        ),
        (
            read_responses,
            "Our votes,,\ntask,policy,response\nOne?,A,1\n",
            "line 2, line 3: A cell stands right",
        ),
        (
            read_responses,
            "| task | policy | response |\n|---|---|---|\n| One? | A | 1 |\n",
            "This is a table of Markdown",
        ),
        (
            read_responses,
            '{"task": "One?", "policy": "A", "response": ["1", "uno"]}',
            "line 1: response is a list of 2. Give each of them a row of its own",
        ),
        (read_tasks, '{"prompt": ["One?", "Two?"], "reference": "1"}', "line 1: prompt is a list of 2"),
        # Answers of Langfuse, of Django's REST framework, and of OpenAI.
        (
            read_tasks,
            '{"data": [{"input": "One?"}], "meta": {"page": 1, "totalItems": 2}}',
            "This is one page of a longer list, as totalItems says.",
        ),
        (
            read_tasks,
            '{"next": "https://a.example/?page=2", "count": 2, "results": [{"task": "One?"}]}',
            "This is one page of a longer list, as next says.",
        ),
        (read_tasks, '{"items": [{"task": "One?"}], "count": 2}', "This is one page of a longer list"),
        (
            read_tasks,
            '{"object": "list", "data": [{"task": "One?"}], "has_more": true}',
            "This is one page of a longer list, as has_more says.",
        ),
        (read_tasks, named("tasks.xls", "<html>\n<table>\n<tr><td>One?</td></tr>"), "This is HTML or XML"),
        (read_tasks, named("tasks.xml", b'\xef\xbb\xbf<?xml version="1.0"?>\n<a/>'), "This is HTML or XML"),
        (read_tasks, named("tasks.txt", "  <!DOCTYPE html>\n<p>One?"), "This is HTML or XML"),
        (
            read_tasks,
            named("tasks.yaml", "- prompt: One?\n- prompt: Two?\n"),
            "YAML holds whole descriptions",
        ),
        (read_tasks, "<!DOCTYPE html>\n<p>One?", "This is HTML or XML"),
        (read_tasks, "<table><tr><td>One?</td></tr></table>", "This is HTML or XML"),
        (read_tasks, named("tasks.txt", '<div class="a">\n<p>One?</p>\n</div>\n'), "This is HTML or XML"),
        (
            read_tasks,
            named("tasks.csv", "<table>\n<tr><td>A</td></tr>\n</table>\n"),
            "This is HTML or XML",
        ),
        (read_tasks, "Frage | Antwort\n--- | ---\nOne? | 1\n", "This is a table of Markdown"),
        (read_tasks, "task | answer\n:-- | --:\nOne? | 1\n", "This is a table of Markdown"),
        (read_tasks, "| Frage |\n|---|\n| One? |\n", "This is a table of Markdown"),
        (read_tasks, "# Ours\n\n- prompt: One?\n  reference: 1\n", "YAML holds whole descriptions"),
        (
            read_tasks,
            named("tasks.txt", "name: Ours\r\ntasks:\r\n  - One?\r\n"),
            "YAML holds whole descriptions",
        ),
        (
            read_responses,
            named("answers.csv", "task,policy\n".encode("utf-32")),
            "line 1: This is not UTF-8 text",
        ),
        (
            read_votes,
            source(b"task,policy_a,policy_b,winner,label\nT,P,Q,a,x\nU,P,Q,,b\n"),
            "line 3: The winner is empty",
        ),
    ],
)
def test_what_would_be_silently_wrong_is_refused(read: Any, given: Source | str, words: str):
    with pytest.raises(ImportingError) as refused:
        read(given)
    assert str(refused.value).startswith(words)


def test_lines_with_two_spaces_in_them_are_told_how_they_become_tasks():
    lines = "Say  hello\nSay  good bye\nSay  it\n"
    with pytest.raises(ImportingError, match="If each line is a task, write one space between its words"):
        read_tasks(lines)
    assert len(read_tasks(lines.replace("  ", " "))) == 3


@pytest.mark.parametrize(
    "beside", [{"total": 1, "next": None}, {"has_more": False}, {"meta": {"total_tokens": 900}, "count": 1}]
)
def test_the_last_page_of_a_list_is_a_table(beside):
    assert tasks(json.dumps({"data": [{"task": "One?"}]} | beside)) == [("One?", "")]


def test_yaml_is_no_list_of_tasks_on_the_page_either():
    with pytest.raises(ImportingError, match="YAML holds whole descriptions"):
        _ = named("tasks.yml", "- prompt: One?\n").text


@pytest.mark.parametrize(
    "text",
    [
        "<p>What is this?</p>\n<p>And this?</p>",
        "<table> tags: what are they?\nWhat is <td>?",
        "- What is 1 + 1?\n- Who are you?",
        "Question: What is 1 + 1?\nQuestion: Who are you?",
        "A title\n-------",
        "+-+ what?\n--+ how?",
        "Do you like tasks: yes or no?",
        "Create a table.\nDrop it (the table);\nUse it;",
        "INSERT INTO t VALUES (1); does what?\nAnd DROP TABLE t;",
        "Say hello.  Twice.\nSay goodbye.  Once.\nSay   something.",
        "Hello  there\nWho are you?\nWhat is 1 + 1?",
        '"One" "Two"\nThree',
        "-- a comment\n--flag",
    ],
)
def test_a_task_that_only_looks_like_another_format_stays_one(text):
    for given in (text, named("tasks.txt", text)):
        assert [task.prompt for task in read_tasks(given)] == text.split("\n")


# ---------------------------------------------------------------- warned of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", ["The only line, hello, may name columns"]),
        ("Frage\tAntwort\n", ["The only line, Frage and Antwort, may name columns"]),
        ("Frage\nWas ist 1 + 1?\nWer bist du?\n", ["The first line, Frage, may name columns"]),
        (
            "Customer questions:\nWas ist 1 + 1?\nWer?\n",
            ["The first line, Customer questions:, may name columns"],
        ),
        ("Say hello.", []),
        ("Tell jokes\nWhat is 1 + 1?\nWho are you?\n", []),
        ('["Hello", "What is 1 + 1?"]', []),
        ('{"prompt": "Hello"}', []),
        ("task\nHello\n", []),
    ],
)
def test_a_line_that_may_name_columns_is_told(text, words):
    found = read_tasks(text)
    said = warnings_of_tasks(found, text)
    assert [each[: len(start)] for each, start in zip(said, words, strict=True)] == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It\u00e2\u20ac\u2122s", "with characters such as “\u00c3\u00a9” or “\ufffd”"),
        ("Gr\u00c3\u00bcn", "with characters such as"),
        ("Привет".encode().decode("cp1252", "replace").replace("\ufffd", ""), "with characters such as"),
        ("“It’s”".encode("cp1252").decode("latin-1"), "with characters such as"),
        ("Gr\ufffdn", "with characters such as"),
        ("Ein gr?ner Apfel", "with a question mark inside a word, such as 'gr?ner'"),
        ("Wei?t du: gr??ere Betr?ge", "with a question mark inside a word, such as 'Wei?t'"),
        ("It?s here", "with a question mark inside a word, such as 'It?s'"),
        ("x" * 32_767, "of exactly 32,767 characters, after which Excel cuts a cell off"),
        ("Tom &amp; Jerry", "with marks of HTML such as &amp; or &#39;"),
        ("Tom&#39;s", "with marks of HTML"),
        (r"Hello!\nHow are you?", "of one line with “\\n” in it"),
        (r"One:\n- two\n- three", "of one line with “\\n” in it"),
        ("NA", "said only null, None, NaN or N/A"),
        ("<NA>", "said only null"),
        ("undefined", "said only null"),
        ("[object Object]", "said only null"),
        ("'- one", "with an apostrophe in front of a mark such as = or -"),
        (r"\N", "said only null"),
    ],
)
def test_a_text_that_a_program_has_spoiled_is_counted(text, words):
    [warning] = read_responses(f"task,policy,response\nOne?,A,{text}\nOne?,B,one\n").warnings
    assert warning.startswith(f"1 response {words}")


@pytest.mark.parametrize(
    "text",
    [
        "Na",
        "R&D; AT&T",
        "2.0",
        "“Ä“, „Ü“ and «É»",
        "http://a.example/x?y=1 or /find?q, f(a?b:c), x=y?z; colou?r=",
        "What?! Why??Because. Who?Me",
        r"$\nu$ and \neg; C:\new; print('x\n')",
        '"One\\nTwo:\nthree"',
        "Ñ”",
        "SÃO",
        "'One' and -2",
        "Привет",
        "It’s – so…",
        "[1, 2]",
        "{}",
        "x" * 32_766,
    ],
)
def test_a_text_that_only_looks_odd_is_not(text):
    assert read_responses(f"task\tpolicy\tresponse\nOne?\tA\t{text}\nOne?\tB\tone\n").warnings == []


def test_whole_numbers_that_became_fractions_are_counted():
    """pandas makes them of a column with empty cells, and "2" would not be the answer."""
    text = "task,answer,customer\n1 + 1?,2.0,\nWho?,,17.0\nHow long?,2.50,v2.0\n"
    [warning] = warnings_of_tasks(read_tasks(text), text)
    assert warning.startswith("2 answers or variables such as 2.0, as programs write whole numbers")


MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("written", [repr(MESSAGES), json.dumps(MESSAGES), "['One?', 'Two?']"])
def test_a_list_in_the_place_of_a_text_is_told(written):
    quoted = written.replace('"', '""')
    text = f'prompt,answer\n"{quoted}",x\n'
    [warning] = warnings_of_tasks(read_tasks(text), text)
    assert warning.startswith(f"1 task written as a list or an object, such as {written[:40]!r}.")
    text = f'prompt,answer\nOne?,"{quoted}"\n'
    [warning] = warnings_of_tasks(read_tasks(text), text)
    assert warning.startswith("1 answer written as a list or an object")
    answers = read_responses(f'task,policy,response\n"{quoted}",A,x\n')
    assert [each.startswith("1 task written as a list") for each in answers.warnings] == [True]


def test_of_two_columns_of_answers_the_one_that_is_left_out_is_told():
    text = "question,answer,output\nOne?,1,eins\nTwo?,2,2\n"
    [warning] = warnings_of_tasks(read_tasks(text), text)
    assert warning.startswith("1 row with both output and answer: output is read, and answer is left out.")


def test_columns_that_no_response_has_are_told():
    text = "task,policy,response,context,id\nOne?,A,1,In 1999.,7\n"
    assert read_responses(text).warnings == ["2 columns left out: 'context', 'id'."]
    # Who says what the columns are knows of them.
    assert read_responses(text, {"context": "ignore", "id": "ignore"}).warnings == []


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"reply_a": "x", "reply_b": "y", "index": 1}, "3 columns left out: 'reply_a', 'reply_b', 'index'."),
        ({"response_a": "x"}, "1 column left out: 'response_a'."),
        ({"response_a": "x", "response_b": "y", "annotator_id": 7, "judged_at": "", "turn": 1, "n": ""}, ""),
        ({"conversation_a": "", "winner_model_a": 1, "judgment_uuid": None, "left": "x", "right": "y"}, ""),
    ],
)
def test_columns_of_votes_that_are_left_out_are_told(columns, told):
    """Texts and people in columns with other names were lost, without a word."""
    vote = {"task": "T", "policy_a": "P", "policy_b": "Q", "winner": "a"}
    assert "".join(read_votes(source(json.dumps([vote | columns]).encode())).warnings) == told


@pytest.mark.parametrize("name", ["context", "System_Prompt", "passage"])
def test_a_part_of_a_task_in_a_column_of_its_own_is_told(name):
    """As of SQuAD, whose questions nobody can answer without their paragraphs."""
    text = f"question,{name},topic\nWho was it?,It was Ann.,x\nWho are you?,,y\n"
    [warning] = warnings_of_tasks(read_tasks(text), text)
    assert warning.startswith(
        f"1 task with {name.lower()} as a variable: a model reads it only where a prompt"
    )


@pytest.mark.parametrize(
    "pair",
    [
        ("policy", "response"), ("policy_a", "policy_b"), ("model_a", "model_b"), ("chosen", "rejected"),
        ("response_a", "response_b"),
    ],
)  # fmt: skip
def test_a_file_of_responses_or_votes_is_no_list_of_tasks(pair):
    """Each of its rows became a task, the same one many times, as their variables differ."""
    text = f"prompt,{','.join(pair)}\nOne?,A,x\nOne?,B,y\n"
    [same, warning] = warnings_of_tasks(read_tasks(text), text)
    assert "1 different text in all" in same
    assert warning.startswith(f"2 rows with {' and '.join(pair)}, as files of responses or votes have them.")


def test_columns_that_no_gold_item_has_are_told():
    text = "question,better,worse,reason,id\nOne?,1,&amp;,It is one.,\nTwo?,2,3,,\n"
    assert [each[:60] for each in warnings_of_gold(read_gold(text), text)] == [
        "1 text of a gold item with marks of HTML such as &amp; or &#39;, w"[:60],
        "1 column left out: 'reason'.",
    ]
    assert warnings_of_gold(read_gold(text := "task,better,worse\nOne?,1,2\n"), text) == []


def test_a_column_without_a_name_is_told_where_it_does_not_number_the_rows():
    told = "1 column left out: 'column 1'."
    answers = ",task,policy,response\nann,One?,A,1\nben,One?,B,2\n"
    assert read_responses(answers).warnings == [told]
    assert read_responses(answers.replace("ann", "1").replace("ben", "2")).warnings == []
    text = ",task,answer\nhard,One?,1\n,Two?,2\n"
    assert [each[: len(told)] for each in warnings_of_tasks(read_tasks(text), text)] == [told]
    votes = workbook([["", "task", "policy_a", "policy_b", "winner"], ["ann", "One?", "A", "B", "a"]])
    assert told in read_votes(source(votes)).warnings


def test_of_columns_for_the_same_thing_those_with_something_in_them_are_read():
    """Texts behind two empty columns were lost, without a word."""
    table = (
        "task,policy_a,policy_b,model_a,model_b,winner,response_a,response_b,text1,text2\nT,,,P,Q,a,,,x,y\n"
    )
    [vote] = read_votes(source(table.encode())).votes
    assert (vote.policy_a, vote.policy_b, vote.response_a, vote.response_b) == ("P", "Q", "x", "y")


@pytest.mark.parametrize("at", ["2026-03-01 10:00:00 UTC", " 2026-03-01T10:00:00Z ", "20260301100000 UTC"])
def test_a_time_of_bigquery_names_its_zone(at):
    table = "task,policy_a,policy_b,winner,judged_at\nT,P,Q,a,"
    [vote] = read_votes(source(f"{table}{at}\n".encode())).votes
    assert vote.judged_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert read_votes(source(f"{table} \n".encode())).votes[0].judged_at is None


def test_a_name_that_is_none_is_told():
    rows = ["task,policy_a,policy_b,winner,annotator", "T,P,nan,a,NA", "T,P,Q,a,NA", "T,P,Q,a,ann"]
    assert read_votes(source("\n".join(rows).encode())).warnings == [
        "1 policy called null, None, NaN or N/A, as programs write for no name.",
        "1 annotator called null, None, NaN or N/A, as programs write for no name.",
    ]
    [warning] = read_responses("task,policy,response\nOne?,None,1\nOne?,B,one\n").warnings
    assert warning.startswith("1 policy called null")


# ---------------------------------------------------------------- answers, and messages of programs


@pytest.mark.parametrize("name", ["expected", "expected_output", "expectedOutput", "ground_truth"])
def test_what_is_expected_is_the_right_answer_and_not_what_a_model_wrote(name):
    """Braintrust's output was the right answer, and what it expected a variable."""
    rows = [{"input": "One?", name: "1", "output": "one, I think"}]
    assert tasks(json.dumps(rows)) == [("One?", "1")]
    [task] = read_tasks(json.dumps(rows))
    assert not task.variables
    [warning] = warnings_of_tasks([task], json.dumps(rows))
    assert warning.startswith(f"1 row with both {name.lower()} and output: {name.lower()} is read")


def test_an_output_beside_the_name_of_a_model_is_told():
    rows = json.dumps([{"instruction": "One?", "output": "one, I think", "generator": "gpt-4"}])
    [warning] = warnings_of_tasks(read_tasks(rows), rows)
    assert warning.startswith("1 task with an output as the right answer, though generator names a model")
    rows = json.dumps([{"prompt": "One?", "answer": "1", "model": "gpt-4"}])
    assert warnings_of_tasks(read_tasks(rows), rows) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"role": "assistant", "content": "1"}',
        "[{'role': 'assistant', 'content': '1'}]",
        "ChatCompletionMessage(content='1', role='assistant')",
        "content='1' additional_kwargs={}",
    ],
)
def test_responses_that_are_messages_of_a_program_are_told(text):
    rows = [{"task": "One?", "policy": policy, "response": text} for policy in "AB"]
    [warning] = [each for each in read_responses(json.dumps(rows)).warnings if "message" in each]
    assert warning.startswith("2 responses written as a message of a program, such as ")
    votes = {
        "task": "T",
        "model_a": "P",
        "model_b": "Q",
        "winner": "a",
        "response_a": text,
        "response_b": "{1}",
    }
    [warning] = read_votes(source(json.dumps([votes]).encode())).warnings
    assert warning.startswith("1 response written as a message of a program")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(gzip.compress(b"task\nOne?\n")), "a gzip in a gzip"),
        (gzip.compress(b"t.csv".ljust(257, b"\0") + b"ustar\x0000" + b"task\nOne?\n"), "a tar archive"),
        (rb"{\rtf1\ansi One?\par}", "an RTF document"),
        (b"\x89PNG\r\n\x1a\n\0", "a picture"),
        (b"SQLite format 3\0", "a database of SQLite"),
        (b"\x93NUMPY\x01\0v\0", "an array of NumPy"),
        (b"Obj\x01\x04\x14avro.codec", "an Avro file"),
        (b"\x80\x04\x95\x10\0", "a pickle of Python"),
        (b"FEA1\0\0\0\0", "a Feather file of the first version"),
        (gzip.compress(b"X\n\0\0\0\x03\0\x04"), "a file of R"),
        (gzip.compress(b"RDX3\nX\n\0\0\0\x03"), "a file of R"),
    ],
    # A gzip holds the time at which it was packed.
    ids=["gzip", "tar", "rtf", "png", "sqlite", "numpy", "avro", "pickle", "feather", "rds", "rdata"],
)
def test_a_file_of_another_kind_is_called_by_its_name(data, kind):
    with pytest.raises(ImportingError, match=f"This is {kind}, and no text."):
        read_tasks(named("tasks.csv", data))


def test_tests_of_promptfoo_are_yaml_and_no_tasks():
    with pytest.raises(ImportingError, match="YAML holds whole descriptions"):
        read_tasks("- vars:\n    question: One?\n- vars:\n    question: Two?\n")
