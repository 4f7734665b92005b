"""Rules of each vendor's models: how a request to them is made, and why a setting is left out.

A connection's own ``takes`` overrides the profile, as vendors change their rules faster than we do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal

import re2

from engine.domain.levels import SamplingParams

Protocol = Literal["openai", "anthropic", "bedrock"]


# Level settings whose name in the request depends on the model.
SETTINGS = (
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop",
    "seed",
    "reasoning",
    "reasoning_tokens",
    "response_format",
    "extra_body",
)


class Provider(StrEnum):
    """The party that runs a server; ``COMPATIBLE``: any with OpenAI's chat protocol, ``WORKER``: ours."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"
    MISTRAL = "mistral"
    BEDROCK = "bedrock"
    AZURE = "azure"
    OPENROUTER = "openrouter"
    OLLAMA = "ollama"
    COMPATIBLE = "compatible"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Vendor:
    """The speech of a provider's servers.

    Attributes
    ----------
    protocol
        The shape of requests and answers.
    address
        Its usual base address; empty where each customer has another.
    key_header
        The header that carries the key; ``Authorization`` carries it after ``Bearer``.
    """

    title: str
    protocol: Protocol
    address: str = ""
    key_header: str = "Authorization"


VENDORS: Mapping[Provider, Vendor] = {
    Provider.OPENAI: Vendor("OpenAI", "openai", "https://api.openai.com/v1"),
    Provider.ANTHROPIC: Vendor("Anthropic", "anthropic", "https://api.anthropic.com/v1", "x-api-key"),
    Provider.GOOGLE: Vendor(
        "Google Gemini", "openai", "https://generativelanguage.googleapis.com/v1beta/openai"
    ),
    Provider.MISTRAL: Vendor("Mistral", "openai", "https://api.mistral.ai/v1"),
    Provider.BEDROCK: Vendor("Amazon Bedrock", "bedrock"),
    Provider.AZURE: Vendor("Azure OpenAI", "openai", key_header="api-key"),
    Provider.OPENROUTER: Vendor("OpenRouter", "openai", "https://openrouter.ai/api/v1"),
    Provider.OLLAMA: Vendor("Ollama", "openai", "http://localhost:11434/v1"),
    Provider.COMPATIBLE: Vendor("Any server with OpenAI's protocol (vLLM, llama.cpp, …)", "openai"),
}


def vendor_of(provider: Provider) -> Vendor:
    """The vendor of a provider; a worker's own server speaks OpenAI's protocol."""
    return VENDORS.get(provider, VENDORS[Provider.COMPATIBLE])


@dataclass(frozen=True, slots=True)
class Takes:
    """The settings that a model takes: each one's name in the request, or "" where the model refuses it.

    A name with dots is a field within others.

    Attributes
    ----------
    temperature_with_top_p
        False of a model that takes either, but not both.
    system
        False of a model that refuses system messages: they are folded into the user's first turn.
    alternating
        True of a model that refuses two messages of one role in a row: they are joined.
    most_stops
        The most stop texts in one request; 0 is no limit.
    """

    temperature: str = "temperature"
    top_p: str = "top_p"
    top_k: str = ""
    max_tokens: str = "max_tokens"
    stop: str = "stop"
    seed: str = "seed"
    reasoning: str = ""
    reasoning_tokens: str = ""
    response_format: str = "response_format"
    extra_body: bool = True
    temperature_with_top_p: bool = True
    system: bool = True
    alternating: bool = False
    most_stops: int = 0


# OpenAI's models that think, at OpenAI and at Azure.
_THINKING = r"^(o[1-9]|gpt-([5-9]|[1-2]\d))"
_NEWER_OPENAI = {"temperature": "", "top_p": "", "stop": "", "seed": "", "reasoning": "reasoning_effort"}
# Claude from 4.6 on thinks as much as an effort says; from 4.7 on it takes nothing else.
_EFFORT = r"claude-(opus|sonnet)-4-6"
_EFFORT_ALONE = r"claude-(opus-4-[7-9]|(opus|sonnet|haiku|fable)-([5-9]|\d\d)|mythos)"
_NO_SAMPLING = {"temperature": "", "top_p": "", "top_k": "", "reasoning_tokens": ""}
# Places of Bedrock's fields: common to all models, or specific to a vendor.
_SHARED, _VENDORS_OWN = "inferenceConfig", "additionalModelRequestFields"

