"""A task as a conversation: messages with roles, which the policy's response continues.

Every task has a text. If the task is a single message of the user, the text is all there is. Any other
conversation also keeps its messages, and the text is their transcript.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = (SYSTEM, USER, ASSISTANT)
# Types of the parts of a content that are texts, in OpenAI's two APIs.
_TEXTS = {"text", "input_text", "output_text"}
_SHAPE = "Messages are a list of objects, each with a role and a content."


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


def chat(user: str, system: str = "") -> tuple[Message, ...]:
    """A conversation of one message of the user, preceded by a system message unless that is empty."""
    return (*((Message(SYSTEM, system),) if system else ()), Message(USER, user))


def transcript(messages: Sequence[Message]) -> str:
    """The conversation as one text: a single message unchanged, several with their roles in front."""
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"{each.role.capitalize()}: {each.content}" for each in messages)


def text_and_messages(messages: Iterable[Message]) -> tuple[str, tuple[Message, ...]]:
    """The text of a task and its stored messages: none if it is one message of the user."""
    turns = tuple(messages)
    one_text = len(turns) == 1 and turns[0].role == USER
    return transcript(turns), () if one_text else turns


def turns_of(text: str, messages: Sequence[Mapping[str, str]]) -> tuple[Message, ...]:
    """All messages of a task, from its text and from the messages that are stored beside it."""
    return tuple(Message(**each) for each in messages) if messages else (Message(USER, text),)


def as_json(messages: Iterable[Message]) -> list[dict[str, str]]:
    """The messages as JSON has them, in OpenAI's shape."""
    return [asdict(each) for each in messages]


def read_messages(value: Any) -> tuple[Message, ...]:
    """Messages out of JSON. A content of several parts, all of them texts, becomes one text.

    Raises
    ------
    ValueError
        Says which message is wrong, and what it should be.
    """
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(_SHAPE)
    messages = tuple(_message(number, each) for number, each in enumerate(value, 1))
    if fault := fault_of(messages):
        raise ValueError(fault)
    return messages


def fault_of(messages: Sequence[Message]) -> str:
    """The reason why a response cannot continue this conversation; empty if one can."""
    for number, message in enumerate(messages, 1):
        if message.role not in ROLES:
            return f"Message {number} has the role {message.role[:40]!r}. Use {', '.join(ROLES)}."
        if not message.content.strip():
            return f"Message {number} is empty. Write it, or leave it out."
        if message.role == SYSTEM and any(each.role != SYSTEM for each in messages[: number - 1]):
            return f"Message {number} is a system message. These come before all others; move it there."
    if messages and messages[-1].role != USER:
        return (
            f"The last message is by the {messages[-1].role}, but a response answers the user. "
            "Remove it; a correct answer belongs in the reference."
        )
    return ""


def holds_more_than_text(message: Mapping[str, Any]) -> bool:
    """True if a message out of JSON calls a tool, or has a part that is no text, such as a picture."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return bool(message.get("tool_calls") or message.get("function_call")) or not all(map(_is_text, parts))


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, Mapping)
        and part.get("type", "text") in _TEXTS
        and isinstance(part.get("text"), (str, NoneType))
    )


def content_of(message: Mapping[str, Any]) -> Any:
    """The content of a message that holds no more than text: of several parts, one text with a line for each.

    A part without a text is an empty line.
    """
    content = message.get("content")
    return "\n".join(part.get("text") or "" for part in content) if isinstance(content, list) else content


def _message(number: int, value: Any) -> Message:
    if not isinstance(value, Mapping):
        raise ValueError(f"Message {number} is not an object. {_SHAPE}")
    if holds_more_than_text(value):
        raise ValueError(f"Message {number} holds more than text. Only text can be shown and sent.")
    role, content = value.get("role"), content_of(value)
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(f"Message {number} needs a role and a content, both texts.")
    return Message(SYSTEM if role == "developer" else role, content)
