"""The first line of a list of tasks: a heading is never a task, and no answer gets into one."""

from __future__ import annotations

import gzip
import json
from io import BytesIO

import pytest

from engine.domain.limits import FILE_BYTES, Limit
from engine.domain.material import Material
from engine.domain.specs import TaskSpec
from engine.importing.contents import decoded
from engine.importing.items import as_typed, read_responses, read_tasks, with_columns
from engine.importing.looking import look
from engine.importing.rows import ImportingError
from engine.importing.sources import source_of
from engine.importing.warnings import warnings_of_tasks
from tests.engine.test_sources import workbook

BOTH = [TaskSpec("What is 1 + 1?", "2"), TaskSpec("What is 2 + 2?", "4")]
MOST = Limit("bytes in a test", 10_000, "It is a test.", "Take less.")


@pytest.mark.parametrize(
    "heading",
    [
        "input,target",
        "question,answer",
        '"Input","Target"',
        "Question, Answer",
        "task,output",
        "prompt,reference",
    ],
)
@pytest.mark.parametrize("first", ["", "\ufeff", "sep=,\r\n", '\ufeff"sep=,"\n'])
def test_the_answer_of_a_table_is_the_reference_and_not_in_the_task(heading, first):
    rows = "What is 1 + 1?,2\r\nWhat is 2 + 2?,4\r\n"
    assert read_tasks(f"{first}{heading}\r\n{rows}") == BOTH


def test_the_delimiter_that_the_first_line_names_is_the_delimiter():
    text = "sep=;\ntask;answer\nOne, two, three;3\nOne, two;2\n"
    assert read_tasks(text) == [TaskSpec("One, two, three", "3"), TaskSpec("One, two", "2")]
    answers = read_responses("sep=;\ntask;policy;response\na, b;P;c, d\n")
    assert [each.response for each in answers.responses] == ["c, d"]


def test_the_line_that_names_the_delimiter_counts_in_places():
    with pytest.raises(ImportingError, match="line 4: This row has 1 column, but the first line has 2"):
        read_tasks("sep=;\ntask;answer\na;1\nb\n")


@pytest.mark.parametrize(
    "text",
    [
        "directive,completion\nWhat is 1 + 1?,2\nWhat is 2 + 2?,4\n",
        "Customer question;Expected reply\nWhat is 1 + 1?;2\n",
        'frage,antwort\n"One, two",2\n',
        "Frage (de),Antwort\nx,y\n",
        "Frage?,Antwort\nx,y\n",
        "The question of the day,Antwort\nx,y\n",
        "Frage|Antwort\nx|y\n",
        "Nr.,Frage,Antwort\n1,Was ist 1 + 1?,2\n",
        "#,Frage\n1,Was ist 1 + 1?\n",
        "1. Frage,2. Antwort\nWas ist 1 + 1?,2\n",
        "Message Content,Answer/Label\nHello,greeting\n",
        "Unnamed: 0,Prompt + Context,2) Answer *\n0,Hello,greeting\n",
        "Wie lautet die Frage an das Modell?;Bitte ausfüllen!\nWas ist 1 + 1?;2\n",
        "Nr\tFrage\tAntwort\n1\tWas ist 1 + 1?\t2\n",
        # A comma that nobody quoted, and a cell that is missing.
        "Frage,Antwort\nWas ist 1 + 1?,2\nWer, bitte, bist du?,Ann\n",
        "Frage;Antwort\nWas ist 1 + 1?;2\nWer?;Ann\nWarum?\n",
    ],
)
def test_an_unknown_heading_is_refused_and_named(text):
    """On the page and in a file of plain lines."""
    for given in (text, source_of([("t.txt", BytesIO(text.encode()))], MOST)):
        with pytest.raises(ImportingError) as refused:
            read_tasks(given)
        [fault] = refused.value.faults
        assert fault.place == "line 1"
        assert "none is known" in fault.message
        assert "Rename the column of the tasks to task" in fault.message
        assert fault.message.endswith("If each line is a task, write the tasks as JSON Lines.")


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("Frage\tAntwort\nWas ist 1 + 1?\t2\nWer?\tAnn\n", True),
        ("Customer question\tExpected reply\nI have two cars.\t2\n", True),
        ("Frage, Antwort\nWas ist 1 + 1?, 2\nWer?, Ann\n", True),
        ("Frage,Antwort\nWer, bitte, bist du?,Ann\n", True),
        ("Frage,Antwort", True),
        ("col1;Label\nHello there;a;b\nGoodbye;a;b\n", True),
        ("Frage,Antwort des Modells,Thema & Bereich\nWer, bitte\nWas, bitte\nWarum?\n", True),
        ("Erwartete Antwort (kurz)\tKunde (Nr.)\nWer bist du?\t7\nWas ist das?\t8\n", True),
        # Words and their translations, and tasks that begin with a short one.
        ("Berlin\tGermany\nParis\tFrance\n", False),
        ("What is 1 + 1?\t2\nWhat is 2 + 2?\t4\n", False),
        ("Hello\nHow are you?\n", False),
        ("Hello, Ann\nThanks, Bob\n", False),
        ("Hello, world", False),
        ('{"task": "Frage", "answer": "Antwort"}\n{"task": "Was ist 1?", "answer": "2"}\n', False),
    ],
)
def test_cells_that_were_copied_with_their_heading_are_asked_about(text, warns):
    """A tab may stand between a task and its answer, so nothing else tells a heading there."""
    warnings = warnings_of_tasks(read_tasks(text), text)
    assert ["may name columns, and is a task now" in each for each in warnings] == [True] * warns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What is 1 + 1?,2\nWhat is 2 + 2?,4\nWho, then?\n", "2 of 3 lines may have 2 columns, with a comma"),
        ("What is 1 + 1?;2\nWhat is 2 + 2?;4\n", "2 of 2 lines may have 2 columns, with a semicolon"),
        ("1\tWhat is 1 + 1?\t2\n2\tWhat is 2 + 2?\t4\n", "2 of 2 lines may have 3 columns, with a tab"),
        ("What is 1 + 1?\t2\nWhat is 2 + 2?\t4\n", ""),
        ("What is 1,000 + 1?\nWhat is 2,000 + 2?\n", ""),
        ("Explain loops; give an example.\nExplain lists; give an example.\n", ""),
        ('"Hello," she said.\n"Goodbye," he said.\n', ""),
    ],
)
def test_lines_that_have_columns_without_names_are_told(text, words):
    warnings = warnings_of_tasks(read_tasks(text), text)
    assert [each[: len(words)] for each in warnings] == [words] * bool(words)


