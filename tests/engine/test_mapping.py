"""Columns with other names, wide tables, and what a file of responses is warned about."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.domain.limits import FILE_BYTES
from engine.importing import slips
from engine.importing.files import read_experiment
from engine.importing.items import Answers, read_responses, read_tasks
from engine.importing.mapping import parse_columns
from engine.importing.rows import ImportingError, Remedy
from engine.importing.sources import source_of
from engine.importing.votes.reading import read_votes
from engine.importing.warnings import warnings_of_tasks
from engine.management.mapping import REMEDIES
from engine.models import Experiment


def told(answers: Answers) -> list[tuple[str, str, str]]:
    return [(answers.tasks[r.task].prompt, r.policy, r.response) for r in answers.responses]


WIDE = [("One?", "GPT 4", "1"), ("One?", "Claude", "one"), ("Two?", "GPT 4", "2"), ("Two?", "Claude", "two")]


@pytest.mark.parametrize(
    "text",
    [
        "Question,GPT 4,Claude,notes\nOne?,1,one,x\nTwo?,2,two,y\n",
        "sep=;\nQuestion;Claude;GPT 4\nOne?;one;1\nTwo?;two;2\n",
        '{"question": "One?", "GPT 4": "1", "Claude": "one"}\n'
        '{"question": "Two?", "GPT 4": 2, "Claude": "two"}',
    ],
)
def test_a_wide_table_has_a_column_for_each_policy(text):
    answers = read_responses(text, parse_columns(["question=task", "GPT 4=response", "Claude=response"]))
    assert answers.policies == ["GPT 4", "Claude"]
    assert told(answers) == WIDE


def test_a_fault_of_a_row_of_a_wide_table_is_told_once():
    columns = {"q": "task", "GPT 4": "response", "Claude": "response"}
    with pytest.raises(ImportingError) as refused:
        read_responses("q,GPT 4,Claude\nOne?,1,one\n,2,two\n", columns)
    assert str(refused.value) == "line 3: task is empty. Fill it in, or remove the row."


def test_columns_with_other_names_are_responses_tasks_and_votes():
    columns = parse_columns(["q=task", "who=policy", "a=b=response", "gold=reference"])
    answers = read_responses("Q,who,a=b,gold,policy\nOne?,P,1,1,not this\nOne?,Q,one,,nor this\n", columns)
    assert told(answers) == [("One?", "P", "1"), ("One?", "Q", "one")]
    assert answers.tasks[0].reference == "1"
    [task] = read_tasks("q,gold\nOne?,1\n", columns)
    assert (task.prompt, task.reference) == ("One?", "1")
    file = io.BytesIO(b"item,left one,right one,better\nT,P,Q,a\n")
    said = ["item=task", "left one=policy_a", "right one=policy_b", "better=winner"]
    [vote] = read_votes(source_of([("votes.csv", file)], FILE_BYTES), parse_columns(said)).votes
    assert (vote.task, vote.policy_a, vote.policy_b, vote.winner) == ("T", "P", "Q", "a")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["task"], "'task' is no mapping. Write COLUMN=MEANING."),
        (["q=prompt"], "Column 'q': 'prompt' means nothing. Use one of task, policy, response"),
        (
            ["q=task", "r=task"],
            "Columns 'q' and 'r' both mean task, and only one can. Choose another",
        ),
        (["q=task", "x=policy"], "There is no column 'x'. Found: q, r. Correct the mapping."),
        (["q=task"], "Missing: policy. Found: r, task"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused_with_the_columns_that_there_are(said, words):
    with pytest.raises(ImportingError) as error:
        read_responses("q,r\nOne?,1\n", parse_columns(said))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("heading", "expected"),
    [("input,target", ("One?", "1")), ("question,answer", ("One?", "1")), ("question,ideal", ("One?", "1"))],
)
def test_an_answer_is_never_part_of_the_task(heading, expected):
    [task] = read_tasks(f"{heading}\nOne?,1\n")
    assert (task.prompt, task.reference) == expected


def test_squads_answers_and_evals_ideal_are_references():
    squad = '{"question": "One?", "context": "c", "answers": {"text": ["1", "one"], "answer_start": [0, 4]}}'
    none = '{"question": "Two?", "answers": {"text": [], "answer_start": []}}'
    evals = '{"input": "Three?", "ideal": ["3", "three"]}'
    tasks = read_tasks(f"{squad}\n{none}\n{evals}")
    assert [(task.prompt, task.reference) for task in tasks] == [("One?", "1"), ("Two?", ""), ("Three?", "3")]


def test_slips_are_counted_and_nothing_is_left_out():
    rows = ["T1,A,x", "T1,A,x", "T1,A,x", "T1 ,A,", "T1,B,NaN", "T1 ,B,  ", "t2,a,y"]
    answers = read_responses("\n".join(["task,policy,response", *rows]))
    assert len(answers.responses) == len(rows)
    assert list(answers.warnings) == [
        "2 responses came more than once, with the same task, policy and text.",
        "2 responses had no text: 'A' at task 2, 'B' at task 2.",
        "1 response said only null, None, NaN or N/A, as programs write for no text.",
        "1 policy came with nearly equal names, such as 'A' and 'a'. They count as different ones.",
        "1 task came with nearly equal names, such as 'T1' and 'T1 '. They count as different ones.",
    ]
    assert read_responses("task,policy,response\nT1,A,x\nT1,B,x\n").warnings == []


RIVALS = (
    "{} with both task and prompt: task is read, and prompt is left out. Where that is wrong, say what each "
    "column is, or rename one."
)
FAILED = (
    "{} said only {} or the like, as spreadsheets write for a formula that failed. Mend the formulas, and "
    "save the file again."
)


def test_tasks_that_differ_in_their_variables_alone_are_counted() -> None:
    """A file of 700 votes on 40 questions became 700 tasks, and nothing said that they are 40."""
    rows = "".join(f"Question {n % 4}?,{n}\n" for n in range(10)) + "Question 0?,0\n"
    text = f"prompt,number\n{rows}"
    assert warnings_of_tasks(read_tasks(text), text) == [
        "1 task came more than once. Each counts.",
        "6 tasks came with the text of an earlier one, and with other variables: 4 different texts in all. "
        "Each task counts.",
    ]


def test_two_columns_of_tasks_and_formulas_that_failed_are_counted():
    tasks = "task,prompt,answer\nOne,Two,#REF!\nThree,Three,\nFour,,#N/A\n#VALUE!,Five,1\n"
    assert warnings_of_tasks(read_tasks(tasks), tasks) == [
        FAILED.format("1 task", "#VALUE!"),
        FAILED.format("2 answers or variables", "#REF!"),
        RIVALS.format("2 rows"),
    ]
    responses = "task,prompt,policy,response\nOne,Two,A,#DIV/0!\nOne,,B,Err:508\n"
    assert read_responses(responses).warnings == [
        FAILED.format("2 responses", "#DIV/0!"),
        RIVALS.format("1 row"),
    ]
    assert read_responses(responses, {"task": "task"}).warnings == [FAILED.format("2 responses", "#DIV/0!")]


def test_space_around_a_task_stays_and_is_counted():
    text = json.dumps([{"prompt": "One?"}, {"prompt": "\n  def f():\n    "}, {"prompt": "Two? "}])
    tasks = read_tasks(text)
    assert [task.prompt for task in tasks] == ["One?", "\n  def f():\n    ", "Two? "]
    assert warnings_of_tasks(tasks, text) == [
        "2 tasks with spaces or empty lines around the text. They stay, as a model reads them. If they are "
        "not meant, remove them.",
    ]
    assert warnings_of_tasks(read_tasks(" One? \n\n"), " One? \n\n") == []


def test_columns_that_can_be_no_variable_are_named():
    tasks = '{"prompt": "One?", "Choices": ["a"], "full name": "Ann", "none": null, "n": 1, "tags": ["x"]}'
    [task] = read_tasks(tasks)
    assert task.variables == {"n": "1"}
    assert warnings_of_tasks([task], tasks) == [
        "2 columns left out: 'choices', 'full name'. A variable has a name such as customer_name, and is a "
        "text or a number.",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "Warm\u200b", "\ufeffWarm", "Wa\u00adrm", "Warm\u2069", "Ｗarm", "Warm\u00a0", "W\u2060arm\ufe0f",
    ],
)  # fmt: skip
def test_names_that_look_the_same_are_nearly_equal(name):
    [warning] = slips.nearly_equal(["Warm", name, "Wärm"], "policy", "policies")
    assert warning.startswith(f"1 policy came with nearly equal names, such as 'Warm' and {name!r}.")


def test_a_letter_with_its_accent_is_the_same_in_one_character_or_two():
    assert list(slips.nearly_equal(["Caf\u00e9", "Cafe\u0301", "Cafe"], "policy", "policies"))
    assert not list(slips.nearly_equal(["Caf\u00e9", "Cafe", "👍🏽", "👍"], "policy", "policies"))


DESCRIPTION = "name: Wide\nresponses_file: answers.csv\n"


def test_a_description_says_what_the_columns_of_its_file_are():
    files = {"answers.csv": "q,GPT 4,Claude\nOne?,1,one\nTwo?,2,two\n"}
    described = f"{DESCRIPTION}columns: {{q: task, GPT 4: response, Claude: response}}\n"
    spec = read_experiment(described, read_file=files.__getitem__).spec
    assert [(spec.tasks[r.task].prompt, r.policy, r.response) for r in spec.ready_made] == WIDE
    with pytest.raises(ImportingError, match="line 3, columns: Column 'q': 'x' means nothing"):
        read_experiment(f"{DESCRIPTION}columns: {{q: x}}\n", read_file=files.__getitem__)


def test_a_description_warns_of_its_file_of_tasks():
    files = {"tasks.csv": "task,prompt\nOne,Two\n"}
    described = "name: Tasks\ntasks_file: tasks.csv\n"
    read = partial(read_experiment, read_file=files.__getitem__)
    assert read(described).warnings == [RIVALS.format("1 row")]
    assert read(f"{described}columns: {{prompt: task}}\n").warnings == []


@pytest.mark.parametrize(
    ("heading", "missing"),
    [
        ("q,GPT 4,Claude", "task or prompt or input or question"),
        ("task,GPT 4,Claude", "policy"),
        ("task,policy,words", "response"),
    ],
)
def test_a_column_that_no_row_has_is_missed_once_with_how_to_name_it(heading, missing):
    with pytest.raises(ImportingError) as refused:
        read_responses(f"{heading}\n" + "One?,1,one\n" * 30)
    [said] = refused.value.said({Remedy.COLUMN: "Name it: {}."})
    assert said.startswith(f"Missing: {missing}. Found: {heading.replace(',', ', ')}. ")
    assert said.endswith(f" None of the 30 rows has it. Name it: {missing.split()[0]}.")
    with pytest.raises(ImportingError) as refused:
        read_responses(f"{heading}\nOne?,1,one\n")
    [said] = refused.value.said({Remedy.COLUMN: "Name it: {}."})
    assert said.endswith(f" Name it: {missing.split()[0]}.")


def test_one_that_some_rows_lack_is_told_with_their_places():
    rows = [{"task": "One?", "response": "1"}, {"task": "One?", "policy": "A", "response": "2"}]
    with pytest.raises(ImportingError, match=r"^entry 1: Missing: policy\. Found: task, response\. [^\n]*$"):
        read_responses(json.dumps(rows))


def test_a_mapping_of_no_column_is_told_before_the_rows_that_it_spoils():
    with pytest.raises(ImportingError) as refused:
        read_responses("q,r\n" + "One?,1\n" * 30, parse_columns(["x=task", "r=response"]))
    assert str(refused.value).startswith("There is no column 'x'. Found: q, r. Correct the mapping.\n")
    assert "You can also" not in "\n".join(refused.value.said(REMEDIES))


@pytest.mark.django_db
def test_the_command_line_says_it_too_and_shows_the_warnings(tmp_path: Path):
    (tmp_path / "answers.csv").write_text("q,GPT 4,Claude\nOne?,1,one\nTwo?,2,\n")
    (tmp_path / "experiment.yaml").write_text(DESCRIPTION)
    file = str(tmp_path / "experiment.yaml")
    words = r'Missing: task or prompt.* Found: q.* You can also say which column it is: --map "NAME=task"\.'
    with pytest.raises(CommandError, match=words):
        call_command("load_experiment", file)
    err = io.StringIO()
    said = ["--map=q=task", "--map=GPT 4=response", "--map=Claude=response"]
    call_command("load_experiment", file, *said, stdout=io.StringIO(), stderr=err)
    assert Experiment.objects.get().policies.count() == 2
    assert "Warning: 1 response had no text: 'Claude' at task 2." in err.getvalue()
