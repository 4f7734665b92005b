"""Messages in the shape of any tool: what a model was asked, and what it answered.

Shapes are known by their fields: OpenAI's two APIs, Anthropic, Google, LangChain (by type, or serialised),
OpenInference, OpenTelemetry, Inspect. Also values that became JSON texts on their way.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.domain.conversations import ASSISTANT, SYSTEM, USER, Message
from engine.domain.texts import is_blank
from engine.importing.mapping import TASK_NAMES
from engine.importing.rows import in_json, is_empty

_TOOL = "tool"
_ROLES = {
    "user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT, "model": ASSISTANT,
    "system": SYSTEM, "developer": SYSTEM, "tool": _TOOL, "function": _TOOL,
}  # fmt: skip
_TEXT_PARTS = {"text", "input_text", "output_text", "summary_text", "reasoning_text"}
_THINKING_PARTS = {"thinking", "reasoning", "redacted_thinking", "reasoning_content"}
_TOOL_PARTS = {"tool_use", "tool_call", "tool_calls", "function_call", "server_tool_use", "functionCall"}
_RESULT_PARTS = {
    "tool_result",
    "tool_call_response",
    "tool_response",
    "functionResponse",
    "web_search_tool_result",
}
_CUT = {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
_FILTERED = {
    "content_filter",
    "content_filtered",
    "safety",
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
}
# Where a request holds its messages, and where its system text.
_MESSAGES = ("messages", "contents", "chat_history")
_SYSTEMS = ("system", "system_instruction", "systemInstruction", "instructions", "system_prompt")
# Where an answer is, the likeliest first; these hold several.
_LISTS = ("choices", "generations", "candidates")
_ANSWERS = (
    *_LISTS, "output", "messages", "message", "answer", "response",
    "output_text", "completion", "result", "text", "content",
)  # fmt: skip
_ASKS = (*TASK_NAMES, "query", "text", "user_input", "user_message", "message")
_SETTINGS = {
    "model", "model_name", "temperature", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "top_p", "top_k", "n", "stop", "stream", "stream_options", "seed", "tools", "tool_choice",
    "response_format", "metadata",
    "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "parallel_tool_calls", "user",
    "invocation_params", "options", "generation_config", "generationConfig", "safety_settings", "reasoning",
    "reasoning_effort", "service_tier", "store", "text_format", "extra_body", "extra_headers", "timeout",
}  # fmt: skip
Fields = Mapping[str, Any]


class LeftOutError(ValueError):
    """There is no text to take here. The message is the reason, such as "a tool call alone"."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of any role. ``more``: it has a part that is no text. ``finish``: why it ended."""

    role: str
    text: str = ""
    thinking: str = ""
    calls_tool: bool = False
    more: bool = False
    refused: bool = False
    finish: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was asked: the last turn of the user with its history, and the system text apart.

    ``after_tools``: tools were called on the way to the answer, which new policies do not have.
    """

    messages: tuple[Message, ...]
    system: str = ""
    variables: Mapping[str, Any] = ()  # type: ignore[assignment]
    after_tools: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered. ``is_cut``: it ended at a limit on its length."""

    text: str
    thinking: str = ""
    is_cut: bool = False


# ---------------------------------------------------------------- what was asked


def asked_in(given: Any, system: Any = None) -> Asked:
    """What somebody asked: a text, messages, a request, or named values with one that asks.

    ``system``: system texts that stand apart from the messages.

    Raises
    ------
    LeftOutError
        Nothing asks, or a turn holds more than text.
    """
    variables: dict[str, Any] = {}
    given = in_json(given)
    if isinstance(given, Mapping) and not _is_message(given):
        given, system, variables = _request(given, system)
    turns = [*_systems(system), *_turns(given)]
    texts = [each.text for each in turns if each.role == SYSTEM and each.text]
    others = [each for each in turns if each.role != SYSTEM]
    last = max(
        (n for n, each in enumerate(others) if each.role == USER and (each.text or each.more)), default=-1
    )
    if any(each.more for each in others[: last + 1]):
        raise LeftOutError("with a picture, a sound or a file")
    said = [each for each in others[: last + 1] if each.role != _TOOL and not is_blank(each.text)]
    if last < 0 or not said or said[-1].role != USER:
        raise LeftOutError("without a text of the user")
    return Asked(
        tuple(Message(each.role, each.text) for each in said),
        "\n".join(texts),
        variables,
        any(each.role == _TOOL or each.calls_tool for each in others),
    )


