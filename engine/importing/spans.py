"""Spans of OpenTelemetry's conventions for language models, in each form that these have had, and of
OpenInference, which Phoenix stores.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.importing.gathered import Call
from engine.importing.messages import fields_in, has_text, is_bare, list_in, unflattened
from engine.importing.rows import ImportingError, in_json, is_empty

Fields = Mapping[str, Any]
# What the groups of a document hold, in both ways that names are written, from the outside in.
_GROUPS = (
    "resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "spans",
    "resourceLogs", "resource_logs", "scopeLogs", "scope_logs", "logRecords", "log_records",
)  # fmt: skip
_IDS = ("spanId", "span_id", "context.span_id"), ("traceId", "trace_id", "context.trace_id")
_OF_MODELS = ("gen_ai", "llm", "openinference")
_CALLS = {"chat", "generate_content", "text_completion"}
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "developer", "user", "assistant", "tool")}
_CAPTURE = "switch on the capture of contents"
_NO_TEXTS = f"without texts: {_CAPTURE}"
# More than a time or an integer of OTLP has, and fewer than Python refuses.
_DIGITS = 30
_INTEGER = re.compile(rf"-?\d{{1,{_DIGITS}}}", re.ASCII)
_FAILED = {"2", "ERROR", "STATUS_CODE_ERROR", "STATUSCODE.ERROR"}


def spans_in(row: Fields) -> list[Fields] | None:
    """The spans and log records of a document, a line or a row of a table; `None` of another one."""
    inner = [each for name in _GROUPS if isinstance(row.get(name), list) for each in row[name]]
    if inner:
        found = [spans_in(each) if isinstance(each, Mapping) else None for each in inner]
        return None if all(each is None for each in found) else [e for each in found for e in each or ()]
    is_span = any(name in row for name in (*_IDS[0], *_IDS[1], "context"))
    # A record outside of any span still tells of an answer.
    is_span = is_span or str(row.get("eventName")).startswith("gen_ai.")
    says = "attributes" in row or "span_kind" in row or any(name.startswith("attributes.") for name in row)
    return [row] if is_span and (says or "eventName" in row) else None


def calls_of_spans(rows: Iterable[tuple[str, Fields]]) -> Sequence[Call] | None:
    """The calls that spans and log records tell of; `None` where none is about a language model.

    Raises
    ------
    ImportingError
        No call has a text.
    """
    spans: dict[tuple[str, ...], _Span] = {}
    for place, row in rows:
        ids = {**fields_in(row.get("context")), **row}
        key = tuple(str(next((ids[n] for n in names if ids.get(n)), "")) for names in _IDS)
        span = spans.setdefault(key if key[0] else (place, str(len(spans))), _Span(f"{place}, span {key[0]}"))
        span.absorb(row)
    if not any(span.tree.keys() & set(_OF_MODELS) or span.events or span.kind for span in spans.values()):
        return None
    calls = [span.call() for span in spans.values()]
    empty = sum(call.skipped == _NO_TEXTS for call in calls)
    if empty and not any(call.policy is not None for call in calls):
        raise ImportingError.at("", f"{empty} of {empty} spans hold no texts: {_CAPTURE}.")
    return calls


@dataclass
class _Span:
    place: str
    name: str = ""
    kind: str = ""
    failed: str = ""
    tree: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[int, str, Fields]] = field(default_factory=list)

    def absorb(self, row: Fields) -> None:
        """Take up a row of the span, or a log record that belongs to it."""
        flat = _named(row.get("attributes"))
        flat |= {
            n.removeprefix("attributes."): v
            for n, v in row.items()
            if n.startswith("attributes.") and v is not None
        }
        event = row.get("eventName") or row.get("event_name") or flat.get("event.name")
        if event or "body" in row:
            self._note(str(event), flat, row)
        else:
            self.name = self.name or str(row.get("name") or "")
            self._fail(row)
        for each in map(fields_in, list_in(row.get("events"))):
            if each:
                self._note(str(each.get("name")), _named(each.get("attributes")), each)
        for each in map(fields_in, list_in(flat.pop("events", None))):
            if each:
                self._note(str(each.get("event.name")), each, {})
        # The same span may be there twice: the first of each text counts.
        self.tree = _merged(self.tree, unflattened(flat))
        kind = row.get("span_kind") or _at(self.tree, "openinference.span.kind")
        self.kind = self.kind or str(kind or "").upper()

    def _note(self, name: str, attributes: Fields, event: Fields) -> None:
        body = in_json(_value(event.get("body")))
        fields = {**attributes, **(body if isinstance(body, Mapping) else {"content": body} if body else {})}
        if name.startswith("gen_ai."):
            at = str(event.get("timeUnixNano") or 0)
            self.events.append((int(at) if at.isdecimal() and len(at) < _DIGITS else 0, name, fields))

    def _fail(self, row: Fields) -> None:
        status = row.get("status")
        fields: Fields = status if isinstance(status, Mapping) else {"code": status}
        code = fields.get("code", fields.get("status_code", row.get("status_code")))
        said = fields.get("message") or fields.get("description") or row.get("status_message")
        if str(code or row.get("status_code")).upper() in _FAILED:
            self.failed = f"failed ({said or _at(self.tree, 'error.type') or 'without a message'})"

    def call(self) -> Call:
        llm = self.tree.get("llm")
        if self.kind or isinstance(llm, Mapping):
            return self._of_openinference(llm if isinstance(llm, Mapping) else {})
        return self._of_genai()

    def _of_openinference(self, llm: Fields) -> Call:
        if self.kind not in {"LLM", ""}:
            return Call("span", self.place, skipped=f"a {self.kind.lower()}, and no call of a model")
        given, answers = llm.get("input_messages"), llm.get("output_messages")
        # The whole request, and the whole answer.
        whole, said = (_at(self.tree, f"{side}.value") for side in ("input", "output"))
        if not has_text(given) and not is_empty(whole):
            given = whole
        answers = said if is_empty(answers) else answers
        finish = str(llm.get("finish_reason") or "")
        # The model that was asked for: the answer of a server names another one, such as one with a date.
        asked = fields_in(llm.get("invocation_parameters"))
        names = (_at(llm, "request.model_name"), asked.get("model"), asked.get("model_name"))
        model = next(filter(None, names), llm.get("model_name"))
        return self._told(given, None, str(model or ""), answers, finish)

    def _of_genai(self) -> Call:
        operation = str(_at(self.tree, "gen_ai.operation.name") or "")
        if operation.lower() not in {*_CALLS, ""} or not ("gen_ai" in self.tree or self.events):
            kind = operation or self.name or "another span"
            return Call("span", self.place, skipped=f"no call of a model ({kind})")
        model = _at(self.tree, "gen_ai.request.model") or _at(self.tree, "gen_ai.response.model")
        system = _first(self._texts("system_instructions"))
        reasons = in_json(_at(self.tree, "gen_ai.response.finish_reasons"))
        finish = str(reasons[0]) if isinstance(reasons, list) and len(reasons) == 1 else ""
        given, answers = _first(self._asked()), _first(self._answered())
        return self._told(given, system, str(model or ""), answers, finish)

    def _told(self, given: Any, system: Any, model: str, answers: Any, finish: str) -> Call:
        if is_empty(given) and is_empty(answers) and not self.failed:
            return Call("span", self.place, skipped=_NO_TEXTS)
        failed = self.failed
        if is_empty(answers) and (kind := _at(self.tree, "error.type")):
            failed = failed or f"failed ({kind})"
        return Call("span", self.place, given, system, [model], answers, finish, skipped=failed)

    def _texts(self, path: str) -> Iterator[Any]:
        """Texts in the newest form: on the span, or on an event with the same attributes."""
        yield in_json(_at(self.tree, f"gen_ai.{path}"))
        for _, _, fields in self.events:
            yield in_json(_at(unflattened(fields), f"gen_ai.{path}"))

    def _asked(self) -> Iterator[Any]:
        """What was asked, in each form, the newest first."""
        yield from self._texts("input.messages")
        # An event says the role itself where its name does not; one attribute may hold all as JSON.
        turns = (
            {"role": _ROLES[name], **fields, **fields_in(fields.get("gen_ai.event.content"))}
            for _, name, fields in sorted(self.events, key=lambda event: event[0])
            if name in _ROLES
        )
        yield [each for each in turns if not is_bare(each)]
        yield from self._texts("prompt")

    def _answered(self) -> Iterator[Any]:
        yield from self._texts("output.messages")
        choices = [_choice(fields) for _, name, fields in self.events if name == "gen_ai.choice"]
        choices = [each for each in choices if not is_bare(each)]
        yield {"choices": choices} if choices else None
        yield from self._texts("completion")


def _choice(fields: Fields) -> dict[str, Any]:
    whole = {**fields, **fields_in(fields.get("gen_ai.event.content"))}
    message = in_json(whole.get("message"))
    message = message or unflattened(whole).get("message") or {**whole, "message": None}
    if not isinstance(message, Mapping):
        message = {"content": message}
    # Some write the calls of tools beside the message.
    return {
        "finish_reason": whole.get("finish_reason"),
        "message": {"tool_calls": whole.get("tool_calls"), **message},
    }


def _first(found: Iterable[Any]) -> Any:
    return next((each for each in found if not is_empty(each)), None)


def _at(tree: Fields, path: str) -> Any:
    """The value at a path, also where it has others below it."""
    found: Any = tree
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping) and "" in found:
        numbered = [found[n] for n in sorted((n for n in found if n.isdecimal()), key=lambda n: (len(n), n))]
        return found[""] or numbered
    return found


def _merged(there: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    both = dict(there)
    for name, each in value.items():
        old = both.get(name)
        both[name] = _merged(old, each) if isinstance(old, dict) and isinstance(each, dict) else old or each
    return both


def _named(given: Any) -> dict[str, Any]:
    """Attributes by their names: OTLP has a list of keys and values."""
    given = in_json(given)
    if isinstance(given, list):
        return {
            str(each.get("key")): _value(each.get("value")) for each in given if isinstance(each, Mapping)
        }
    return dict(given) if isinstance(given, Mapping) else {}


def _value(given: Any) -> Any:
    """A value of OTLP, which says its type; numbers are texts there."""
    if not isinstance(given, Mapping) or len(given) != 1:
        return given
    [(kind, value)] = given.items()
    match str(kind).replace("_v", "V"):
        case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
            return value
        case "intValue":
            return int(value) if _INTEGER.fullmatch(str(value)) else value
        case "arrayValue":
            return [_value(each) for each in list_in(fields_in(value).get("values"))]
        case "kvlistValue":
            return _named(list_in(fields_in(value).get("values")))
    return given