@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "t.tsv", "t.csv.gz"])
@pytest.mark.parametrize(
    "text",
    [
        "Frage\nWas?\n",
        "Frage\tAntwort\nx\ty\n",
        "Frage,Antwort\nx,y,z\n",
        "Die erste Frage, die es gibt, heute\nx\n",
        "1,2\nx,y\n",
        "What is one?\nWhat is two?\n",
        "sep=;\nFrage;Antwort\nx;y\n",
    ],
)
def test_the_first_line_of_a_file_of_columns_is_no_task(name, text):
    """Nor is it one where the page puts the file where tasks are typed."""
    source = source_of([(name, BytesIO(text.encode()))], MOST)
    for given in (source, as_typed(source)):
        with pytest.raises(ImportingError, match="none is known"):
            read_tasks(given)


def test_the_columns_of_such_a_file_can_be_named():
    typed = as_typed(source_of([("t.csv", BytesIO(b"Frage\nWas?\n"))], MOST))
    assert [column.name for column in look(typed, Material.TASKS).columns] == ["Frage"]
    assert read_tasks(typed, {"Frage": "task"}) == [TaskSpec("Was?")]


@pytest.mark.parametrize("text", [",,,\nx,y\n", '"', "sep=;\n;\nx"])
def test_a_table_whose_first_line_names_nothing_has_no_tasks(text):
    source = source_of([("t.csv", BytesIO(text.encode()))], MOST)
    for given in (source, as_typed(source)):
        with pytest.raises(ImportingError, match="This line names no column"):
            read_tasks(given)


def test_files_of_lines_and_known_columns_are_read_as_before():
    for name, text in (("t.txt", "What is one?\nWhat is two?\n"), ("t.csv", '["a", "b"]'), ("t.csv", "")):
        source = source_of([(name, BytesIO(text.encode()))], MOST)
        assert as_typed(source) == text
        assert len(read_tasks(source)) == 2 * bool(text)


def test_shards_of_examples_are_tasks():
    big = {"examples": [{"input": "q1", "target_scores": {"a": 1, "b": 0}}, {"input": "q2", "target": "z"}]}
    shards = [(f"a-0000{n}-of-00002.json", BytesIO(json.dumps(big).encode())) for n in range(2)]
    tasks = read_tasks(as_typed(source_of(shards, MOST)))
    assert [task.reference for task in tasks] == ["a", "z"] * 2


def test_a_heading_that_names_the_answer_only_is_a_heading():
    with pytest.raises(
        ImportingError, match=r"line 2: Missing: task or prompt or input or question\. Found: frage, answer"
    ):
        read_tasks("frage,answer\nWhat is 1 + 1?,2\n")


