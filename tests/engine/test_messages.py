"""Messages of other tools, of every shape that is known."""

import json

import pytest

from engine.domain.conversations import Message, chat
from engine.importing.messages import Answer, LeftOutError, answers_in, asked_in, unflattened

HI = Message("user", "Hi")
OUTPUT = {"type": "output_text", "text": "Yes."}


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "user", "content": '[{"type": "text", "text": "Hi"}]'},
        {"role": "user", "parts": [{"type": "text", "content": "Hi"}]},
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"type": "human", "content": "Hi"},
        {"type": "human", "data": {"content": "Hi", "additional_kwargs": {}}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Hi"}},
        {
            "lc": 1,
            "id": ["langchain_core", "HumanMessageChunk"],
            "kwargs": {"content": [{"type": "text", "text": "Hi"}]},
        },
        {"message": {"role": "user", "content": "Hi"}},
        {"message": {"role": "user", "contents": [{"message_content": {"type": "text", "text": "Hi"}}]}},
        ["human", "Hi"],
        '{"role": "user", "content": "Hi"}',
    ],
)
def test_a_turn_of_any_shape(turn):
    for given in ([turn], [[turn]], {"messages": [turn]}, {"messages": json.dumps([turn]), "model": "m"}):
        asked = asked_in(given)
        assert (asked.messages, asked.system, asked.variables) == ((HI,), "", {})


@pytest.mark.parametrize(
    "given",
    [
        [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}],
        [
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": [{"type": "text", "text": "S"}]},
        ],
        {"system": "S", "messages": [{"role": "user", "content": "Hi"}]},
        {"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "Hi"}]},
        {"instructions": "S", "input": "Hi", "model": "m"},
        {
            "system_instruction": {"parts": [{"text": "S"}]},
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        },
    ],
)
def test_a_system_text_is_apart(given):
    asked = asked_in(given)
    assert (asked.messages, asked.system) == ((HI,), "S")


def test_the_last_turn_of_the_user_is_the_task_with_its_history():
    turns = [("user", "Hi"), ("assistant", "Hello"), ("user", "A?"), ("assistant", "B")]
    asked = asked_in([{"role": role, "content": text} for role, text in turns])
    assert [each.content for each in asked.messages] == ["Hi", "Hello", "A?"]
    tools = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "2"},
    ]
    asked = asked_in([{"role": "user", "content": "Hi"}, *tools])
    assert (asked.messages, asked.after_tools) == (chat("Hi"), True)
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "2"}]}
    assert asked_in([{"role": "user", "content": "Hi"}, result]).messages == chat("Hi")


@pytest.mark.parametrize(
    ("given", "text", "variables"),
    [
        ("Hi", "Hi", {}),
        ({"question": "Hi", "locale": "de"}, "Hi", {"locale": "de"}),
        ({"args": [], "kwargs": {"question": "Hi"}}, "Hi", {}),
        ({"args": ["Hi"], "kwargs": {}}, "Hi", {}),
        ({"args": [{"question": "Hi"}], "kwargs": {}}, "Hi", {}),
        ({"letter": "Hi", "n": 3}, "Hi", {"n": 3}),
        ({"inner": {"question": "Hi"}, "input": {"question": "Ho"}}, "Ho", {"inner": {"question": "Hi"}}),
        (
            {"messages": [{"type": "human", "content": "Hi"}], "locale": "de", "temperature": 1},
            "Hi",
            {"locale": "de"},
        ),
        ({"prompts": ["Hi"]}, "Hi", {}),
    ],
)
def test_one_of_named_values_asks(given, text, variables):
    asked = asked_in(given)
    assert (asked.messages[-1].content, asked.variables) == (text, variables)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "text of the user"),
        ({}, "text of the user"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "picture"),
        ([{"role": "user"}], "text of the user"),
        ([{"role": "system", "content": "S"}], "text of the user"),
    ],
)
def test_what_asks_nothing_says_why(given, reason):
    with pytest.raises(LeftOutError, match=reason):
        asked_in(given)


@pytest.mark.parametrize(
    "given",
    [
        "Yes.",
        {"role": "assistant", "content": "Yes."},
        [{"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}],
        {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}]},
        {"choices": [{"text": "Yes.", "finish_reason": "stop"}]},
        {"generations": [[{"text": "Yes.", "type": "ChatGeneration"}]]},
        {"generations": [[{"message": {"lc": 1, "id": ["AIMessage"], "kwargs": {"content": "Yes."}}}]]},
        {"answer": "Yes."},
        {"verdict": "Yes."},
        {"output": {"type": "ai", "content": "Yes."}},
        {"messages": [{"type": "human", "content": "Hi"}, {"type": "ai", "content": "Yes."}]},
        {"output": [{"type": "reasoning", "summary": []}, {"type": "message", "content": [OUTPUT]}]},
        {"type": "message", "role": "assistant", "content": [OUTPUT], "stop_reason": "end_turn"},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]},
        [{"role": "assistant", "parts": [{"type": "text", "content": "Yes."}], "finish_reason": "stop"}],
        '{"role": "assistant", "content": "Yes."}',
    ],
)  # fmt: skip
def test_an_answer_of_any_shape(given):
    assert answers_in(given) == [Answer("Yes.")]


def test_thinking_is_apart_and_a_cut_answer_is_marked():
    parts = [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "Yes"}]
    [answer] = answers_in([{"role": "assistant", "parts": parts, "finish_reason": "length"}])
    assert answer == Answer("Yes", "Hm.", is_cut=True)
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes"}]
    [answer] = answers_in({"role": "assistant", "content": parts, "stop_reason": "max_tokens"})
    assert answer == Answer("Yes", "Hm.", is_cut=True)
    [answer] = answers_in({"choices": [{"message": {"content": "Yes", "reasoning_content": "Hm."}}]})
    assert answer == Answer("Yes", "Hm.")
    both = [{"role": "assistant", "parts": [{"type": "text", "content": text}]} for text in ("A", "B")]
    assert answers_in(both) == [Answer("A"), Answer("B")]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "no answer"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, "tool call"),
        ([{"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}], "tool call"),
        ({"choices": [{"message": {"content": None, "refusal": "No."}}]}, "refusal"),
        ({"choices": [{"message": {"content": "No"}, "finish_reason": "content_filter"}]}, "filtered"),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "filtered"),
    ],
)
def test_a_call_without_an_answer_says_why(given, reason):
    [found] = answers_in(given)
    assert isinstance(found, LeftOutError)
    assert reason in str(found)


def test_names_with_dots_and_numbers_are_objects_and_lists():
    flat = {"a.b.0.c": 1, "a.b.1.c": 2, "a.b.10.c": 3, "d": [{"e.f": 4}], "a.g": None}
    assert unflattened(flat) == {
        "a": {"b": [{"c": 1}, {"c": 2}, {"c": 3}], "g": None},
        "d": [{"e": {"f": 4}}],
    }
    assert unflattened({"p": "x", "p.0.c": "y"}) == {"p": {"": "x", "0": {"c": "y"}}}
