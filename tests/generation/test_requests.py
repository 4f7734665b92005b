"""A request holds only what a level sets, in its vendor's words, and says what was left out."""

from typing import Any

import pytest

from engine.domain.conversations import ASSISTANT, SYSTEM, USER, Message, chat
from engine.domain.levels import SamplingParams
from engine.domain.profiles import Provider, refused, takes_of
from engine.generation.base import GenerationRequest
from engine.generation.remote.requests import Prepared, prepare
from tests.servers import target_at

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}
ALL: dict[str, Any] = {
    "temperature": 0.0,
    "top_p": 0.9,
    "top_k": 4,
    "max_tokens": 8000,
    "stop": ("a", "b"),
    "seed": True,
    "reasoning": "low",
    "response_format": SCHEMA,
}
# Models that count their thinking take no word for it.
BY_TOKENS = ALL | {"reasoning": "", "reasoning_tokens": 2000}


def prepared(
    provider: Provider = Provider.COMPATIBLE,
    model: str = "m",
    *,
    sampling: dict[str, Any] | None = None,
    messages: Any = None,
    address: str = "https://host/v1",
    **more: Any,
) -> Prepared:
    request = GenerationRequest(1, messages or chat("Hi", "Be brief."), SamplingParams(**sampling or {}), 7)
    return prepare(target_at(address, model, provider, key="s3cret-s3cret", **more), request)


def test_a_level_that_sets_nothing_sends_nothing():
    made = prepared()
    assert made.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    }
    assert (made.headers, made.left_out) == ({}, [])


SENT = {
    (Provider.OPENAI, "gpt-4.1"): {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_completion_tokens": 8000,
        "stop": ["a", "b"],
        "seed": 7,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "response", "strict": True, "schema": SCHEMA},
        },
    },
    (Provider.OPENAI, "gpt-5.2"): {
        "max_completion_tokens": 8000,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "response", "strict": True, "schema": SCHEMA},
        },
    },
    (Provider.ANTHROPIC, "claude-sonnet-4-5"): {
        "max_tokens": 8000,
        "stop_sequences": ["a", "b"],
        "thinking": {"budget_tokens": 2000, "type": "enabled"},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    (Provider.ANTHROPIC, "claude-opus-4-7"): {
        "max_tokens": 8000,
        "stop_sequences": ["a", "b"],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    },
    (Provider.OPENROUTER, "google/gemini"): {
        "temperature": 0.0,
        "top_p": 0.9,
        "top_k": 4,
        "max_tokens": 8000,
        "stop": ["a", "b"],
        "seed": 7,
        "reasoning": {"effort": "low"},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "response", "strict": True, "schema": SCHEMA},
        },
    },
    (Provider.BEDROCK, "eu.amazon.nova-pro-v1:0"): {
        "inferenceConfig": {"temperature": 0.0, "topP": 0.9, "maxTokens": 8000, "stopSequences": ["a", "b"]}
    },
    (Provider.BEDROCK, "eu.anthropic.claude-sonnet-4-5"): {
        "inferenceConfig": {"maxTokens": 8000, "stopSequences": ["a", "b"]},
        "additionalModelRequestFields": {"thinking": {"budget_tokens": 2000, "type": "enabled"}},
    },
}


@pytest.mark.parametrize(("provider", "model"), SENT)
def test_each_vendor_has_its_own_words_and_what_is_not_sent_is_said(provider, model):
    sampling = BY_TOKENS if "sonnet" in model else ALL
    made = prepared(provider, model, sampling=sampling)
    own = {"model", "messages", "system"}
    assert {name: value for name, value in made.body.items() if name not in own} == SENT[provider, model]
    assert list(made.left_out) == list(refused(takes_of(provider, model), SamplingParams(**sampling)))


def test_sentences_of_what_is_not_sent():
    def sentences(provider: Provider, model: str = "m", **sampling: Any) -> list[str]:
        return list(refused(takes_of(provider, model), SamplingParams(**sampling)))

    assert sentences(Provider.OPENAI, "o3", temperature=0.0) == [
        "temperature is not sent: this model refuses it."
    ]
    assert sentences(Provider.ANTHROPIC, "claude-3-5-haiku", temperature=0.5, top_p=0.5) == [
        "temperature and top_p are not sent together: this model takes one of them."
    ]
    assert sentences(Provider.ANTHROPIC, temperature=0.5, reasoning_tokens=2000, max_tokens=1000) == [
        "temperature is not sent: this model refuses it while it thinks.",
        "max_tokens (1,000) must be more than reasoning_tokens (2,000), which it includes.",
    ]
    assert sentences(Provider.OPENAI, stop=tuple("abcde")) == [
        "5 stop texts are set; this model takes at most 4."
    ]
    assert not sentences(Provider.AZURE, "gpt-35-turbo", temperature=0.5)
    assert not sentences(Provider.ANTHROPIC)


