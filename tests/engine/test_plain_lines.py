"""Tasks that are plain lines, as people copy them from elsewhere: each slip is told with its count."""

from __future__ import annotations

import pytest

from engine.importing.items import read_tasks
from engine.importing.rows import ImportingError
from engine.importing.votes.reading import read_votes
from engine.importing.warnings import warnings_of_tasks
from tests.engine.test_sources import source


def warned(text: str) -> list[str]:
    return warnings_of_tasks(read_tasks(text), text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<p>One?</p>\n<p>Two?</p>\nThree?\n", "2 tasks written in HTML, such as '<p>One?</p>'"),
        ("<br>\nWho?\n<!-- mine -->\n", "2 tasks written in HTML, such as '<br>'"),
        ("- One?\n- Two?\n- Three?\n", "3 tasks with a mark of a list or of Markdown, such as '- One?'"),
        ("# Tasks\n1. One?\n2. Two?\n", "3 tasks with a mark of a list"),
        ("1.\tOne?\n2.\tTwo?\n•\tThree?\n", "3 tasks with a mark of a list"),
        ("One?\n---\nTwo?\n", "1 task with a mark of a list or of Markdown, such as '---'"),
        ("```\nOne?\nTwo?\n", "1 task with a mark of a list"),
        ('"One?"\n"Two?"\n', "2 tasks in quotation marks, such as '\"One?\"'"),
        ('"One?",\n"Two?",\n', "2 tasks in quotation marks"),
        ('"{\\"task\\": \\"One?\\"}"\n"Say \\"hi\\"."\n', "2 tasks in quotation marks"),
        ("“One?”\n„Two?“\n", "2 tasks in quotation marks"),
        ("Q: One?\nA: 1\nQ: Two?\nA: 2\n", "2 tasks like an answer, such as 'A: 1'"),
        ("One?\nAnswer 1: first\nTwo?\n", "1 task like an answer"),
        ("User: Hello!\nAssistant: Hi.\nUser: Tea?\n", "1 task like an answer, such as 'Assistant: Hi.'"),
        ("2 + 2 => 4\n3 + 3 => 6\n", "2 of 2 lines may have an answer behind the task, such as '2 + 2 => 4'"),
        ("What is 2 + 2? = 4\nWhat is 3 + 3? = 6\nWho?\n", "2 of 3 lines may have an answer"),
        ("One? | 1\nTwo? | 2\n", "2 of 2 lines may have an answer"),
        ("One?; 1\nTwo?; 2\n", "2 of 2 lines may have an answer"),
        ("Write a poem\nabout the sea.\n\nWrite a story\nabout a cat.\n", "2 blocks of several lines"),
    ],
)
def test_lines_that_may_be_no_tasks_as_they_are_are_told(text, words):
    [warning] = [each for each in warned(text) if "came more than once" not in each]
    assert warning.startswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "Is 3 < 4 and 5 > 4?\nWhat does <b> mean?\nWhy?\n",
        "Name a colour.\n\nName a fruit.\n\nName a tool.\n",
        "Name a colour.\nName a fruit.\nName a tool.\n",
        "-5 + 3 is what?\n3.5 is what?\nA cat or a dog?\n",
        'Who said "no"?\nWhat is a "list"?\n"A" or "B", which comes first?\n',
        "What does a -> b mean?\nWhy?\nWho?\n",
        "One?\t1\nTwo?\t2\n",
        # These were refused as statements of SQL.
        "Begin a story with a dragon (at most 50 words)\nTell a joke\n",
        "Copy the first sentence from the text (verbatim)\nTell a joke\n",
        "Set x = 3 and simplify 2x + 1 (show your steps)\nTell a joke\n",
        "Create table manners for a child (short)\nTell a joke\n",
    ],
)
def test_lines_that_are_tasks_are_let_be(text):
    assert warned(text) == []


def test_a_line_of_which_nobody_sees_anything_is_an_empty_one():
    """The end mark of DOS was a task."""
    given = "\ufeff\u200b\nOne?\n\u00a0\u200b\nTwo?\n\x1a"
    assert [task.prompt for task in read_tasks(given)] == ["One?", "Two?"]


@pytest.mark.parametrize("unseen", ["\u200b", "\u200b\u2060", "\x1a", "\u202e"])
def test_a_task_of_which_nobody_sees_anything_is_refused_in_a_table(unseen):
    with pytest.raises(ImportingError, match="line 2: The task is empty"):
        read_tasks(f"task,answer\n{unseen},1\n")
    with pytest.raises(ImportingError, match="line 2: The task is empty"):
        read_votes(source(f"task,model_a,model_b,winner\n{unseen},P,Q,a\n".encode()))
