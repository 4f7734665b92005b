"""Tasks, gold items and ready-made responses in every format; what cannot be read is told by its place."""

from __future__ import annotations

import json
from contextlib import suppress
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain.limits import Limit
from engine.domain.specs import GoldSpec, ReadyMade, TaskSpec
from engine.domain.texts import is_blank
from engine.importing.contents import decoded
from engine.importing.items import read_gold, read_responses, read_tasks, write_gold, write_tasks
from engine.importing.rows import Fault, ImportingError, raise_any
from engine.importing.strict_json import loads

storable = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
words = st.text(storable, min_size=1, max_size=40).filter(lambda text: not is_blank(text))
SUM, WORD = TaskSpec("What is 1 + 1?", "2"), TaskSpec("Unscramble: tac", "cat")


def faults_of(read, text: str) -> list[str]:
    with pytest.raises(ImportingError) as error:
        read(text)
    return [str(fault) for fault in error.value.faults]


@pytest.mark.parametrize(
    "text",
    [
        "What is 1 + 1?\t2\n\nUnscramble: tac\t cat \n",
        "\ufeffprompt,reference\r\nWhat is 1 + 1?,2\r\nUnscramble: tac,cat\r\n",
        'Prompt;Reference\n"What is 1 + 1?";2\nUnscramble: tac;cat\n',
        "reference\tprompt\n2\tWhat is 1 + 1?\ncat\tUnscramble: tac\n",
        (
            '{"prompt": "What is 1 + 1?", "reference": "2"}\n\n{"question": "Unscramble: tac", "answer": '
            '"cat"}\n'
        ),
        (
            '[{"prompt": "What is 1 + 1?", "reference": 2}, {"task": "Unscramble: tac", "reference": '
            '["cat", "act"]}]'
        ),
        (
            '{"examples": [{"input": "What is 1 + 1?", "target": "2"}, {"input": "Unscramble: tac", '
            '"target": ["cat"]}]}'
        ),
        '{"metadata": {}, "examples": {"1": {"input": "What is 1 + 1?", "output": "2"}, '
        '"2": {"input": "Unscramble: tac", "output": "cat"}}}',
    ],
    ids=["lines", "csv", "semicolons", "tabs", "json lines", "json", "BIG-bench", "Instruction Induction"],
)
def test_tasks_are_read_in_every_format(text):
    assert read_tasks(text) == [SUM, WORD]


def test_bare_texts_are_tasks():
    assert read_tasks('["One?", "Two?"]') == [TaskSpec("One?"), TaskSpec("Two?")]
    assert read_tasks("One, two?\nThree?") == [TaskSpec("One, two?"), TaskSpec("Three?")]


def test_multiple_choice_carries_its_choices_and_its_best_answer():
    example = {"input": "Odd?", "target_scores": {"cat": 0, "car": 1}}
    document = {"task_prefix": "Say. ", "examples": [example]}
    assert read_tasks(json.dumps(document)) == [TaskSpec("Say. Odd?\nchoice: cat\nchoice: car", "car")]
    document["append_choices_to_input"] = False
    assert read_tasks(json.dumps(document)) == [TaskSpec("Say. Odd?", "car")]


