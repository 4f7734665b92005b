"""Keeps secrets and other places out of the headers and fields that people add to requests.

A gateway may take an address from a header or a field, and sends its key there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import re2

_PLACE = re2.compile(r"(?i)url|uri\b|host|forward|endpoint|proxy|callback|webhook|api.?base")
_SECRET = re2.compile(r"(?i)api.?key|authorization|secret|passw|credential|cookie")
_SECRET_HEADER = re2.compile(r"(?i)key|token|auth")
_HEADER = re2.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_VALUE = re2.compile(r"[\x20-\x7e]*")
# They belong to the request itself.
_OWN_HEADERS = {
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
    "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
}  # fmt: skip
_OWN_FIELDS = {"messages", "system", "stream", "n", "user_config", "litellm_params"}
# Gateways take another model, with its price, or headers from them.
_OTHER_MODEL = re2.compile(
    r"(?i)models?|model_?(id|name|list)|(\w+_)?fallbacks|deployment(_id)?|engine|preset|custom_llm_provider|"
    r"extra_(headers|query)"
)
_MOST_DEEP = 20
_TOO_DEEP = "(nested too deep)"


def fault_of_headers(headers: Any) -> str:
    """The reason why these headers cannot be sent along; empty if they can."""
    if not isinstance(headers, dict):
        return "Headers are an object of names and texts."
    for name, value in headers.items():
        if not isinstance(value, str) or not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            return f"The header {name!r:.60} needs a name of letters, digits and “-”, and a text in one line."
        if name.lower() in _OWN_HEADERS or name.lower().startswith("proxy"):
            return f"The header {name} belongs to the request itself. Remove it."
        if _SECRET.search(name) or _SECRET_HEADER.search(name):
            return f"The header {name} looks like a secret, and it is shown. Remove it."
        if _PLACE.search(name) or "://" in value:
            return f"The header {name} may lead a request, and the key, to another place. Remove it."
    return ""


def fault_of_fields(fields: Any) -> str:
    """The reason why these fields cannot be added to a request's body; empty if they can."""
    if not isinstance(fields, dict):
        return "Further fields are an object."
    inner = fields.get("extra_body")
    for name in (*fields, *(inner if isinstance(inner, dict) else ())):
        if name in _OWN_FIELDS or _OTHER_MODEL.fullmatch(name):
            return f"The field {name:.60} belongs to the request itself. Remove it."
    for name, value in _leaves(fields, 0):
        if name == _TOO_DEEP:
            return f"Further fields are nested more than {_MOST_DEEP} levels deep. Flatten them."
        if _SECRET.search(name):
            return f"The field {name:.60} looks like a secret: people see these fields. Remove it."
        if _PLACE.search(name) or (isinstance(value, str) and "://" in value):
            return f"The field {name:.60} may lead a request, and the key, to another place. Remove it."
    return ""


def _leaves(value: Any, depth: int, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every name in it with its value."""
    if depth > _MOST_DEEP:
        yield _TOO_DEEP, ""
        return
    if isinstance(value, Mapping):
        for each, inner in value.items():
            yield str(each), inner
            yield from _leaves(inner, depth + 1, str(each))
    elif isinstance(value, list):
        for inner in value:
            yield name, inner
            yield from _leaves(inner, depth + 1, name)
