"""Votes that could be read in two ways: refused or told, never taken for one of them without a word."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engine.importing.rows import ImportingError
from engine.importing.votes.reading import read_votes
from engine.importing.votes.vote import Votes
from tests.engine.test_sources import source


def votes_in(records: Any) -> Votes:
    return read_votes(source(records.encode() if isinstance(records, str) else json.dumps(records).encode()))


def winners(records: Any) -> list[str]:
    return [vote.winner for vote in votes_in(records).votes]


@pytest.mark.parametrize("said", ["-1", "+1", "−1", ".1", "≠a", "!a", "<a", ">b", "a?", "~b", "/2"])
def test_a_sign_or_a_doubt_is_no_answer(said):
    """Of -1 and 1 both were read as a, as marks in an answer do not matter."""
    text = f"task,model_a,model_b,winner\nT,P,Q,1\nT,P,Q,{said}\n"
    with pytest.raises(ImportingError, match=re.escape(f"line 3: winner is '{said}'. Write a, b, tie")):
        votes_in(text)


def test_the_middle_of_alpacaevals_preferences_is_a_tie():
    row = {"instruction": "T", "generator_1": "P", "generator_2": "Q", "output_1": "p", "output_2": "q"}
    rows = [row | {"preference": said} for said in (1.0, 1.5, 2.0)]
    assert winners(rows) == ["a", "tie", "b"]
    with pytest.raises(ImportingError, match=r"winner is '1\.9753'"):
        votes_in([row | {"preference": 1.9753}])


def label_studio(*results: dict[str, Any]) -> list[dict[str, Any]]:
    data = {"prompt": "T", "text1": "p", "text2": "q", "model_a": "P", "model_b": "Q"}
    return [{"data": data, "annotations": [{"result": [{"value": each} for each in results]}]}]


LEFT, RIGHT = {"selected": "left"}, {"selected": "right"}


@pytest.mark.parametrize(
    "results",
    [(LEFT, RIGHT), ({"choices": ["A"]}, {"choices": ["B"]}), (LEFT, {"choices": ["B"]}),
     ({"choices": ["tie", "both bad"]},)],
)  # fmt: skip
def test_an_annotation_of_label_studio_with_two_answers_is_refused(results):
    """The first of them was taken, whichever was meant."""
    with pytest.raises(ImportingError, match="entry 1: An annotation has several answers: "):
        votes_in(label_studio(*results))
    short = {"annotation_id": 1, "prompt": "T", "model_a": "P", "model_b": "Q", "tone": LEFT, "facts": RIGHT}
    with pytest.raises(ImportingError, match="several answers: 'left', 'right'"):
        votes_in([short])


@pytest.mark.parametrize(
    ("results", "winner"),
    [
        ((LEFT, LEFT), "a"),
        ((RIGHT, {"choices": ["B"]}), "b"),
        ((LEFT, {"choices": ["tie", "Polite"]}), "tie"),
    ],
)
def test_an_annotation_whose_results_agree_is_one_answer(results, winner):
    assert winners(label_studio(*results)) == [winner]


@pytest.mark.parametrize(
    ("name", "value", "winner"), [("agreement", "both bad", "both_bad"), ("verdict", "same", "tie")]
)
def test_a_choice_for_no_side_beside_a_side_counts(name, value, winner):
    row = {"annotation_id": 1, "prompt": "T", "model_a": "P", "model_b": "Q", "pw": "left"}
    assert winners([row | {name: value}]) == [winner]


@pytest.mark.parametrize("value", ["draw", "Same", "equal", "neither"])
def test_data_beside_a_side_are_not_taken_for_a_tie(value):
    """A task of the category "draw" was a tie."""
    row = {"annotation_id": 1, "prompt": "T", "model_a": "P", "model_b": "Q", "pw": "left", "category": value}
    with pytest.raises(ImportingError, match=f"category is '{value}', and a side is chosen too"):
        votes_in([row])
    assert winners([row | {"pw": None}]) == ["both_bad" if value == "neither" else "tie"]


def argilla(*questions: str) -> list[dict[str, Any]]:
    answers = {name: [{"value": f"response_{'ab'[n]}", "user_id": "u"}] for n, name in enumerate(questions)}
    fields = {"prompt": "T", "response_a": "p", "response_b": "q"}
    return [{"fields": fields, "metadata": {"model_a": "P", "model_b": "Q"}, "responses": answers}]


def test_of_several_questions_of_argilla_the_one_that_is_called_so_counts():
    assert winners(argilla("tone", "preference")) == ["b"]
    assert winners(argilla("preference", "label")) == ["a"]
    with pytest.raises(ImportingError, match="entry 1: The answers to 'facts' and 'tone' name a response"):
        votes_in(argilla("facts", "tone"))


def test_a_policy_in_a_column_called_left_was_not_on_the_right():
    text = "task,model_left,model_right,winner,side_a\nT,P,Q,left,right\n"
    with pytest.raises(ImportingError, match="side_a is right, but the policy of a stands in"):
        votes_in(text)


def test_alpacas_instruction_and_input_are_one_task_of_a_vote_too():
    row = {"instruction": "Translate.", "input": "cat", "model_a": "P", "model_b": "Q", "winner": "a"}
    found = votes_in([row, row | {"input": ""}])
    assert [vote.task for vote in found.votes] == ["Translate.\n\ncat", "Translate."]
    assert not found.warnings


def test_columns_that_people_may_have_seen_are_told_where_they_are_left_out():
    vote = {"task": "T", "model_a": "P", "model_b": "Q", "winner": "a"}
    rows = [
        vote | {"System Prompt": "Be brief.", "model_c": "", "id": 1},
        vote | {"System Prompt": "", "model_c": "R", "id": 2},
    ]
    assert [warning.partition(".")[0] for warning in votes_in(rows).warnings] == [
        "1 row with 'system prompt', which is left out",
        "1 row with 'model_c', which is left out",
        "1 column left out: 'id'",
    ]