def test_claude_is_always_sent_a_maximum_and_that_is_said():
    made = prepared(Provider.ANTHROPIC, "claude-x", sampling={"reasoning_tokens": 1024})
    assert made.body["max_tokens"] == 4096 + 1024
    assert made.left_out == ["max_tokens is 5,120: this server demands a maximum, and the level sets none."]
    assert made.body["system"] == "Be brief."
    assert made.headers == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("provider", "address", "version", "url"),
    [
        (Provider.COMPATIBLE, "https://host/v1/", "", "https://host/v1/chat/completions"),
        (Provider.COMPATIBLE, "https://host/v1/chat/completions", "", "https://host/v1/chat/completions"),
        (Provider.ANTHROPIC, "https://host", "", "https://host/v1/messages"),
        (Provider.ANTHROPIC, "https://host/v1", "", "https://host/v1/messages"),
        (
            Provider.AZURE,
            "https://a.openai.azure.com",
            "",
            "https://a.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            Provider.AZURE,
            "https://a.openai.azure.com/openai/v1",
            "",
            "https://a.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            Provider.AZURE,
            "https://a.openai.azure.com/",
            "2024-10-21",
            "https://a.openai.azure.com/openai/deployments/my%2Fm/chat/completions?api-version=2024-10-21",
        ),
        (Provider.BEDROCK, "https://bedrock.aws", "", "https://bedrock.aws/model/my%2Fm/converse"),
    ],
)
def test_addresses_by_provider(provider, address, version, url):
    assert prepared(provider, "my/m", address=address, api_version=version).url == url


class TestMessages:
    TURNS = (
        Message(SYSTEM, "Be brief."),
        Message(USER, "One."),
        Message(USER, "Two."),
        Message(ASSISTANT, "Well?"),
        Message(USER, "Three."),
    )

    def test_a_refused_system_message_is_told_in_the_users_words(self):
        made = prepared(takes={"system": False}, messages=self.TURNS)
        contents = [each["content"] for each in made.body["messages"]]
        assert contents == ["Be brief.\n\nOne.", "Two.", "Well?", "Three."]
        assert made.left_out == [
            "The system message is sent in the user's first message: this model refuses it."
        ]

    def test_messages_of_one_role_are_joined_where_roles_must_alternate(self):
        made = prepared(takes={"alternating": True, "system": False}, messages=self.TURNS)
        contents = [each["content"] for each in made.body["messages"]]
        assert contents == ["Be brief.\n\nOne.\n\nTwo.", "Well?", "Three."]
        assert len(made.left_out) == 2

    def test_bedrock_has_its_own_shape(self):
        made = prepared(Provider.BEDROCK, "m", messages=self.TURNS)
        assert made.body["system"] == [{"text": "Be brief."}]
        assert made.body["messages"][0] == {"role": "user", "content": [{"text": "One.\n\nTwo."}]}


class TestFurtherFields:
    def test_a_levels_fields_go_over_the_connections_and_objects_are_joined(self):
        made = prepared(
            extra_body={"a": 1, "kwargs": {"x": 1, "y": 1}},
            sampling={"extra_body": {"a": 2, "kwargs": {"y": 2}}},
        )
        assert (made.body["a"], made.body["kwargs"]) == (2, {"x": 1, "y": 2})

    @pytest.mark.parametrize("field", ["api_base", "base_url", "api_key", "user_config", "system"])
    def test_no_field_may_lead_a_gateway_elsewhere(self, field):
        made = prepared(extra_body={field: "x"})
        assert field not in made.body
        assert made.left_out == [f"{field} of the extra body is not sent: the connection decides it."]

    def test_headers_are_sent_along_and_none_shows_the_key(self):
        made = prepared(headers={"X-Team": "a"})
        assert made.headers == {"X-Team": "a"}
        assert "s3cret" not in repr(made)