def _request(given: Fields, system: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The messages, the system text and the variables of a request, or of named values."""
    rest = dict(_called(given))
    for name in _SYSTEMS:
        if not is_empty(rest.get(name)) and system is None:
            system = rest.pop(name)
    for name in (*_MESSAGES, *_ASKS, "prompts"):
        found = in_json(rest.get(name))
        is_chat = isinstance(found, list) and found and _is_chat(found)
        if is_chat or (isinstance(found, str) and found.strip()) or (found and _is_message(found)):
            # Beside messages there are settings, and often the last message again.
            known = {name, *_SETTINGS, *_ASKS} if is_chat else {name}
            return found, system, {n: value for n, value in rest.items() if n not in known}
        if isinstance(found, Mapping) and found:
            del rest[name]
            inner, system, variables = _request(found, system)
            return inner, system, rest | variables
    texts = [name for name, value in rest.items() if isinstance(value, str) and value.strip()]
    if len(texts) == 1:
        return rest.pop(texts[0]), system, rest
    return "\n".join(f"{name}: {rest[name]}" for name in texts), system, rest


def _called(given: Fields) -> Fields:
    """The named arguments of a call of a function, as a decorator notes it; other values as they are."""
    if not given or not given.keys() <= {"args", "kwargs"}:
        return given
    args, kwargs = list_in(given.get("args")), fields_in(given.get("kwargs"))
    if not kwargs and len(args) == 1 and isinstance(args[0], Mapping) and not _is_message(args[0]):
        return dict(args[0])
    named = {"input" if len(args) == 1 else f"argument_{n}": each for n, each in enumerate(args, 1)}
    return {**named, **kwargs}


def _is_message(value: Any) -> bool:
    """True for one message, by its role or its type, and not for other named values."""
    if not isinstance(value, Mapping):
        return False
    if "lc" in value and "kwargs" in value:
        return True
    if isinstance(value.get("message"), Mapping) and _is_message(value["message"]):
        return True
    if "role" in value:
        return bool(_role(value["role"]))
    if isinstance(value.get("parts"), list):
        return True  # Google's messages need no role.
    return bool(_role(value.get("type"))) and not value.keys().isdisjoint({"content", "data"})


def _is_chat(value: Sequence[Any]) -> bool:
    first = in_json(value[0])
    if isinstance(first, list):
        return _is_pair(first) or (bool(first) and _is_chat(first))
    return _is_message(first) or (len(value) == 1 and isinstance(first, str))


def _is_pair(value: Any) -> bool:
    """LangChain's short form of a message: its role and its text."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(v, str) for v in value)
        and bool(_role(value[0]))
    )


def _turns(given: Any) -> list[Turn]:
    given = in_json(given)
    if isinstance(given, str):
        return [Turn(USER, given)]
    if isinstance(given, Mapping):
        return [turn_in(given)]
    if not isinstance(given, list):
        return []
    if given and all(isinstance(each, list) and not _is_pair(each) for each in given):
        if len(given) > 1:
            raise LeftOutError("with several conversations in one call")
        return _turns(given[0])
    return [turn_in(each) for each in given]


