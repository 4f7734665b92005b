"""Answers of real servers of models: one function a behaviour, asked for by the name of the model.

The behaviours are of public reports. ``serving()`` puts all of them on one loopback server.
"""

import asyncio
import base64
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from engine.domain.connection_targets import Target
from engine.domain.conversations import chat
from engine.domain.levels import SamplingParams
from engine.domain.profiles import Provider, takes_of
from engine.generation.base import GenerationRequest, Outcome
from engine.generation.remote.client import Client
from tests.generation.chat_server import ChatServer, Reply, completion, error, serve

Asked = dict[str, Any]
Behaviour = Callable[[Asked], Reply]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


def replies(**named: Reply | Callable[[], Reply]) -> None:
    """Behaviours that do not depend on what is asked."""
    for name, reply in named.items():
        BEHAVIOURS[name] = lambda asked, reply=reply: reply() if callable(reply) else reply


def message(finish: str | None = "stop", usage: Mapping[str, Any] | None = None, **parts: Any) -> Reply:
    """A completion whose message has these parts."""
    reply = completion("", message={"role": "assistant", **parts}, finish_reason=finish)
    if usage is not None:
        reply.body["usage"] = dict(usage)
    return reply


def said(text: str, finish: str = "stop", **usage: Any) -> Reply:
    return message(finish, content=text, usage=usage or {"prompt_tokens": 3, "completion_tokens": 2})


def without(reply: Reply, *names: str) -> Reply:
    return Reply({name: value for name, value in reply.body.items() if name not in names})


def body(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(value if isinstance(value, bytes) else json.dumps(value).encode(), status, headers)


def fastapi(kind: str, field: str, words: str) -> Reply:
    return body({"detail": [{"type": kind, "loc": ["body", field], "msg": words}]}, 422)


# ---------------------------------------------------------------- what a model takes


def refusing(
    *fields: str, words: str = "Unsupported parameter: '{}' is not supported with this model."
) -> Behaviour:
    """A server that refuses these fields, wherever they are."""

    def answer(asked: Asked) -> Reply:
        for field in fields:
            if field in asked:
                return error(400, words.format(field), "unsupported_parameter")
        return completion("fine")

    return answer


BEHAVIOURS |= {
    "newest_gpt": refusing(
        "max_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "top_k",
        words="Unsupported parameter: '{}' is not supported with this model. Use 'max_completion_tokens'.",
    ),
    "only_max_tokens": refusing("max_completion_tokens", words="{}: extra_forbidden"),
    "no_top_k": refusing("top_k", words="Unrecognized request argument supplied: {}"),
}


@behaviour
def mistral(asked: Asked) -> Reply:
    known = {
        "model",
        "messages",
        "temperature",
        "top_p",
        "max_tokens",
        "random_seed",
        "stop",
        "response_format",
    }
    for field in asked.keys() - known:
        return fastapi("extra_forbidden", field, "Extra inputs are not permitted")
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Count them."}]},
        {"type": "text", "text": "Four."},
    ]
    return message(content=parts)


@behaviour
def gemini(asked: Asked) -> Reply:
    known = {
        "model",
        "messages",
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "reasoning_effort",
        "extra_body",
    }
    for field in asked.keys() - known:
        words = f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.'
        return body([{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}], 400)
    return said("Four.", prompt_tokens=10, completion_tokens=2, total_tokens=40)


@behaviour
def claude(asked: Asked) -> Reply:
    """Anthropic's own protocol, strict."""

    def refuse(words: str) -> Reply:
        wrong = {"type": "invalid_request_error", "message": words}
        return body({"type": "error", "error": wrong, "request_id": "req_1"}, 400)

    if "max_tokens" not in asked:
        return refuse("max_tokens: Field required")
    if "temperature" in asked and "top_p" in asked:
        return refuse("`temperature` and `top_p` cannot both be specified for this model.")
    if any(each["role"] == "system" for each in asked["messages"]):
        return refuse("messages: Unexpected role system")
    thinking = asked.get("thinking", {})
    if thinking.get("budget_tokens", 0) >= asked["max_tokens"]:
        return refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}] if thinking else []
    return claude_says([*blocks, {"type": "text", "text": "Four."}])


def claude_says(content: Any, stop: str = "end_turn") -> Reply:
    usage = {
        "input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 7
    }  # fmt: skip
    made = {"type": "message", "role": "assistant", "model": "claude-x", "content": content}
    return body({**made, "stop_reason": stop, "usage": usage})