# (provider, pattern of the model's id, differences from OpenAI's usual protocol); later lines go on earlier
# ones. Sources: the vendors' references of their chat interfaces; docs/models.md names each.
_RULES: tuple[tuple[Provider, str, Mapping[str, Any]], ...] = (
    (Provider.OPENAI, "", {"max_tokens": "max_completion_tokens", "most_stops": 4}),
    (Provider.OPENAI, _THINKING, _NEWER_OPENAI),
    (Provider.AZURE, "", {"max_tokens": "max_completion_tokens", "most_stops": 4}),
    (Provider.AZURE, _THINKING, _NEWER_OPENAI),
    (
        Provider.ANTHROPIC,
        "",
        {
            "top_k": "top_k",
            "stop": "stop_sequences",
            "seed": "",
            "reasoning_tokens": "thinking.budget_tokens",
            "response_format": "output_config.format",
            "temperature_with_top_p": False,
        },
    ),
    (Provider.ANTHROPIC, f"{_EFFORT}|{_EFFORT_ALONE}", {"reasoning": "output_config.effort"}),
    (Provider.ANTHROPIC, _EFFORT_ALONE, _NO_SAMPLING),
    (
        Provider.GOOGLE,
        "",
        {
            "seed": "",
            "reasoning": "reasoning_effort",
            "reasoning_tokens": "extra_body.google.thinking_config.thinking_budget",
            "most_stops": 5,
        },
    ),
    (Provider.MISTRAL, "", {"seed": "random_seed"}),
    (Provider.MISTRAL, r"^mistral-(small|medium)", {"reasoning": "reasoning_effort"}),
    (
        Provider.BEDROCK,
        "",
        {
            "temperature": f"{_SHARED}.temperature",
            "top_p": f"{_SHARED}.topP",
            "max_tokens": f"{_SHARED}.maxTokens",
            "stop": f"{_SHARED}.stopSequences",
            "seed": "",
            "response_format": "",
            "alternating": True,
            "most_stops": 4,
        },
    ),
    (
        Provider.BEDROCK,
        "anthropic[.]claude",
        {
            "top_k": f"{_VENDORS_OWN}.top_k",
            "reasoning_tokens": f"{_VENDORS_OWN}.thinking.budget_tokens",
            "temperature_with_top_p": False,
        },
    ),
    (
        Provider.BEDROCK,
        f"{_EFFORT}|{_EFFORT_ALONE}",
        {"reasoning": f"{_VENDORS_OWN}.output_config.effort"},
    ),
    (Provider.BEDROCK, _EFFORT_ALONE, _NO_SAMPLING),
    (
        Provider.OPENROUTER,
        "",
        {"top_k": "top_k", "reasoning": "reasoning.effort", "reasoning_tokens": "reasoning.max_tokens"},
    ),
    (Provider.OLLAMA, "", {"reasoning": "reasoning_effort"}),
    # Free servers know top_k; OpenAI's own protocol does not.
    (Provider.COMPATIBLE, "", {"top_k": "top_k", "reasoning": "reasoning_effort"}),
    (Provider.WORKER, "", {"top_k": "top_k", "extra_body": False}),
)


def takes_of(provider: Provider, model_id: str, own: Mapping[str, Any] | None = None) -> Takes:
    """The rules of a model: the provider's, those of its newer models by name, then the connection's own.

    Raises
    ------
    ValueError
        ``own`` names something that is no rule, or a value of the wrong type.
    """
    found: dict[str, Any] = {}
    # A vendor's name in front (OpenRouter, Bedrock) says nothing of the rules.
    name = model_id.rpartition("/")[2]
    for of, pattern, rules in _RULES:
        if of == provider and re2.search(pattern, name):
            found |= rules
    known = {field.name: type(field.default) for field in fields(Takes)}
    for key, value in (own or {}).items():
        if key not in known or type(value) is not known[key]:
            allowed = ", ".join(f"{name} ({kind.__name__})" for name, kind in known.items())
            raise ValueError(f"{key}: {value!r} is no rule of what a model takes. Rules: {allowed}.")
        found[key] = value
    return Takes(**found)


def refused(takes: Takes, sampling: SamplingParams) -> Iterator[str]:
    """The settings of a level that this model does not take, each as a sentence of setup and pages."""
    yield from left_out(takes, sampling).values()
    if takes.most_stops and len(sampling.stop) > takes.most_stops:
        yield f"{len(sampling.stop)} stop texts are set; this model takes at most {takes.most_stops}."
    most, thinking = sampling.max_tokens, sampling.reasoning_tokens
    if _budgets(takes, sampling) and most is not None and thinking is not None and most <= thinking:
        yield f"max_tokens ({most:,}) must be more than reasoning_tokens ({thinking:,}), which it includes."


def left_out(takes: Takes, sampling: SamplingParams) -> dict[str, str]:
    """The settings of a level that are not sent to this model, each with the sentence that says so."""
    sentences = {
        name: f"{name} is not sent: this model refuses it."
        for name in SETTINGS
        if is_set(getattr(sampling, name)) and not getattr(takes, name)
    }
    both = sampling.temperature is not None and sampling.top_p is not None
    if both and not takes.temperature_with_top_p and not sentences.keys() & {"temperature", "top_p"}:
        sentences["top_p"] = "temperature and top_p are not sent together: this model takes one of them."
    if _budgets(takes, sampling):
        for name, neutral in (("temperature", 1), ("top_k", 0)):
            if getattr(sampling, name) not in {None, neutral} and name not in sentences:
                sentences[name] = f"{name} is not sent: this model refuses it while it thinks."
    return sentences


def is_set(value: Any) -> bool:
    """True if this is a level's value for a setting; a temperature of 0 is one."""
    return value is not None and value is not False and value not in ("", (), {})


def _budgets(takes: Takes, sampling: SamplingParams) -> bool:
    """True if thinking has a budget in the way of Claude, which restricts other settings."""
    return sampling.reasoning_tokens is not None and takes.reasoning_tokens.endswith("thinking.budget_tokens")
