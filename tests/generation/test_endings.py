"""Every reported behaviour of a server has its right ending: an answer in parts, no answer, or a failure."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.domain.conversations import chat
from engine.domain.levels import SamplingParams
from engine.domain.profiles import Provider
from engine.domain.texts import storable
from engine.generation.base import (
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
)
from engine.generation.remote.errors import Answer
from engine.generation.remote.replies import read, remarks_of
from engine.generation.remote.scrubbing import scrub
from tests.generation.chat_server import ChatServer
from tests.servers import BEHAVIOURS, Asker, asking, serving, target_at

FULL = {"temperature": 0.3, "top_p": 0.9, "max_tokens": 64, "stop": (".",), "seed": True}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def private(settings: Any) -> None:
    settings.ALLOW_PRIVATE_CONNECTIONS = True


@pytest.fixture(scope="module")
def ask() -> Iterator[Asker]:
    with asking() as asker:
        yield asker


def result(outcome: Outcome) -> GenerationResult:
    assert isinstance(outcome, GenerationResult), outcome
    assert (outcome.key, outcome.model) == (7, "ours")
    assert outcome.latency_seconds > 0
    return outcome


def failure(outcome: Outcome) -> GenerationFailure:
    assert isinstance(outcome, GenerationFailure), outcome
    assert outcome.key == 7
    return outcome


THOUGHT = {"thinking": "Count.", "text": "Four."}


@pytest.mark.parametrize(
    ("model", "parts"),
    {
        "think_tags": THOUGHT,
        "think_tag_open_in_template": THOUGHT,
        "think_brackets": THOUGHT,
        "thought_tags": THOUGHT,
        "channels": THOUGHT,
        "channels_unmarked": THOUGHT,
        "cohere_thinks": THOUGHT,
        "gemma_thinks": THOUGHT,
        "one_part": {"text": "Four."},
        "broken_characters": {"text": "Four\ufffd", "served_model": ""},
        "reasoning_field": THOUGHT
        | {"thinking_tokens": 25, "completion_tokens": 30, "cached_tokens": 4, "prompt_tokens": 9},
        "reasoning_content_field": THOUGHT | {"text": "\n\nFour."},
        "reasoning_details": THOUGHT,
        "think_never_closed": {"thinking": "Count, and count", "text": "", "finish_reason": Finish.LENGTH},
        "all_thought_cut": {"thinking": "Let me see", "text": "", "finish_reason": Finish.LENGTH},
        "all_thought": {"thinking": "Let me see", "text": "", "finish_reason": Finish.STOP},
        "speaks_of_tags": {"thinking": "", "text": "Wrap it in <think> and </think>."},
        "parts": {"text": "Four."},
        "llama2_mark": {"text": "Four.", "marks": ("</s>",)},
        "llama3_mark": {"text": "Four.", "marks": ("<|eot_id|>",)},
        "gemma_mark": {"text": "Four.", "marks": ("<end_of_turn>",)},
        "chatml_marks": {"text": "Four.", "marks": ("<|im_end|>", "<|im_end|>")},
        "deepseek_mark": {"text": "Four.", "marks": ("<｜end▁of▁sentence｜>",)},
        "struck_out": {"text": "It is <s>three</s>", "marks": ()},
        "blank": {"text": "", "finish_reason": Finish.STOP},
        "tool_calls_only": {"text": "", "finish_reason": Finish.STOP},
        "null_usage": {"text": "Four.", "prompt_tokens": None, "completion_tokens": None},
        "no_usage": {"text": "Four.", "completion_tokens": None, "served_model": "small"},
        "unstorable": {"text": "a\ufffdb\ufffd"},
        "filtered_null": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_half": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_prohibited": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_no_message": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_no_choice": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_recitation": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_by_guidelines": {"text": "", "finish_reason": Finish.FILTERED},
        "cut_no_message": {"text": "", "finish_reason": Finish.LENGTH},
        "filtered_400": {"text": "", "finish_reason": Finish.FILTERED},
        "filtered_403": {"text": "", "finish_reason": Finish.FILTERED},
        "refusal_field": {"text": "", "refusal": "I can't help with that.", "finish_reason": Finish.REFUSED},
        "too_long": {
            "text": "",
            "finish_reason": Finish.ERROR,
            "reason": "127.0.0.1 finds this request too long (400).",
            "said": "This model's maximum context length is 4096 tokens.",
        },
        "too_long_500": {"finish_reason": Finish.ERROR},
        "too_long_429": {"finish_reason": Finish.ERROR},
        "too_long_413": {"finish_reason": Finish.ERROR},
        "error_as_text": {"text": "Error: This model's maximum context length is 4096 tokens."},
        "huge": {
            "text": "",
            "finish_reason": Finish.ERROR,
            "reason": "The answer of 127.0.0.1 is longer than 200,000 characters in one text.",
            "completion_tokens": 2,
        },
        "long_text": {"finish_reason": Finish.ERROR},
    }.items(),
)
def test_a_reply_has_parts_and_an_honest_finish(server, ask, model, parts):
    outcome = result(ask(target_at(server.url, model)))
    assert {name: getattr(outcome, name) for name in parts} == parts


@pytest.mark.parametrize(
    ("model", "reason", "wait"),
    [
        ("error_in_200", "asks to wait (429)", None),
        ("error_string_in_200", "an error in place of a reply", None),
        ("choice_error", "failed (502)", None),
        ("finish_error", "broke off", None),
        ("finish_abort", "broke off", None),
        ("web_page", "Is the address right?", None),
        ("cut_json", "garbage", None),
        ("nothing", "garbage", None),
        ("a_number", "garbage", None),
        ("deep", "garbage", None),
        ("no_choices", "without a choice", None),
        ("null_message", "without a message", None),
        ("retry_hour", "asks to wait (429)", 3600),
        ("retry_milliseconds", "asks to wait (429)", 120.5),
        ("retry_date", "asks to wait (429)", 30),
        ("retry_never_said", "asks to wait (429)", None),
        ("retry_nonsense", "asks to wait (429)", None),
        ("retry_negative", "asks to wait (429)", None),
        ("retry_huge", "asks to wait (429)", None),
        ("busy_in_200", "asks to wait (502)", None),
        ("busy_500", "asks to wait (500)", None),
        ("spent_400", "asks to wait (400)", None),
        ("compressed", "garbage", None),
        ("a_stream", "garbage", None),
        ("retry_in_body", "asks to wait (429)", 17),
        ("engine_dead", "failed (500)", None),
        ("broken_page", "failed (502)", None),
        ("no_body", "failed (500)", None),
        ("loading", "is not ready (503)", None),
        ("busy_400", "asks to wait (400)", None),
        ("busy_403", "asks to wait (403)", None),
        ("given_up", "failed (499)", None),
        ("conflict", "is busy (409)", None),
        ("timed_out", "took too long (408)", None),
        ("half_sent", "The connection to 127.0.0.1 broke.", None),
        ("request_took_too_long", "failed (504)", None),
        ("request_took_too_long_in_200", "an error in place of a reply", None),
        ("moderation_away", "is not ready (503)", None),
        ("filter_broken", "failed (500)", None),
        ("finish_server_error", "broke off", None),
        ("finish_unloaded", "broke off", None),
    ],
)
def test_a_servers_fault_is_to_be_asked_again(server, ask, model, reason, wait):
    outcome = failure(ask(target_at(server.url, model)))
    asks_for_time = any(word in reason for word in ("wait", "not ready", "busy"))
    assert outcome.fault == (Fault.BUSY if asks_for_time else Fault.SERVER)
    assert reason in outcome.reason
    assert "127.0.0.1" in outcome.reason
    assert outcome.wait_seconds == wait


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("wrong_key", "refuses the key (401). Enter another key."),
        ("unpaid", "wants to be paid (402)"),
        ("forbidden", "refuses access (403)"),
        ("no_such_place", "refuses the key, the account or the model (400)"),
        ("unknown_model", "does not know the model or the address (404)"),
        ("unknown_model_400", "the model (400)"),
        ("retired", "the model (400)"),
        ("unknown_path", "does not know the model or the address (404)"),
        ("no_quota", "has no quota left for this account (429)"),
        ("google_key", "refuses the key, the account or the model (400)"),
        ("redirect", "another address, which is not followed (307)"),
        ("redirect_to_moderation", "another address, which is not followed (302)"),
    ],
)
def test_access_that_is_refused_stops_the_connection(server, ask, model, reason):
    outcome = failure(ask(target_at(server.url, model)))
    assert (outcome.fault, outcome.wait_seconds) == (Fault.ACCESS, None)
    assert reason in outcome.reason


def test_a_policy_whose_fields_find_no_server_stops_no_connection(server, ask):
    outcome = failure(ask(target_at(server.url, "unknown_model"), extra_body={"provider": {"only": ["x"]}}))
    assert outcome.fault == Fault.SETTINGS


@pytest.mark.parametrize(
    ("model", "reason", "said"),
    [
        ("newest_gpt", "refuses max_tokens (400)", "Use 'max_completion_tokens'."),
        ("no_seed", "refuses seed (422)", "body.seed: Extra inputs are not permitted"),
        ("hot", "refuses temperature (400)", "does not support 0.3"),
        ("mistral", "refuses seed (422)", "body.seed: Extra inputs"),
        ("gemini", "refuses seed (400)", 'Unknown name "seed"'),
        ("too_many_tokens_asked", "refuses max_tokens (400)", "max_tokens is too large"),
        ("schema_that_names_moderation", "refuses what this policy sends (400)", "property 'moderation'"),
    ],
)
def test_a_refused_setting_is_named_and_the_servers_words_are_kept(server, ask, model, reason, said):
    sampling = FULL if model == "hot" else {"max_tokens": 64, "seed": True}
    outcome = failure(ask(target_at(server.url, model), **sampling))
    assert outcome.fault == Fault.SETTINGS
    assert reason in outcome.reason
    assert said in outcome.said


@pytest.mark.parametrize("sampling", [{}, FULL], ids=["nothing set", "all set"])
@pytest.mark.parametrize(
    ("provider", "as_model", "model", "text"),
    [
        (Provider.OPENAI, "gpt-5.2", "newest_gpt", "fine"),
        (Provider.AZURE, "gpt-5.2", "newest_gpt", "fine"),
        (Provider.COMPATIBLE, "x", "only_max_tokens", "fine"),
        (Provider.MISTRAL, "mistral-large", "mistral", "Four."),
        (Provider.GOOGLE, "gemini-3-pro", "gemini", "Four."),
        (Provider.ANTHROPIC, "claude-sonnet-4-5", "claude", "Four."),
        (Provider.BEDROCK, "eu.anthropic.claude-sonnet-4-5", "bedrock", "Four."),
    ],
)
def test_strict_imitations_of_vendors_answer_the_first_request(
    server, ask, provider, as_model, model, text, sampling
):
    target = target_at(server.url, model, provider, as_model=as_model)
    assert result(ask(target, chat("Hi", "Be brief."), **sampling)).text == text


class TestVendors:
    def test_anthropics_parts_tokens_and_endings(self, server, ask):
        def asked(model: str, **sampling: Any) -> Outcome:
            return ask(target_at(server.url, model, Provider.ANTHROPIC), **sampling)

        thought = result(asked("claude", reasoning_tokens=2000))
        assert (thought.thinking, thought.text, thought.served_model) == ("Hm.", "Four.", "claude-x")
        assert (thought.prompt_tokens, thought.cached_tokens, thought.completion_tokens) == (10, 3, 7)
        refused = result(asked("claude_refuses"))
        assert (refused.text, refused.refusal, refused.finish_reason) == ("", "I can", Finish.REFUSED)
        cut = result(asked("claude_cut"))
        assert (cut.text, cut.thinking, cut.finish_reason) == ("", "So long", Finish.LENGTH)
        assert result(asked("claude_pauses")).finish_reason == Finish.LENGTH
        assert result(asked("claude_calls_a_tool")).text == ""
        assert failure(asked("claude_overloaded")).fault == Fault.BUSY
        assert failure(asked("claude_poor")).fault == Fault.ACCESS

    def test_bedrocks_parts_and_endings(self, server, ask):
        def asked(model: str) -> Outcome:
            return ask(target_at(server.url, model, Provider.BEDROCK))

        thought = result(asked("bedrock"))
        assert (thought.thinking, thought.text, thought.prompt_tokens) == ("Hm.", "Four.", 9)
        assert result(asked("bedrock_guarded")).finish_reason == Finish.FILTERED
        assert failure(asked("bedrock_throttles")).fault == Fault.BUSY
        assert failure(asked("bedrock_unknown")).fault == Fault.ACCESS

    def test_mistrals_thinking_is_a_part_and_geminis_is_counted(self, server, ask):
        mistral = result(ask(target_at(server.url, "mistral", Provider.MISTRAL)))
        assert (mistral.thinking, mistral.text) == ("Count them.", "Four.")
        gemini = result(ask(target_at(server.url, "gemini", Provider.GOOGLE)))
        assert (gemini.completion_tokens, gemini.thinking_tokens) == (30, 28)


@pytest.mark.parametrize(
    ("model", "sampling", "remark"),
    [
        ("all_thought_cut", {}, "Raise max_tokens"),
        ("blank", {}, "stopped without a text"),
        ("llama3_mark", {}, "ended in <|eot_id|>"),
        ("speaks_of_tags", {}, "tags of thinking"),
        ("error_as_text", {}, "reads as an error"),
        ("fine", {"stop": ("fi",)}, "stop text 'fi'"),
        ("fine", {}, "far fewer tokens"),
    ],
)
def test_a_trial_is_told_what_is_odd(server, ask, model, sampling, remark):
    messages = chat("word " * 5000)
    outcome = result(ask(target_at(server.url, model), messages, **sampling))
    remarks = remarks_of(outcome, GenerationRequest(7, messages, SamplingParams(**sampling)))
    assert any(remark in each for each in remarks)


def test_nothing_is_remarked_of_an_ordinary_answer(server, ask):
    outcome = result(ask(target_at(server.url, "reasoning_field")))
    assert remarks_of(outcome, GenerationRequest(7, chat("How many animals?"))) == []


def mutated(draw: st.DrawFn) -> Any:
    """An answer of some vendor with anything in the place of some of its parts."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
        ),
        max_leaves=6,
    )

    def copied(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(anything)
        if isinstance(value, dict):
            return {name: copied(each) for name, each in value.items() if draw(st.integers(0, 19))}
        return [copied(each) for each in value] if isinstance(value, list) else value

    return copied(json.loads(draw(st.sampled_from(ANSWERS))))


_PLAIN = {"messages": []}
ANSWERS = [
    reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body)
    for reply in (
        *(
            BEHAVIOURS[name](_PLAIN)
            for name in ("reasoning_field", "mistral", "bedrock", "reasoning_details")
        ),
        *(BEHAVIOURS[name](_PLAIN) for name in ("filtered_400", "error_in_200", "retry_in_body", "no_seed")),
        BEHAVIOURS["claude"](_PLAIN | {"max_tokens": 9000, "thinking": {"budget_tokens": 2000}}),
    )
]
NAMES = [
    "error",
    "message",
    "content",
    "choices",
    "code",
    "text",
    "thinking",
    "detail",
    "loc",
    "type",
    "usage",
]


