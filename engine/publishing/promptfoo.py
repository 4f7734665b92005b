"""The winner as a configuration of promptfoo that `promptfoo eval` runs: prompt, provider, and the tasks."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from engine.domain.connection_targets import Target
from engine.domain.conversations import SYSTEM, as_json, chat
from engine.domain.profiles import VENDORS, Provider
from engine.domain.specs import TaskSpec
from engine.generation.remote.requests import ANTHROPIC_TOKENS
from engine.importing.promptfoo_models import model_read, why_not_called
from engine.publishing.winners import Winner

_IDS = {
    Provider.ANTHROPIC: "anthropic:messages:",
    Provider.GOOGLE: "google:",
    Provider.MISTRAL: "mistral:",
    Provider.BEDROCK: "bedrock:",
    Provider.AZURE: "azure:chat:",
    Provider.OPENROUTER: "openrouter:",
    Provider.OLLAMA: "ollama:chat:",
}
_OPENAI = "openai:chat:"
# Where a server is nobody's but the user's: vLLM's own address, which they change.
_OWN_SERVER = "http://localhost:8000/v1"
# Settings whose names are not those of OpenAI's protocol.
_NAMES = {
    Provider.ANTHROPIC: {"stop": "stop_sequences", "reasoning": "effort"},
    Provider.GOOGLE: {
        "max_tokens": "maxOutputTokens",
        "top_p": "topP",
        "top_k": "topK",
        "stop": "stopSequences",
    },
    Provider.OLLAMA: {"max_tokens": "num_predict"},
}
_PASSED = {"top_k": "top_k", "reasoning": "reasoning_effort", "reasoning_tokens": "reasoning"}
# A place for a variable in our templates, and in one of them a text as such.
_PLACE = re.compile(r"\{\{(?:[^\"'}]|\"[^\"]*\"|'[^']*')*\}\}")
_TEXT = re.compile(r"\{\{\s*(?:\"([^\"']*)\"|'([^\"']*)')\s*\}\}")
# What Nunjucks would read in a text that means itself.
_BRACES = re.compile(r"\{(?=[{%#])|(?<=#)\}")
# What promptfoo changes in a variable, whose letters it otherwise leaves: it opens files, fills in other
# variables, and cuts off a last line break.
_CHANGED = re.compile(r"(?:file://|package:)|.*(?:\{\{|\{%|\n\Z)", re.DOTALL)


def promptfoo_of(winner: Winner, *, with_tests: bool = True) -> str:
    """The configuration as YAML, with the tasks as tests unless told otherwise.

    A task with a history has no place in a prompt, and some texts are none that a variable could hold: then
    each test holds the whole conversation.
    """
    whole = with_tests and any(
        task.messages or any(map(_CHANGED.match, (task.prompt, *task.variables.values())))
        for task in winner.tasks
    )
    config = provider_config(winner)
    provider: dict[str, Any] = {"id": provider_id(winner.target), "label": winner.target.name}
    document: dict[str, Any] = {
        "description": f"{winner.evidence['experiment']}: {winner.name}",
        "prompts": [
            {"label": winner.name, "raw": f"{{{{ {winner.slot} }}}}" if whole else _chat_prompt(winner)}
        ],
        "providers": [provider | ({"config": config} if config else {})],
    }
    if with_tests:
        document["tests"] = [_test(task, winner, whole=whole) for task in winner.tasks]
    known = [f"{name}: {value}" for name, value in winner.evidence.items() if value is not None]
    heading = "".join(f"# {' '.join(each.split())}\n" for each in [*known, *winner.lacking])
    return heading + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000, indent=2
    )


def provider_id(target: Target) -> str:
    """The provider's id: the connection's name where that is one of the same model."""
    if not why_not_called(target.name) and model_read(target.name, "", {}).wanted.model_id == target.model_id:
        return target.name
    return _IDS.get(target.provider, _OPENAI) + target.model_id


def provider_config(winner: Winner) -> dict[str, Any]:
    """The provider's settings, by the names that it has for them. No key is among them."""
    target, named = winner.target, _NAMES.get(winner.target.provider, {})
    settings = {name: value for name, value in winner.settings.items() if name != "seed"}
    further = {**target.extra_body, **settings.pop("extra_body", {})}
    schema = settings.pop("response_format", None)
    thinking = settings.pop("reasoning_tokens", None)
    config = {named.get(name, "reasoning_effort" if name == "reasoning" else name): value
              for name, value in settings.items()}  # fmt: skip
    if thinking is not None:
        config |= {
            Provider.ANTHROPIC: {"thinking": {"type": "enabled", "budget_tokens": thinking}},
            Provider.GOOGLE: {"thinkingConfig": {"thinkingBudget": thinking}},
        }.get(target.provider, {"reasoning": {"max_tokens": thinking}})
    if schema:
        named_schema = {"name": "response", "schema": schema}
        config |= {
            Provider.ANTHROPIC: {"output_format": {"type": "json_schema", "schema": schema}},
            Provider.GOOGLE: {"responseMimeType": "application/json", "responseJsonSchema": schema},
        }.get(target.provider, {"response_format": {"type": "json_schema", "json_schema": named_schema}})
    if target.provider is Provider.GOOGLE and config:
        config = {"generationConfig": config}
    as_openai = provider_id(target).startswith(("openai:", "openrouter:"))
    if as_openai:
        further |= _passed(winner, config)
    if further:
        config["extra_body" if target.provider is Provider.ANTHROPIC else "passthrough"] = further
    # Otherwise promptfoo sends a temperature of 0 and 1,024 tokens.
    if target.provider is Provider.ANTHROPIC:
        config.setdefault("max_tokens", ANTHROPIC_TOKENS + (thinking or 0))
        config |= {} if "top_p" in config else {"temperature": config.get("temperature", 1)}
    elif as_openai:
        config["omitDefaults"] = True
    if target.headers:
        config["headers"] = dict(target.headers)
    if not target.connection_id:
        config["apiBaseUrl"] = _OWN_SERVER
    elif target.address and target.address != VENDORS[target.provider].address:
        config["apiBaseUrl"] = target.address
    if target.provider is Provider.COMPATIBLE:
        # Without it the key for OpenAI would go to this server.
        config["apiKeyEnvar"] = "LLM_API_KEY"
    return config


