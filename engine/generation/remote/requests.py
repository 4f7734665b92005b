"""Build the request for a model: only the level's settings, under the vendor's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from engine.domain.connection_targets import Target
from engine.domain.conversations import SYSTEM, USER, Message, as_json
from engine.domain.forbidden_fields import fault_of_fields
from engine.domain.levels import SamplingParams
from engine.domain.profiles import SETTINGS, Protocol, Provider, left_out, vendor_of
from engine.generation.base import GenerationRequest

# Claude demands a maximum: the one to send, beyond the budget of thinking, if the level sets none.
ANTHROPIC_TOKENS = 4096
_ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to send, without the key.

    Attributes
    ----------
    left_out
        A sentence for each setting that is not sent, and for each message that was changed.
    """

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    left_out: Sequence[str] = ()


def prepare(target: Target, request: GenerationRequest) -> Prepared:
    """The request for this model, and the settings left out with the reason."""
    protocol: Protocol = vendor_of(target.provider).protocol
    changes = list(left_out(target.takes, request.sampling).values())
    messages = _messages(target, request.messages, changes)
    body = {
        "openai": _openai_body,
        "anthropic": _anthropic_body,
        "bedrock": _bedrock_body,
    }[protocol](target, messages)
    for further in (target.extra_body, request.sampling.extra_body if target.takes.extra_body else {}):
        for name, value in further.items():
            if fault_of_fields({name: value}):
                changes.append(f"{name} of the extra body is not sent: the connection decides it.")
            else:
                _merge(body, name, value)
    changes += _set_sampling(target, protocol, request, body)
    own = dict(target.headers)
    if protocol == "anthropic":
        own = {"anthropic-version": _ANTHROPIC_VERSION, **own}
    return Prepared(_url(target, protocol), own, body, changes)


def key_header(target: Target) -> tuple[str, str]:
    """The header with the key."""
    name = vendor_of(target.provider).key_header
    return name, f"Bearer {target.key}" if name == "Authorization" else target.key


def _url(target: Target, protocol: Protocol) -> str:
    base = target.address.rstrip("/")
    model = quote(target.model_id, safe="")
    if protocol == "bedrock":
        return f"{base}/model/{model}/converse"
    if protocol == "anthropic":
        base = base if base.endswith("/v1") else f"{base}/v1"
        return f"{base.removesuffix('/messages')}/messages"
    if target.provider == Provider.AZURE:
        host = base.removesuffix("/chat/completions").removesuffix("/v1").removesuffix("/openai")
        if target.api_version:
            version = quote(target.api_version, safe="")
            return f"{host}/openai/deployments/{model}/chat/completions?api-version={version}"
        return f"{host}/openai/v1/chat/completions"
    return f"{base.removesuffix('/chat/completions')}/chat/completions"


def _messages(target: Target, messages: Sequence[Message], changes: list[str]) -> list[Message]:
    """The messages as the model takes them: a system message folded, neighbours of one role joined."""
    turns = list(messages)
    if turns and turns[0].role == SYSTEM and not target.takes.system:
        opening = turns.pop(0)
        changes.append("The system message is sent in the user's first message: this model refuses it.")
        first = next((n for n, each in enumerate(turns) if each.role == USER), 0)
        turns[first:first] = [Message(USER, opening.content)]
        turns[first : first + 2] = [_joined(turns[first : first + 2])]
    if target.takes.alternating:
        runs = [list(run) for _, run in groupby(turns, key=lambda each: each.role)]
        if len(runs) < len(turns):
            changes.append("Messages of one role in a row are sent as one: this model refuses them.")
        turns = [_joined(run) for run in runs]
    return turns


def _joined(messages: Sequence[Message]) -> Message:
    return Message(messages[0].role, "\n\n".join(each.content for each in messages))


def _openai_body(target: Target, messages: Sequence[Message]) -> dict[str, Any]:
    return {"model": target.model_id, "messages": as_json(messages)}


def _anthropic_body(target: Target, messages: Sequence[Message]) -> dict[str, Any]:
    system = "\n\n".join(each.content for each in messages if each.role == SYSTEM)
    turns = as_json(each for each in messages if each.role != SYSTEM)
    return {"model": target.model_id, **({"system": system} if system else {}), "messages": turns}


def _bedrock_body(_: Target, messages: Sequence[Message]) -> dict[str, Any]:
    system = [{"text": each.content} for each in messages if each.role == SYSTEM]
    turns = [
        {"role": each.role, "content": [{"text": each.content}]} for each in messages if each.role != SYSTEM
    ]
    return {**({"system": system} if system else {}), "messages": turns}


def _set_sampling(
    target: Target, protocol: Protocol, request: GenerationRequest, body: dict[str, Any]
) -> Iterator[str]:
    """Write the level's settings into the body; yield those that are sent differently."""
    sampling, takes = request.sampling, target.takes
    unsent = left_out(takes, sampling).keys() | {"extra_body"}
    for name in SETTINGS:
        value = _value(name, protocol, request)
        if name in unsent or value in (None, "", [], {}):
            continue
        if name == "stop" and takes.most_stops and len(value) > takes.most_stops:
            yield f"Only the first {takes.most_stops} stop texts are sent: this model takes no more."
            value = value[: takes.most_stops]
        _place(body, getattr(takes, name), value)
    if sampling.reasoning_tokens is not None and takes.reasoning_tokens.endswith("thinking.budget_tokens"):
        _place(body, takes.reasoning_tokens.replace("budget_tokens", "type"), "enabled")
    elif sampling.reasoning and takes.reasoning.endswith("output_config.effort"):
        _place(body, takes.reasoning.replace("output_config.effort", "thinking.type"), "adaptive")
    if protocol == "anthropic" and "max_tokens" not in body:
        body["max_tokens"] = most = ANTHROPIC_TOKENS + (sampling.reasoning_tokens or 0)
        yield f"max_tokens is {most:,}: this server demands a maximum, and the level sets none."


def _value(name: str, protocol: Protocol, request: GenerationRequest) -> Any:
    """The value of a setting as the protocol has it."""
    sampling: SamplingParams = request.sampling
    if name == "seed":
        return request.seed if sampling.seed else None
    if name == "stop":
        return list(sampling.stop)
    if name == "response_format" and sampling.response_format:
        schema = dict(sampling.response_format)
        if protocol == "anthropic":
            return {"type": "json_schema", "schema": schema}
        named = {"name": "response", "strict": True, "schema": schema}
        return {"type": "json_schema", "json_schema": named}
    return getattr(sampling, name)


def _place(body: dict[str, Any], path: str, value: Any) -> None:
    """Set a field that may lie within others."""
    *outer, last = path.split(".")
    for name in outer:
        inner = body.get(name)
        body[name] = body = dict(inner) if isinstance(inner, dict) else {}
    body[last] = value


def _merge(body: dict[str, Any], name: str, value: Any) -> None:
    """Set a field; an object goes into the object that is there."""
    there = body.get(name)
    body[name] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value