@settings(max_examples=100)
@given(
    data=st.composite(mutated)(),
    status=st.sampled_from([200, 201, 302, 400, 401, 404, 429, 500]),
    provider=st.sampled_from([Provider.COMPATIBLE, Provider.ANTHROPIC, Provider.BEDROCK]),
)
def test_no_answer_at_all_raises(data, status, provider):
    target = target_at("https://host/v1", "m", provider, key="sk-0123456789abcdef")
    request = GenerationRequest(7, chat("Hi"))
    outcome = read(target, request, Answer(status, {"retry-after": "x"}, json.dumps(data).encode()), 0.1)
    if isinstance(outcome, GenerationResult):
        for each in (outcome.text, outcome.thinking, outcome.refusal, outcome.served_model, outcome.said):
            each.encode()
        remarks_of(outcome, request)
    else:
        assert outcome.fault != Fault.WORKER


class TestHostileAnswers:
    def test_words_that_no_database_stores_are_marked(self):
        said = scrub("a \ud800 b \x00", target_at("https://a.example.org", "m"))
        assert storable(said) == said

    def test_no_sum_of_tokens_is_larger_than_a_column(self):
        usage = {"input_tokens": 2**31 - 1, "cache_read_input_tokens": 2**31 - 1, "output_tokens": 3}
        body = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": usage}
        target = target_at("https://a.example.org", "m", Provider.ANTHROPIC)
        answer = Answer(200, {}, json.dumps(body).encode())
        outcome = read(target, GenerationRequest(1, chat("Hi")), answer, 0.1)
        assert isinstance(outcome, GenerationResult)
        assert (outcome.prompt_tokens or 0) < 2**31
        assert outcome.completion_tokens == 3

    def test_thinking_that_is_nested_without_end_is_none(self):
        nested: Any = "deep"
        for _ in range(500):
            nested = [nested]
        message = {"content": "Hi", "reasoning_details": nested}
        body = {"choices": [{"message": message, "finish_reason": "stop"}]}
        answer = Answer(200, {}, json.dumps(body).encode())
        outcome = read(target_at("https://a.example.org", "m"), GenerationRequest(1, chat("Hi")), answer, 0.1)
        assert isinstance(outcome, GenerationResult)
        assert (outcome.text, outcome.thinking) == ("Hi", "")