replies(
    claude_refuses=claude_says([{"type": "text", "text": "I can"}], "refusal"),
    claude_pauses=claude_says([{"type": "text", "text": "Let me"}], "pause_turn"),
    claude_cut=claude_says([{"type": "thinking", "thinking": "So long"}], "max_tokens"),
    claude_calls_a_tool=claude_says(
        [{"type": "tool_use", "id": "1", "name": "look", "input": {}}], "tool_use"
    ),
    claude_overloaded=body(
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529
    ),
    claude_poor=body(
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"},
        },
        400,
    ),
)


@behaviour
def bedrock(asked: Asked) -> Reply:
    if asked.keys() - {"system", "messages", "inferenceConfig", "additionalModelRequestFields"}:
        return body({"message": "The format of the request is not supported."}, 400)
    roles = [each["role"] for each in asked["messages"]]
    if any(one == two for one, two in pairwise(roles)):
        return body({"message": "A conversation must alternate between user and assistant roles."}, 400)
    return bedrock_says(
        [{"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "x"}}}, {"text": "Four."}]
    )


def bedrock_says(content: Any, stop: str = "end_turn") -> Reply:
    usage = {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13, "cacheReadInputTokens": 0}
    return body(
        {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop, "usage": usage}
    )


replies(
    bedrock_guarded=bedrock_says([{"text": "Sorry, blocked."}], "guardrail_intervened"),
    bedrock_throttles=body({"message": "Too many tokens, please wait before trying again."}, 429),
    bedrock_unknown=body({"message": "The provided model identifier is invalid."}, 400),
)


@behaviour
def no_system(asked: Asked) -> Reply:
    if any(each["role"] == "system" for each in asked["messages"]):
        return error(400, "System role not supported")
    return completion("fine")


@behaviour
def alternating(asked: Asked) -> Reply:
    roles = [each["role"] for each in asked["messages"] if each["role"] != "system"]
    if any(role != ("user", "assistant")[n % 2] for n, role in enumerate(roles)):
        return error(400, "Conversation roles must alternate user/assistant/user/assistant/...")
    return completion("fine")


@behaviour
def at_most_four_stops(asked: Asked) -> Reply:
    if len(asked.get("stop", ())) > 4:
        return error(400, "Invalid 'stop': array too long. Expected an array with maximum length 4.")
    return completion("fine")


replies(
    no_seed=fastapi("extra_forbidden", "seed", "Extra inputs are not permitted"),
    hot=error(400, "Unsupported value: 'temperature' does not support 0.3 with this model."),
    too_many_tokens_asked=error(
        400, "max_tokens is too large: 9000. This model's maximum context length is 4096"
    ),
)

# ---------------------------------------------------------------- thinking and marks

replies(
    fine=completion("fine"),
    all_thought_cut=message("length", content=None, reasoning_content="Let me see"),
    all_thought=message("stop", content=None, reasoning_content="Let me see"),
    think_tags=said("<think>\nCount.\n</think>\n\nFour."),
    think_tag_open_in_template=said("Count.\n</think>\n\nFour."),
    think_never_closed=said("<think>Count, and count", "length"),
    think_brackets=said("[THINK]Count.[/THINK]Four."),
    thought_tags=said("<thought>Count.</thought>Four."),
    channels=said(
        "<|channel|>analysis<|message|>Count.<|end|><|start|>assistant<|channel|>final<|message|>Four."
    ),
    channels_unmarked=said("analysisCount.assistantfinalFour."),
    gemma_thinks=said("<|channel>thought\nCount.<channel|>Four."),
    cohere_thinks=said("<|START_THINKING|>Count.<|END_THINKING|>Four."),
    one_part=message(content={"type": "text", "text": "Four."}),
    broken_characters=Reply(b'{"choices": [{"message": {"content": "Four\xff"}}]}'),
    speaks_of_tags=said("Wrap it in <think> and </think>."),
    reasoning_field=message(
        content="Four.",
        reasoning="Count.",
        usage={
            "prompt_tokens": 9,
            "completion_tokens": 30,
            "completion_tokens_details": {"reasoning_tokens": 25},
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    ),
    reasoning_content_field=message(content="\n\nFour.", reasoning_content="Count."),
    reasoning_details=message(
        content="Four.",
        reasoning_details=[
            {"type": "reasoning.text", "text": "Count."},
            {"type": "reasoning.encrypted", "data": "gAAAA"},
        ],
    ),
    parts=message(content=[{"type": "text", "text": "Fo"}, {"type": "text", "text": "ur."}]),
    llama2_mark=said("Four.</s>"),
    llama3_mark=said("Four.<|eot_id|>"),
    gemma_mark=said("Four.<end_of_turn>\n"),
    chatml_marks=said("Four.<|im_end|>\n<|im_end|>"),
    deepseek_mark=said("Four.<｜end▁of▁sentence｜>"),
    struck_out=said("It is <s>three</s>"),
)

# ---------------------------------------------------------------- no answer

replies(
    filtered_null=message("content_filter", content=None),
    filtered_half=message("content_filter", content="Half a"),
    filtered_prohibited=message("content_filter: PROHIBITED_CONTENT"),
    filtered_no_message=completion("", message=None, finish_reason="content_filter"),
    filtered_no_choice=body({"choices": [], "promptFeedback": {"blockReason": "SAFETY"}}),
    filtered_recitation=message("content_filter: RECITATION", content="Half a"),
    filtered_by_guidelines=body(
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO",
        },
        403,
    ),
    cut_no_message=body({"choices": [{"finish_reason": "length", "index": 0}]}),
    filtered_400=body(
        {
            "error": {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's policy.",
                "code": "content_filter",
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
        400,
    ),
    filtered_403=body(
        {"error": {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["violence"]}}},
        403,
    ),
    refusal_field=message(content=None, refusal="I can't help with that."),
    tool_calls_only=message("tool_calls", content=None, tool_calls=[{"id": "1", "type": "function"}]),
    blank=said(" \n"),
    too_long=error(400, "This model's maximum context length is 4096 tokens.", "context_length_exceeded"),
    too_long_500=error(500, "the request exceeds the available context size"),
    too_long_429=error(
        429, "Request too large for gpt-x on tokens per min (TPM): Limit 30000", "rate_limit_exceeded"
    ),
    too_long_413=body(b"Payload Too Large", 413),
    error_as_text=said("Error: This model's maximum context length is 4096 tokens."),
)

# ---------------------------------------------------------------- the server's fault

replies(
    error_in_200=body({"error": {"code": 429, "message": "Provider returned error"}}),
    busy_in_200=body({"error": {"message": "Overloaded", "type": "overloaded_error"}}),
    busy_500=error(500, "litellm.RateLimitError: too many requests"),
    spent_400=body({"__type": "ServiceQuotaExceededException", "message": "You exceeded your quota."}, 400),
    compressed=Reply(b"\x1f\x8b\x08 broken"),
    a_stream=Reply(b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n'),
    error_string_in_200=body({"error": "upstream is gone"}),
    choice_error=completion("Half a sent", error={"code": 502, "message": "Upstream"}, finish_reason="error"),
    finish_error=message("error", content=""),
    finish_abort=message("abort", content="Half a"),
    web_page=Reply(b"<!DOCTYPE html><html>It works!</html>", content_type="text/html"),
    cut_json=Reply(b'{"id": "1", "choices": [{"mess'),
    nothing=Reply(b""),
    a_number=Reply(b"17"),
    deep=Reply(b"[" * 100_000),
    no_choices=body({"id": "1", "choices": []}),
    null_message=body({"choices": [{"message": None, "finish_reason": None}], "usage": None}),
    null_usage=body({"choices": [{"message": {"content": "Four."}, "finish_reason": None}], "usage": None}),
    no_usage=without(completion("Four."), "usage"),
    retry_hour=error(429, "Slow down", Retry_After="3600"),
    retry_milliseconds=error(429, "Slow down", retry_after_ms="120500"),
    retry_date=error(
        429, "Slow down", Retry_After="Sun, 29 Nov 2026 10:00:30 GMT", Date="Sun, 29 Nov 2026 10:00:00 GMT"
    ),
    retry_never_said=error(429, "Slow down"),
    retry_nonsense=error(429, "Slow down", Retry_After="soon"),
    retry_negative=error(429, "Slow down", Retry_After="-5"),
    retry_huge=error(429, "Slow down", Retry_After="9" * 30),
    retry_in_body=body(
        [
            {
                "error": {
                    "code": 429,
                    "message": "You exceeded your current quota.",
                    "details": [{"retryDelay": "17s"}],
                }
            }
        ],
        429,
    ),
    engine_dead=error(500, "EngineCore encountered an issue"),
    broken_page=Reply(b"<html>502 Bad Gateway</html>", 502, content_type="text/html"),
    no_body=Reply(b"", 500),
    loading=body({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503),
    busy_400=error(400, "Model is loading, try again later."),
    busy_403=error(403, "Rate limit exceeded"),
    given_up=body(b"", 499),
    conflict=error(409, "Another request is under way"),
    timed_out=error(408, "Request timeout"),
    request_took_too_long=error(504, "The request took too long to complete."),
    request_took_too_long_in_200=body({"error": {"message": "Request took too long"}}),
    moderation_away=error(503, "Service unavailable: the moderation service is down"),
    filter_broken=error(500, "The content filter failed"),
    finish_server_error=message("server_error", content="Half a"),
    finish_unloaded=message("modelUnloaded", content="Half a"),
    half_sent=lambda: Reply(json.dumps(completion("x" * 900).body).encode(), missing=500),
)


@behaviour
def slow(asked: Asked) -> Reply:
    time.sleep(1.5)
    return completion("fine")


# ---------------------------------------------------------------- access

replies(
    wrong_key=error(401, "Incorrect API key provided: sk-…", "invalid_api_key"),
    unpaid=error(402, "Insufficient credits"),
    no_such_place=body([{"error": {"message": "User location is not supported for the API use."}}], 400),
    forbidden=error(403, "Project does not have access to model"),
    unknown_model=error(404, "The model `x` does not exist", "model_not_found"),
    unknown_model_400=body({"object": "error", "message": "Invalid model: x", "type": "invalid_model"}, 400),
    retired=error(400, "The model `x` has been decommissioned", "model_decommissioned"),
    unknown_path=Reply(b"<html>Not Found</html>", 404, content_type="text/html"),
    no_quota=error(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    google_key=body(
        [
            {
                "error": {
                    "code": 400,
                    "message": "API key not valid.",
                    "details": [{"reason": "API_KEY_INVALID"}],
                }
            }
        ],
        400,
    ),
    schema_that_names_moderation=error(
        400, "Invalid schema for response_format 'response': property 'moderation' has no type"
    ),
    redirect_to_moderation=error(302, "Moved to the moderation service"),
    redirect=Reply(b"", 307, {"Location": "http://127.0.0.1:1/v1/chat/completions"}),
    huge=lambda: said("x" * 3_000_000),
    long_text=lambda: said("x" * 200_001),
    unstorable=lambda: said("a\x00b\ud800"),
)


def adds_up(asked: Asked) -> Reply:
    """The sum of the task's numbers in the style that is asked for; in a hurry, wrong half of the time."""
    said = " ".join(message["content"] for message in asked["messages"])
    numbers = re.findall(r"\d+", said)
    share_wrong = 0.5 if "hurry" in said else 0.05
    answer = sum(map(int, numbers)) + (random.random() < share_wrong)
    if "step by step" in said:
        return completion(f"{' + '.join(numbers)} = {answer}. Answer: {answer}")
    if "explain" in said:
        return completion(f"{answer}. The numbers are {' and '.join(numbers)}.")
    return completion(str(answer))


def echoing(server: ChatServer, status: int = 401) -> Reply:
    """All that was asked, plain and encoded, as an error or as an answer."""
    headers = server.headers[-1]
    credentials = headers.get("authorization", headers.get("api-key", headers.get("x-api-key", "")))
    key = credentials.removeprefix("Bearer ")
    encoded = " ".join(
        base64.b64encode(each.encode()).decode() for each in (key, credentials, f"user:{key}", key[:20])
    )
    words = f"No: {headers} {encoded} {key[3:15]} {key.upper()} http://me:{key}@host/?key={key}&a=1"
    return error(status, words) if status != 200 else said(words)


@contextmanager
def serving() -> Iterator[ChatServer]:
    """All behaviours on one server of this machine, each by the name of the model that is asked for."""

    def respond(asked: Asked) -> Reply:
        name = asked.get("model") or server.paths[-1].split("/model/")[-1].split("/")[0]
        if name.startswith("echo"):
            return echoing(server, int(name.removeprefix("echo")))
        return BEHAVIOURS[name](asked)

    with serve(respond) as server:
        yield server


def target_at(
    address: str, model: str, provider: Provider = Provider.COMPATIBLE, *, as_model: str = "", **more: Any
) -> Target:
    """A connection to a model, by the rules of another one if it is named."""
    takes = takes_of(provider, as_model or model, more.pop("takes", {}))
    return Target(1, "ours", provider, model, address, takes, **more)


class Asker:
    """A client that is asked from code that does not wait."""

    def __init__(self, runner: asyncio.Runner, client: Client) -> None:
        self.runner, self.client = runner, client

    def __call__(self, target: Target, messages: Any = None, **sampling: Any) -> Outcome:
        levels = SamplingParams(**sampling)
        asked = GenerationRequest(7, messages or chat("How many animals?"), levels, 11, "ours")
        return self.runner.run(self.client.ask(target, asked))


@contextmanager
def asking() -> Iterator[Asker]:
    with asyncio.Runner() as runner:
        client = Client()
        yield Asker(runner, client)
        runner.run(client.__aexit__(None, None, None))
