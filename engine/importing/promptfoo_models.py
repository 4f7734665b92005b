"""Providers of promptfoo: the connection that each needs, and its settings as those of a model's level."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.domain.forbidden_fields import fault_of_fields
from engine.domain.levels import parse_level
from engine.domain.profiles import Provider
from engine.importing.mapping import LONGEST_NAME, ShortNames

# By the first word of an id: whose server it is, and the address of those that have OpenAI's protocol.
_SERVERS: Mapping[str, tuple[Provider, str]] = {
    "openai": (Provider.OPENAI, ""),
    "anthropic": (Provider.ANTHROPIC, ""),
    "google": (Provider.GOOGLE, ""),
    "palm": (Provider.GOOGLE, ""),
    "vertex": (Provider.GOOGLE, ""),
    "mistral": (Provider.MISTRAL, ""),
    "bedrock": (Provider.BEDROCK, ""),
    "azure": (Provider.AZURE, ""),
    "azureopenai": (Provider.AZURE, ""),
    "openrouter": (Provider.OPENROUTER, ""),
    "ollama": (Provider.OLLAMA, ""),
    "github": (Provider.COMPATIBLE, "https://models.github.ai/inference"),
    "huggingface": (Provider.COMPATIBLE, "https://router.huggingface.co/v1"),
    "groq": (Provider.COMPATIBLE, "https://api.groq.com/openai/v1"),
    "deepseek": (Provider.COMPATIBLE, "https://api.deepseek.com/v1"),
    "xai": (Provider.COMPATIBLE, "https://api.x.ai/v1"),
    "togetherai": (Provider.COMPATIBLE, "https://api.together.xyz/v1"),
    "fireworks": (Provider.COMPATIBLE, "https://api.fireworks.ai/inference/v1"),
    "perplexity": (Provider.COMPATIBLE, "https://api.perplexity.ai"),
    "cerebras": (Provider.COMPATIBLE, "https://api.cerebras.ai/v1"),
    "cohere": (Provider.COMPATIBLE, "https://api.cohere.ai/compatibility/v1"),
    "deepinfra": (Provider.COMPATIBLE, "https://api.deepinfra.com/v1/openai"),
    "databricks": (Provider.COMPATIBLE, ""),
    "litellm": (Provider.COMPATIBLE, ""),
    "localai": (Provider.COMPATIBLE, ""),
    "llamafile": (Provider.COMPATIBLE, ""),
    "vllm": (Provider.COMPATIBLE, ""),
    "llama": (Provider.COMPATIBLE, ""),
    "docker": (Provider.COMPATIBLE, ""),
    "alibaba": (Provider.COMPATIBLE, ""),
    "nscale": (Provider.COMPATIBLE, ""),
}
# Second words of an id that say how a model is asked, and those of what writes no text by itself.
_WAYS = {"chat", "completion", "messages", "responses", "text-generation", "converse", "text", "inference"}
_NO_TEXTS = {
    "assistant", "embedding", "embeddings", "image", "realtime", "moderation", "agents", "codex-sdk", "video",
    "transcription", "tts", "live", "feature-extraction", "text-classification", "sentence-similarity",
    "claude-agent-sdk", "agent", "kb", "chatkit", "foundry-agent",
}  # fmt: skip
_CODE = re.compile(
    r"(?:file|exec|python|javascript|golang|ruby|package|bash):|.*\.(?:[cm]?[jt]s|py|rb|go|sh)(?::\w+)?$"
)
_ADDRESS = re.compile(r"(?:https?|wss?|websocket|webhook|mcp|browser)(?::|$)")
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p", "topp": "top_p",
    "top_k": "top_k", "topk": "top_k",
    "max_tokens": "max_tokens", "maxtokens": "max_tokens", "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens", "maxoutputtokens": "max_tokens", "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "stop": "stop", "stop_sequences": "stop", "stopsequences": "stop",
    "reasoning_effort": "reasoning", "reasoningeffort": "reasoning", "effort": "reasoning",
}  # fmt: skip
# Further fields of requests with OpenAI's protocol, sent as they are.
_FURTHER = {"frequency_penalty", "presence_penalty", "verbosity", "logit_bias", "min_p", "repetition_penalty"}
_ADDRESSES = {"apibaseurl", "api_base_url", "baseurl", "base_url", "apihost", "url", "host"}
_KEYS = {"apikey", "api_key", "key", "accesskeyid", "secretaccesskey", "sessiontoken", "credentials"}
_KEY_NAMES = {"apikeyenvar", "apikeyenvvar", "api_key_envar", "api_key_env"}
# What is so in any request of ours.
_SAY_NOTHING = {"omitdefaults", "responsemimetype"}
_BUDGETS = ("budget_tokens", "thinkingBudget", "max_tokens")
_NESTED = {"generationconfig", "generation_config", "inferenceconfig", "options"}


@dataclass(frozen=True)
class Wanted:
    """A connection that levels name: what its page is to hold, and the variable that held its key."""

    name: str
    provider: Provider
    model_id: str
    address: str = ""
    key_variable: str = ""


@dataclass
class ModelRead:
    """A provider of the file as a level: its name, its settings, and what was not taken."""

    name: str
    wanted: Wanted
    settings: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    had_key: bool = False


def why_not_called(provider_id: str) -> str:
    """The reason why no connection can ask this provider; empty if one can."""
    if provider_id in {"echo", "manual-input", "sequence"} or provider_id.startswith(
        ("promptfoo:", "sequence:")
    ):
        return f"{provider_id.partition(':')[0]}, which asks no model"
    if _CODE.match(provider_id):
        return "code"
    if _ADDRESS.match(provider_id):
        return "an HTTP address or a tool"
    first, *rest = provider_id.split(":")
    if not rest or first not in _SERVERS or not rest[-1]:
        return "a kind of provider that no connection can ask"
    if _NO_TEXTS.intersection(rest[:-1]) or rest[-1] in _NO_TEXTS:
        return "an agent, or a model that writes no text"
    return ""


def model_read(provider_id: str, label: str, config: Mapping[str, Any]) -> ModelRead:
    """A provider that a connection can ask."""
    first, *rest = provider_id.split(":")
    provider, address = _SERVERS[first]
    while len(rest) > 1 and rest[0] in _WAYS:
        rest = rest[1:]
    found = ModelRead(label or provider_id, Wanted(provider_id[:LONGEST_NAME], provider, ":".join(rest)))
    key_variable = ""
    for name, value in _flat(config):
        plain = name.rpartition(".")[2].lower()
        if plain in _KEYS:
            found.had_key = True
        elif plain in _KEY_NAMES:
            key_variable = str(value)
        elif plain in _ADDRESSES and isinstance(value, str):
            address = value if "://" in value else f"https://{value}"
        elif plain not in _SAY_NOTHING and not _set(found.settings, plain, value):
            found.left.append(name)
    # A server elsewhere is not the vendor's.
    if address and provider is Provider.OPENAI and "openai.com" not in address:
        provider = Provider.COMPATIBLE
    found.wanted = Wanted(found.wanted.name, provider, found.wanted.model_id, address, key_variable)
    return found


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings with those inside of vendors' own objects."""
    for name, value in config.items():
        if name.lower() in _NESTED and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def _set(settings: dict[str, Any], name: str, value: Any) -> bool:
    """Put a setting of the file among those of the level; false if the level has none like it."""
    made: dict[str, Any] | None = None
    if name in {"reasoning", "thinking", "thinkingconfig"} and isinstance(value, Mapping):
        budget = next((value[each] for each in _BUDGETS if each in value), None)
        effort = value.get("effort", value.get("thinkingLevel"))
        if isinstance(effort, str) and len(value) == 1:
            made = {"reasoning": effort.lower()}
        elif isinstance(budget, int) and not value.keys() - {"type", *_BUDGETS}:
            made = {"reasoning_tokens": budget}
    elif name in _SETTINGS:
        known = _SETTINGS[name]
        made = {known: [value] if known == "stop" and isinstance(value, str) else _number(value)}
    elif name in {"response_format", "format", "output_format"} and isinstance(value, Mapping):
        made = _format(value)
    elif name == "responsejsonschema" and isinstance(value, Mapping):
        made = {"response_format": dict(value)}
    elif name in {"passthrough", "extra_body"} and isinstance(value, Mapping):
        made = {"extra_body": {key: each for key, each in value.items() if not _set(settings, key, each)}}
    elif name in _FURTHER:
        made = {"extra_body": {name: value}}
    if made is None:
        return False
    if "extra_body" in made:
        made["extra_body"] = settings.get("extra_body", {}) | made["extra_body"]
        if fault_of_fields(made["extra_body"]):
            return False
    try:
        parse_level("sampling", settings | made)
    except ValueError:
        return False
    settings |= made
    return True