def test_a_csv_field_may_hold_lines_and_the_next_fault_is_at_its_own_line():
    assert read_tasks('prompt,reference\n"One\ntwo?",3\n') == [TaskSpec("One\ntwo?", "3")]
    [fault] = faults_of(read_tasks, 'prompt,reference\n"One\ntwo?",3\nbad\n')
    assert fault.startswith("line 4: This row has 1 column, but the first line has 2.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"prompt": "A"}\n{"prompt": }\n[]\n{"x": 1}',
         ["line 2: This is not JSON", "line 3: This must be an object", "line 4: Missing: task or prompt"]),
        ("prompt,prompt\na,b", ["line 1: 2 columns are named 'prompt'."]),
        ('prompt,reference\n"a,b\n', ["line "]),
        ("reference,task\n2,\n", ["line 2: task is empty. Fill it in"]),
        ('[{"prompt": {"a": 1}}]', ["entry 1: prompt is an object of 'a'. Write the one"]),
        ('[{"prompt": " "}]', ["entry 1: The task is empty."]),
        ('[1, true]', ["entry 1: This must be an object", "entry 2: This must be an object"]),
        ('{"examples": 5}', ["examples: This must be a list"]),
        ('{"task_prefix": 1, "examples": []}', ["task_prefix: This must be a text."]),
        ('{"examples": [{"input": "a", "target_scores": []}]}', ["entry 1: target_scores must hold"]),
        ('["a\\u0000b"]', ["entry 1: task holds a character that cannot be stored"]),
        ('["\\ud800"]', ["entry 1: task holds a character that cannot be stored"]),
        ("{", ["line 1: This is not JSON"]),
        ('{"a":' * 100_000, ["This is nested too deeply"]),
        ("[" * 100_000, ["entry 1: This is nested too deeply"]),
        ('prompt,x\n"y"y,1', ["line 2: This is not valid CSV: ',' expected after"]),
    ],
)  # fmt: skip
def test_every_fault_is_told_with_its_place(text, expected):
    found = faults_of(read_tasks, text)
    assert len(found) == len(expected)
    assert [f for f, start in zip(found, expected, strict=True) if not f.startswith(start)] == []


def test_long_cells_are_read():
    [task] = read_tasks("prompt,reference\n" + "y" * 200_000 + ",1")
    assert (len(task.prompt), task.reference) == (200_000, "1")


def test_of_many_faults_the_first_are_told_and_the_rest_counted():
    [found] = faults_of(read_tasks, "prompt,reference\n" + "x\n" * 100)
    assert found.startswith("line 2, line 3, ")
    assert ", line 21 and 80 more: This row has 1 column" in found
    with pytest.raises(ImportingError) as refused:
        raise_any([Fault(f"line {n}", f"Fault {n}.") for n in range(100)])
    assert len(refused.value.faults) == 21
    assert str(refused.value.faults[-1]) == "And 80 more like these."


@given(st.text(max_size=300))
def test_every_text_is_read_or_refused(text):
    for read in (read_tasks, read_gold, read_responses):
        with suppress(ImportingError):
            read(text)


@given(st.lists(st.builds(TaskSpec, prompt=words, reference=st.text(storable, max_size=20)), max_size=5))
def test_tasks_written_are_read_back(tasks):
    assert read_tasks(write_tasks(tasks)) == tasks


@given(
    st.lists(
        st.builds(
            GoldSpec, prompt=words, better=words, worse=words, explanation=st.text(storable, max_size=20)
        ),
        max_size=4,
    )
)
def test_gold_items_written_are_read_back(gold):
    assert read_gold(write_gold(gold)) == gold


def test_gold_items_come_as_csv_too_and_miss_nothing():
    assert read_gold("prompt,better,worse\nA,b,w\n") == [GoldSpec("A", "b", "w")]
    assert faults_of(read_gold, "prompt,better,worse\nA,b,\n") == [
        "line 2: worse is empty. Fill it in, or remove the row."
    ]


class TestResponses:
    def test_tasks_and_policies_are_those_of_the_file_in_its_order(self):
        answers = read_responses(
            "policy,task,response,reference\nB,Two?,zwei,\nA,One?,1,1\nB,One?,one,1\nB,Two?,,2\n"
        )
        assert answers.policies == ["B", "A"]
        assert answers.tasks == [TaskSpec("Two?", "2"), TaskSpec("One?", "1")]
        assert answers.responses == [
            ReadyMade(0, "B", "zwei"),
            ReadyMade(1, "A", "1"),
            ReadyMade(1, "B", "one"),
            ReadyMade(0, "B", ""),
        ]

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            (
                "task,policy\na,A\n",
                "line 2: Missing: response. Found: task, policy. Add the column, or rename one.",
            ),
            (
                "task,response\na,A\n",
                "line 2: Missing: policy. Found: task, response. Add the column, or rename one.",
            ),
            (
                "task,policy,response,reference\na,A,1,1\na,B,1,2\n",
                "line 3: This task has a different reference",
            ),
            (
                f"task,policy,response\na,{'A' * 101},1\n",
                "line 2: The name of the policy has more than 100 characters. Shorten it.",
            ),
            ('["a"]', "entry 1: This must be an object"),
        ],
    )
    def test_what_is_missing_or_contradicts_itself_is_told(self, text, fault):
        assert faults_of(read_responses, text)[0].startswith(fault)


