"""What each vendor's models take: the rules by which a request is made, and why a setting is left out.

A connection's own ``takes`` overrides the profile, as vendors change their rules faster than we do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal

import re2

from engine.domain.levels import SamplingParams

Protocol = Literal["openai", "anthropic", "bedrock"]


class Provider(StrEnum):
    """Who runs the server; ``COMPATIBLE``: any with OpenAI's chat protocol, ``WORKER``: one of ours."""

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
    """How a provider's servers are spoken to.

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


@dataclass(frozen=True, slots=True)
class Takes:
    """What a model takes: each setting's name in the request, or "" where the model refuses it.

    Attributes
    ----------
    temperature_with_top_p
        False of a model that takes either, but not both.
    system
        False of a model that refuses system messages: they are folded into the user's first turn.
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
    most_stops: int = 0


# Free servers know top_k; OpenAI's own protocol does not.
_FREE = {"top_k": "top_k", "reasoning": "reasoning_effort"}

# (provider, pattern of the model's id, differences from OpenAI's usual protocol); later lines go on earlier
# ones. Sources: the vendors' references of their chat interfaces; docs/connections.md names each.
_RULES: tuple[tuple[Provider, str, Mapping[str, Any]], ...] = (
    (Provider.OPENAI, "", {"max_tokens": "max_completion_tokens", "most_stops": 4}),
    (
        Provider.OPENAI,
        r"^(o[1-9]|gpt-([5-9]|\d\d))",
        {"temperature": "", "top_p": "", "stop": "", "seed": "", "reasoning": "reasoning_effort"},
    ),
    (Provider.AZURE, "", {"max_tokens": "max_completion_tokens", "most_stops": 4}),
    (
        Provider.AZURE,
        r"^(o[1-9]|gpt-([5-9]|\d\d))",
        {"temperature": "", "top_p": "", "stop": "", "seed": "", "reasoning": "reasoning_effort"},
    ),
    (
        Provider.ANTHROPIC,
        "",
        {
            "top_k": "top_k",
            "stop": "stop_sequences",
            "seed": "",
            "reasoning_tokens": "thinking",
            "response_format": "output_format",
            "temperature_with_top_p": False,
        },
    ),
    (Provider.GOOGLE, "", {"seed": "", "reasoning": "reasoning_effort", "most_stops": 5}),
    (Provider.MISTRAL, "", {"seed": "random_seed"}),
    (
        Provider.BEDROCK,
        "",
        {
            "temperature": "temperature",
            "top_p": "topP",
            "max_tokens": "maxTokens",
            "stop": "stopSequences",
            "seed": "",
            "response_format": "",
            "most_stops": 4,
        },
    ),
    (Provider.OPENROUTER, "", {**_FREE, "reasoning": "reasoning_effort"}),
    (Provider.OLLAMA, "", {"reasoning": "reasoning_effort"}),
    (Provider.COMPATIBLE, "", _FREE),
    (
        Provider.WORKER,
        "",
        {"top_k": "top_k", "extra_body": False},
    ),
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
    for name in ("temperature", "top_p", "top_k", "max_tokens", "reasoning", "reasoning_tokens"):
        if getattr(sampling, name) not in {None, ""} and not getattr(takes, name):
            yield f"{name} is not sent: this model refuses it."
    if sampling.stop and not takes.stop:
        yield "stop is not sent: this model refuses it."
    elif takes.most_stops and len(sampling.stop) > takes.most_stops:
        yield f"{len(sampling.stop)} stop texts are set; this model takes at most {takes.most_stops}."
    if sampling.seed and not takes.seed:
        yield "seed is not sent: this model refuses it."
    if sampling.response_format and not takes.response_format:
        yield "response_format is not sent: this model refuses it."
    if sampling.extra_body and not takes.extra_body:
        yield "extra_body is not sent: this model refuses it."
    both = sampling.temperature is not None and sampling.top_p is not None
    if both and not takes.temperature_with_top_p:
        yield "temperature and top_p are not sent together: this model takes one of them."