def _passed(winner: Winner, config: dict[str, Any]) -> dict[str, Any]:
    """Settings that promptfoo sends to few models unless they stand in passthrough, taken from ``config``."""
    passed: dict[str, Any] = {}
    for name, written in _PASSED.items():
        if name in winner.settings and (path := getattr(winner.target.takes, name)):
            first, *rest = path.split(".")
            config.pop(written, None)
            passed[first] = {rest[0]: winner.settings[name]} if rest else winner.settings[name]
    return passed


def _chat_prompt(winner: Winner) -> str:
    """The messages as the JSON of a chat, whose strings are templates of Nunjucks."""
    last = len(winner.messages) - 1
    messages = [
        {
            "role": each.role,
            "content": _template(each.content)
            if each.role == SYSTEM or number == last
            else _literal(each.content),
        }
        for number, each in enumerate(winner.messages)
    ]
    return json.dumps(messages, indent=2, ensure_ascii=False)


def _test(task: TaskSpec, winner: Winner, *, whole: bool) -> dict[str, Any]:
    variables = {**task.variables, winner.slot: task.prompt}
    if whole:
        turns = task.messages or chat(task.prompt)
        sent = as_json(winner.composition.filled(task.variables).messages(turns))
        # As the whole prompt, a variable is a template itself.
        variables = {winner.slot: _literal(json.dumps(sent, ensure_ascii=False))}
    test: dict[str, Any] = {"vars": variables}
    if task.checks:
        test["assert"] = [{"type": each.kind, "value": _value(each.value)} for each in task.checks]
    if task.tags:
        test["metadata"] = {"tags": list(task.tags)}
    return test


def _value(text: str) -> str:
    """The text of a check that means its own letters, also where promptfoo would open a file."""
    said = _literal(text)
    return f"{{{{ '{said[0]}' }}}}{said[1:]}" if text.startswith(("file://", "package:")) else said


def _literal(text: str) -> str:
    return _BRACES.sub(lambda brace: f"{{{{ '{brace[0]}' }}}}", text)


def _template(text: str) -> str:
    """A text of ours with its places as Nunjucks has them; JSON around it leaves single quotes alone."""
    if "{{" not in text:
        return _literal(text)
    pieces, end = [], 0
    for found in _PLACE.finditer(text):
        pieces.append(_literal(text[end : found.start()]))
        literal = _TEXT.fullmatch(found[0])
        pieces.append(f"{{{{ '{literal[1] or literal[2] or ''}' }}}}" if literal else found[0])
        end = found.end()
    return "".join([*pieces, _literal(text[end:])])


class _Dumper(yaml.SafeDumper):
    """Quotes what another reader of YAML could take for something other than a text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write each value where it belongs."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None if re.match(r"[A-Za-z]", text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)