@pytest.mark.parametrize(
    "text",
    [
        "Paris, Rome, Berlin: which is the largest?\nOne, two\n",
        "Translate: dog, cat\nTranslate: cow, horse\n",
        "red,green\nSay three colours: red, green, blue\n",
        "dog\tHund\ncat\tKatze\n",
        "red,green",
        "Hello, how are you?\nFine, thanks.\n",
        "Name colours, e.g. red,green,blue\nName, please, three animals\n",
        # Sentences that begin with the name of a column.
        "Question, please: what is 1 + 1?\nWhat is this?\n",
        "Input, output and all between: explain.\nSay hello, please.\nSay goodbye.\n",
        "Answers, please, and no questions.\nOne, two, three?\nRed, green, blue?\n",
        "Compare a red apple, question, blue\nSay hello.\n",
        "Of 3,326 requests for a pair every one found one.\nturns, nine rounds\none, two\n",
        "What does max(a,b) return?\nWhat does min(a,b) return?\n",
    ],
)
def test_lines_with_commas_stay_tasks(text):
    lines = [line.split("\t")[0] for line in text.strip().split("\n")]
    assert [task.prompt for task in read_tasks(text)] == lines


def test_a_gzip_is_read_as_what_is_in_it_and_never_beyond_the_limit():
    assert decoded(BytesIO(gzip.compress(b"task,answer\na,1\n")), MOST) == "task,answer\na,1\n"
    with pytest.raises(ImportingError, match=r"The unpacked file is larger than 0\.01 MB"):
        decoded(BytesIO(gzip.compress(b"a" * 10_001)), MOST)
    with pytest.raises(ImportingError, match="The gzip file is damaged"):
        decoded(BytesIO(gzip.compress(b"task\na\n")[:-9]), MOST)


def faults_of(text: str, columns: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ImportingError) as refused:
        read_tasks(text, columns)
    return [fault.place for fault in refused.value.faults]


class TestPlaces:
    """A message about a list of tasks has the number of the line or row in the file that it came from."""

    def test_rows_of_a_workbook_keep_their_numbers(self):
        """They were counted in the JSON Lines that the workbook became."""
        book = workbook([["Our questions"], [], ["Frage", "Nr"], ["One?", 1], [], ["", 2], ["Three?", 3]])
        text = as_typed(source_of([("t.xlsx", BytesIO(book))], FILE_BYTES))
        columns = {"Frage": "task", "Nr": "reference"}
        assert faults_of(text, columns) == ["line 6"]
        text = text.replace('"Frage": ""', '"Frage": "Two?"')
        assert look(text, Material.TASKS).columns[0].cells == ["One?", "Two?", "Three?"]
        mapped = with_columns(text, columns)
        assert [task.prompt for task in read_tasks(mapped)] == ["One?", "Two?", "Three?"]
        assert faults_of(mapped.replace("Three?", "")) == ["line 7"]
        assert warnings_of_tasks(read_tasks(mapped), mapped) == []

    def test_a_single_row_does_too(self):
        book = workbook([["Frage", "Nr"], ["", 1]])
        text = as_typed(source_of([("t.xlsx", BytesIO(book))], FILE_BYTES))
        assert faults_of(text, {"Frage": "task"}) == ["line 2"]

    @pytest.mark.parametrize("ends", ["\n", "\r\n"])
    @pytest.mark.parametrize(("first", "n_above"), [("", 0), ("sep=,", 1)])
    def test_lines_of_a_csv_do_too(self, first, n_above, ends):
        """A line of our own in front of a single column was counted."""
        lines = [*filter(None, [first]), "Frage", '"One', 'more?"', "", "Two?", "\u200b", "Three?"]
        source = source_of([("t.csv", BytesIO(ends.join(lines).encode()))], MOST)
        text = as_typed(source).replace("\r\n", "\n")
        assert faults_of(text, {"Frage": "task"}) == [f"line {6 + n_above}"]
        mapped = with_columns(text.replace("\u200b", "Soon?"), {"Frage": "task"})
        assert [task.prompt for task in read_tasks(mapped)] == ["One\nmore?", "Two?", "Soon?", "Three?"]
        assert faults_of(mapped.replace("Three?", "")) == [f"line {7 + n_above}"]

    def test_tasks_without_gaps_stay_plain_lines(self):
        mapped = with_columns("table sep=,\nFrage\nOne?\nTwo?\n", {"Frage": "task"})
        assert mapped == "\nOne?\nTwo?"

    def test_a_row_far_below_is_not_reached_by_a_million_empty_lines(self):
        rows = [["Frage", "Nr"], *[[]] * 3000, ["One?", 1]]
        text = as_typed(source_of([("t.xlsx", BytesIO(workbook(rows)))], FILE_BYTES))
        assert text == '{"Frage": "One?", "Nr": "1"}'