def _systems(given: Any) -> Iterator[Turn]:
    """The system texts of a value that holds nothing else: a text, parts, or messages."""
    given = in_json(given)
    if isinstance(given, str) and given:
        yield Turn(SYSTEM, given)
    elif isinstance(given, (list, Mapping)) and given:
        parts = [given] if isinstance(given, Mapping) else given
        turns = [
            turn_in(part if _is_message(part) else {"role": SYSTEM, "content": [part]}) for part in parts
        ]
        if isinstance(given, Mapping) and "parts" in given:
            turns = [turn_in({"role": SYSTEM, **given})]
        yield Turn(SYSTEM, "\n".join(turn.text for turn in turns))


def has_text(given: Any) -> bool:
    """True if these messages hold a text."""
    try:
        return any(turn.text.strip() or turn.more for turn in _turns(given))
    except LeftOutError:
        return True  # Several conversations.


def is_bare(given: Any) -> bool:
    """True if a message says nothing: neither a text, nor a call of a tool, nor anything else."""
    turn = turn_in(given)
    return turn == Turn(turn.role, finish=turn.finish)


def turn_in(given: Any) -> Turn:
    """One message of any shape."""
    given = in_json(given)
    if isinstance(given, str):
        return Turn(USER, given)
    if _is_pair(given):
        return Turn(_role(given[0]), given[1])
    if not isinstance(given, Mapping):
        return Turn(USER)
    finish = _finish(given)
    if "kwargs" in given and "lc" in given:
        kwargs = fields_in(given["kwargs"])
        name = kwargs.get("type") or next(iter(list_in(given.get("id"))[-1:]), "")
        given = {"role": name if _role(name) else USER, **kwargs}
    elif isinstance(given.get("message"), (Mapping, str)):
        inner = in_json(given["message"])
        inner = inner if isinstance(inner, Mapping) else {"role": ASSISTANT, "content": inner}
        return replace(turn_in(inner), finish=finish or _finish(inner))
    elif isinstance(given.get("data"), Mapping) and "content" in given["data"]:
        given = {"type": given.get("type"), **given["data"]}
    named = next((each for name in ("role", "type") if _role(each := given.get(name))), USER)
    beside = given.get("additional_kwargs")
    fields = {**beside, **given} if isinstance(beside, Mapping) else given
    turn = Turn(
        _role(named),
        thinking=_text_in(fields, "reasoning_content", "reasoning", "thinking"),
        calls_tool=any(not is_empty(fields.get(name)) for name in ("tool_calls", "function_call")),
        refused=not is_empty(fields.get("refusal")),
        finish=finish or _finish(given),
    )
    contents = (given.get(name) for name in ("contents", "parts", "content", "text"))
    return _with_parts(turn, next((each for each in contents if not is_empty(each)), None))


def _with_parts(turn: Turn, content: Any) -> Turn:
    """The turn with what its content holds: texts are joined by line breaks."""
    found = in_json(content)
    # A text may look like a list; only one of parts is one.
    if isinstance(content, str) and not (isinstance(found, list) and found and all(map(_is_part, found))):
        return replace(turn, text=content)
    parts = [found] if isinstance(found, Mapping) else found if isinstance(found, list) else []
    texts: list[str] = []
    thoughts = [turn.thinking] if turn.thinking else []
    for each in parts:
        # Anything else than a text or an object is no text.
        part = {"text": each} if isinstance(each, str) else fields_in(each) or {"type": "unknown"}
        part = fields_in(part.get("message_content", part))
        kind = str(part.get("type") or next((name for name in part if name.startswith("function")), "text"))
        text = _text_in(part, "text", "content", "thinking", "reasoning")
        if kind in _THINKING_PARTS or part.get("thought") is True:
            inner = (part.get(name) for name in ("text", "content", "thinking", "reasoning", "summary"))
            thoughts.append(_with_parts(Turn(""), next((e for e in inner if not is_empty(e)), "")).text)
        elif kind in _TEXT_PARTS and not part.keys() & {"inlineData", "fileData", "inline_data", "file_data"}:
            texts.append(text)
        elif kind in _TOOL_PARTS:
            turn = replace(turn, calls_tool=True)
        elif kind in _RESULT_PARTS:
            turn = replace(turn, role=_TOOL)
        elif kind == "refusal":
            turn = replace(turn, refused=True)
        else:
            turn = replace(turn, more=True)
    return replace(turn, text="\n".join(texts), thinking="\n".join(filter(None, thoughts)))