def _number(value: Any) -> Any:
    """A number that was written as a text."""
    if isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?", value):
        return float(value) if "." in value else int(value)
    return value


def _format(value: Mapping[str, Any]) -> dict[str, Any] | None:
    if value.get("type") == "json_object":
        return {"extra_body": {"response_format": dict(value)}}
    inner = value.get("json_schema", value)
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    return {"response_format": dict(schema)} if isinstance(schema, Mapping) else None


def told_apart(models: Sequence[ModelRead]) -> None:
    """Give models of one name names that say which models they are, or in which settings they differ, or else
    numbers; and give connections of one name and other addresses names with their address.
    """
    for name in {model.name for model in models}:
        same = [model for model in models if model.name == name]
        if len({model.wanted.name for model in same}) == len(same) > 1:
            for model in same:
                model.name = f"{name} {model.wanted.model_id}"
        elif len(same) > 1:
            for model in same:
                others = [each.settings for each in same if each is not model]
                told = [
                    f"{key} {value}"
                    for key, value in model.settings.items()
                    if any(other.get(key) != value for other in others)
                ]
                model.name = " ".join([name, *told])
    names = ShortNames()
    for model in models:
        model.name = names.new(model.name)
    servers: dict[str, set[str]] = {}
    for model in models:
        servers.setdefault(model.wanted.name, set()).add(model.wanted.address)
    for model in models:
        wanted = model.wanted
        if len(servers[wanted.name]) > 1 and wanted.address:
            with_address = f"{wanted.name} at {re.sub(r'^[a-z]+://', '', wanted.address)}"[:LONGEST_NAME]
            model.wanted = Wanted(
                with_address, wanted.provider, wanted.model_id, wanted.address, wanted.key_variable
            )