def of_bytes(most: int) -> Limit:
    return Limit("bytes", most, "A test.", "Send less.")


class TestDecoded:
    def test_the_mark_that_some_programs_begin_with_is_no_text(self):
        assert decoded(BytesIO("\ufeffä".encode()), of_bytes(10)) == "ä"

    @pytest.mark.parametrize(
        "data", ["ä".encode("latin-1"), "a\nb\nä".encode("latin-1"), "ä".encode("utf-16-be")]
    )
    def test_another_encoding_is_refused_with_its_line(self, data):
        with pytest.raises(ImportingError, match=rf"line {data.count(10) + 1}: This is not UTF-8"):
            decoded(BytesIO(data), of_bytes(100))

    def test_more_than_is_allowed_is_refused(self):
        with pytest.raises(ImportingError, match=r"larger than 0\.001 MB"):
            decoded(BytesIO(b"x" * 1001), of_bytes(1000))


@pytest.mark.parametrize(
    "text",
    [
        "question\nOne?\nTwo?\n",
        '"task"\r\nOne?\r\nTwo?\r\n',
        "input,target\nOne?,\nTwo?,\n",
        "question;answer\rOne?;\rTwo?;\r",
        '{"task": "One?"}\r{"task": "Two?"}\r',
        "One?\r\nTwo?\r",
    ],
)
def test_every_name_of_a_task_makes_a_heading_and_lines_end_as_files_have_it(text):
    """The heading "question,answer" was a task of its own, and its rows were tasks with a comma."""
    assert read_tasks(text) == [TaskSpec("One?"), TaskSpec("Two?")]


def test_only_the_ends_of_lines_part_plain_tasks():
    """`str.splitlines` parts at eight more characters."""
    odd = "a\u2028b\u0085c\x0bd\x1ee"
    assert read_tasks(f"{odd}\nsecond") == [TaskSpec(odd), TaskSpec("second")]


def test_a_text_that_looks_like_json_is_told_why():
    [fault] = faults_of(read_tasks, "[Maths] What is 1 + 1?\n")
    assert "What begins with [ or { is read as JSON; a CSV with the heading task is not." in fault
    assert read_tasks("prompt\n[Maths] What is 1 + 1?\n") == [TaskSpec("[Maths] What is 1 + 1?")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"task": "a", "task": "b"}', "'task' appears twice in one object. Remove one of them."),
        ('[{"task": "a", "Task": "b"}]', "entry 1: Two names differ only in capital letters"),
        ('{"examples": {"\\ud800": 5}}', "The name '\\ud800': a character cannot be stored"),
    ],
)
def test_a_name_that_comes_twice_or_fits_no_page_is_refused(text, fault):
    """The last of two was taken; and a page that named half of a surrogate pair failed with 500."""
    assert faults_of(read_tasks, text)[0].startswith(fault)


def test_a_file_of_responses_without_a_response_says_what_it_must_hold():
    assert faults_of(read_responses, "task,policy,response\n") == [
        "There are no responses here. The first line names task, policy and response; the others hold them."
    ]


@pytest.mark.parametrize("line", ['{"task": "a", "policy": "P", "response": "r"}', "{}"])
def test_no_more_rows_are_read_than_the_limit_be_they_faulty(line, settings, monkeypatch):
    """Three million lines of `{}`, 10 MB, kept a web process busy for minutes."""
    settings.MOST_RESPONSES = 30
    read: list[str] = []

    def counted(text: str):
        read.append(text)
        return loads(text)

    monkeypatch.setattr("engine.importing.json_rows.loads", counted)
    found = faults_of(read_responses, f"{line}\n" * 1000)
    assert (
        "and 10 more" if line == "{}" else "More than 30 ready-made responses, which is the limit."
    ) in found[-1]
    assert len(read) < 40