def _text_in(given: Any, *names: str) -> str:
    """The first of these values that is a text."""
    found = (given.get(name) for name in names) if isinstance(given, Mapping) else ()
    return next((value for value in found if isinstance(value, str)), "")


def _is_part(value: Any) -> bool:
    kinds = (
        _TEXT_PARTS | _THINKING_PARTS | _TOOL_PARTS | _RESULT_PARTS | {"image_url", "image", "input_image"}
    )
    return isinstance(value, Mapping) and value.get("type") in kinds


def _role(name: Any) -> str:
    """The role that a name means: also AIMessageChunk and HumanMessage; empty for others."""
    short = str(name).lower().removesuffix("chunk").removesuffix("message")
    return _ROLES.get(short, "")


def _finish(given: Fields) -> str:
    """Why a message ended, in small letters; several in one are those of several answers."""
    for each in (given, given.get("response_metadata"), given.get("generation_info")):
        if isinstance(each, Mapping):
            for name in ("finish_reason", "finishReason", "stop_reason", "done_reason"):
                if isinstance(each.get(name), str):
                    return str(each[name]).lower()
    return ""


# ---------------------------------------------------------------- what was answered


def answers_in(given: Any, finish: str = "") -> list[Answer | LeftOutError]:
    """The answers of one call, or the reason why there is none.

    ``finish``: why it ended, where that is said apart.
    """
    whole = in_json(given)
    # A model may have been asked for JSON: only a message is one.
    if isinstance(given, str) and not _is_answer(whole):
        whole = given
    found = [_answer(turn, finish) for turn in _answer_turns(whole)]
    return found or [LeftOutError("no answer")]


def _answer(turn: Turn, finish: str) -> Answer | LeftOutError:
    ended = turn.finish or finish.lower()
    if ended in _FILTERED:
        return LeftOutError("filtered")
    if is_blank(turn.text):
        if turn.refused or ended == "refusal":
            return LeftOutError("a refusal without a text")
        if turn.calls_tool:
            return LeftOutError("a tool call without a text")
        return LeftOutError("more than text" if turn.more else "no answer")
    return Answer(turn.text, turn.thinking, ended in _CUT)


def _is_answer(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_message, value))
    return _is_message(value) or (isinstance(value, Mapping) and bool(value.keys() & set(_LISTS)))


def _answer_turns(given: Any) -> list[Turn]:
    if is_empty(given):
        return []
    if isinstance(given, list):
        return _turns_of_list([in_json(each) for each in given])
    if not isinstance(given, Mapping):
        return [Turn(ASSISTANT, given if isinstance(given, str) else json.dumps(given))]
    if _is_message(given):
        return [turn_in(given)]
    details = given.get("incomplete_details")
    finish = _finish(given) or (str(details.get("reason") or "") if isinstance(details, Mapping) else "")
    turns = next(
        (_named_turns(name, value) for name in _ANSWERS if not is_empty(value := in_json(given.get(name)))),
        None,
    )
    if turns is None and not given.keys().isdisjoint(_ANSWERS):
        turns = [turn_in({"role": ASSISTANT, **given})]  # There is an answer, and it is empty.
    if turns is None:
        only = next(iter(given.values()))
        is_text = len(given) == 1 and isinstance(only, str)
        turns = [Turn(ASSISTANT, only if is_text else json.dumps(given, ensure_ascii=False))]
    return [replace(turn, finish=turn.finish or finish) for turn in turns]


def _named_turns(name: str, value: Any) -> list[Turn]:
    """The answers of a value that has one of the names of an answer."""
    if name in _LISTS:
        rows = value if isinstance(value, list) else [value]
        return [_choice(row) for row in (rows[0] if isinstance(rows[0], list) else rows)]
    if name in {"messages", "output"} and isinstance(value, list):
        return _turns_of_list(value)[-1:]
    if name == "content" and isinstance(value, list):
        return [_with_parts(Turn(ASSISTANT), value)]
    return _answer_turns(value)


def _choice(row: Any) -> Turn:
    """One of several answers to a call: a message, or a text."""
    if not isinstance(row, Mapping):
        return Turn(ASSISTANT, str(row))
    if "message" in row:
        return replace(turn_in(row), role=ASSISTANT)
    content = row.get("content")
    turn = turn_in(content) if isinstance(content, Mapping) else turn_in({"role": ASSISTANT, **row})
    return replace(turn, finish=_finish(row))


def _turns_of_list(given: Sequence[Any]) -> list[Turn]:
    """The answers of a list: of messages those of the model; of items of a response the last message."""
    if all(isinstance(each, Mapping) and isinstance(each.get("type"), str) for each in given) and any(
        each["type"] in {"message", "function_call", "reasoning"} | _TEXT_PARTS for each in given
    ):
        turns = [turn_in({"role": ASSISTANT, **each}) for each in given if each["type"] == "message"]
        parts = [each for each in given if each["type"] != "message"]
        beside = _with_parts(Turn(ASSISTANT), parts)
        if not turns:
            return [beside]
        return [replace(turns[-1], thinking=turns[-1].thinking or beside.thinking)]
    if all(isinstance(each, str) for each in given):
        return [Turn(ASSISTANT, each) for each in given]
    if given and all(isinstance(each, list) for each in given):
        return _turns_of_list([in_json(each) for each in given[0]])
    turns = [turn_in(each) if _is_message(each) else _choice(each) for each in given]
    if any(each.role == USER for each in turns):
        return turns[-1:]  # A whole conversation: its last turn is the answer.
    said = [each for each in turns if each.role == ASSISTANT]
    # Of OpenAI's responses, OpenInference makes a message of the thinking alone.
    thoughts = [each.thinking for each in said if _is_thought(each)]
    first, *others = [each for each in said if not _is_thought(each)] or [Turn(ASSISTANT)]
    thinking = "\n".join(filter(None, [*thoughts, first.thinking]))
    return [replace(first, thinking=thinking), *others] if thoughts else said


def _is_thought(turn: Turn) -> bool:
    return turn == Turn(ASSISTANT, thinking=turn.thinking or "-")


# ---------------------------------------------------------------- values of any kind


def fields_in(value: Any) -> Fields:
    """The named values of an object, also of one in JSON; of anything else none."""
    found = in_json(value)
    return found if isinstance(found, Mapping) else {}


def list_in(value: Any) -> list[Any]:
    """The entries of a list, also of one in JSON; of anything else none."""
    found = in_json(value)
    return found if isinstance(found, list) else []


def unflattened(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Objects of names with dots and numbers as objects and lists, at any depth.

    Where a name has a value and also others below it, the value is below the empty name.
    """
    root: dict[str, Any] = {}
    for name, value in fields.items():
        node = root
        *path, last = str(name).split(".")
        for part in path:
            inner = node.get(part)
            if not isinstance(inner, dict):
                inner = node[part] = {} if inner is None else {"": inner}
            node = inner
        inside, there = _inside(value), node.get(last)
        if isinstance(there, dict):
            there.update(inside if isinstance(inside, dict) else {"": inside})
        else:
            node[last] = inside
    return {name: _listed(value) for name, value in root.items()}


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return unflattened(value)
    return [_inside(each) for each in value] if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    if isinstance(value, list):
        return [_listed(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _listed(each) for name, each in value.items()}
    if inner and all(name.isdecimal() for name in inner):
        return [inner[name] for name in sorted(inner, key=lambda name: (len(name), name))]
    return inner
