"""Decide from an error's status and words whose fault it is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from engine.domain.connection_targets import Target
from engine.domain.levels import SamplingParams
from engine.domain.profiles import SETTINGS, Takes, is_set
from engine.generation.base import (
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    unanswerable,
)
from engine.generation.remote.scrubbing import scrub

_REDIRECT, _BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE, _TOO_MANY = 300, 400, 403, 404, 413, 429
_BROKEN, _LOST = 500, 502
_ACCESS = {
    401: "refuses the key",
    402: "wants to be paid",
    403: "refuses access",
    404: "does not know the model or the address",
    405: "does not take requests at this address",
    407: "is reached by a proxy that refuses access",
    410: "no longer has the model",
    451: "may not answer here",
}
# Statuses that mean what they say, whatever the words are.
_PLAIN_ACCESS = {401, 402}
# The server, or a gateway before it, never came to the request: words cannot be about it.
_AWAY = {408, 409, 421, 423, 425, 460, 499, *range(502, 600)}
_FAILED = Fault.SERVER, "failed"
_SERVERS = {
    408: (Fault.SERVER, "took too long"),
    409: (Fault.BUSY, "is busy"),
    421: (Fault.BUSY, "is not ready"),
    423: (Fault.BUSY, "is not ready"),
    424: _FAILED,
    425: (Fault.BUSY, "is not ready"),
    429: (Fault.BUSY, "asks to wait"),
    460: _FAILED,
    499: _FAILED,
    503: (Fault.BUSY, "is not ready"),
    529: (Fault.BUSY, "is overloaded"),
}
# So much of a body without JSON is read for words.
_READ = 20_000
# A server may ask for no longer wait than this.
_LONGEST_WAIT_SECONDS = 24 * 3600.0

# In words and codes that are in lower case.
_FILTERED = re.compile(
    r"content[_ ]?filter|content[_ ](management )?policy|responsibleaipolicyviolation|content_policy|"
    r"data_?inspection_?failed|prohibited_content|flagged|moderation|safety (system|filter|policy)|"
    r"guardrail_intervened|usage (polic(y|ies)|guidelines)|sensitive content|敏感内容|"
    r"unsafe content|invalid_prompt"
)
# Kinds of errors by the servers' words and codes, in lower case; an earlier one wins. The status alone does
# not tell them apart: each of them comes as 400, and some as 403, 404, 429 or 500.
_KINDS = (
    ("access", re.compile(r"account\b.{0,60}\b(flagged|suspended|disabled|deactivated)")),
    # It quotes names of the level's schema, which mean nothing.
    ("settings", re.compile(r"invalid schema\b")),
    ("filtered", _FILTERED),
    # A maximum that is too large for the model is a setting, though it names the context as well.
    (
        "settings",
        re.compile(r"^[\s'\"`]*max_(completion_|new_|output_)?tokens['\"`]?(: \d+)? (is|must|exceed)"),
    ),
    (
        "too long",
        re.compile(
            r"context_length_exceeded|exceed_context_size|string_above_max_length|max(imum)? context|"
            r"context (length|window|size)|max_model_len|prompt is too long|too many (input )?tokens|"
            r"(input|prompt|request)( (?!took|takes|taking)\w+)? (is )?too (long|large)|request_too_large|"
            r"payload too large|"
            r"reduce the length|input token count|maximum (allowed )?(input|prompt|number of tokens)|"
            r"(input|prompt)\b.{0,60}\b(exceeds?|longer than)\b|`?inputs`? tokens"
        ),
    ),
    (
        "busy",
        re.compile(
            r"rate[ _-]?limit|too many requests|throttl|overloaded|temporarily|try again (later|in)|"
            r"rate exceeded|quotaexceeded|server is busy|loading model|"
            r"model is (currently |still )?loading|no models? loaded"
        ),
    ),
    (
        "access",
        re.compile(
            r"insufficient_quota|exceeded your current quota|quota[_ ]exceeded for this month|billing|"
            r"credit balance|insufficient (balance|credits?|funds)|payment required|arrearage|"
            r"invalid[_ ]api[_ ]key|api[_ ]key[_ ](not valid|invalid|expired)|incorrect api key|"
            r"invalid_authentication|unauthorized|permission_denied|model[_ ]?not[_ ]?found|"
            r"invalid_model\b|unknown_model|model_not_available|deploymentnotfound|"
            r"model\b.{0,120}\b(does not exist|not found|has been (shut|deprecated))|"
            r"model identifier is invalid|not a valid model|model_decommissioned|unsupported_country|"
            r"access to (the )?model|location is not supported|on-demand throughput"
        ),
    ),
)
# Words that make 429 a matter of money rather than of time, where the server does not say when to come again.
_QUOTA = re.compile(
    r"insufficient_quota|current quota|billing|credit balance|insufficient (balance|credits?|funds)|arrearage"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of a server: headers with names in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Said:
    """An error as the server tells it: words, and codes for programs."""

    words: str = ""
    codes: str = ""
    status: int | None = None
    wait_seconds: float | None = None


def host_of(target: Target) -> str:
    """The host of a target, as our sentences name it."""
    return urlsplit(target.address).hostname or "The server"


def said_in(data: Any) -> Said | None:
    """The error in the JSON of an answer, in any of the usual shapes; ``None``: no error."""
    if isinstance(data, list):
        return next(filter(None, map(said_in, data)), None)
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if not error and data.get("type") != "error":
        error = data if _is_bare_error(data) else None
    if not error:
        return None
    if not isinstance(error, dict):
        return Said(_words(error))
    nested = [
        error,
        *(each for name in ("innererror", "metadata") if isinstance(each := error.get(name), dict)),
    ]
    details = error.get("details")
    nested += [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    codes = [each.get(name) for each in nested for name in ("type", "code", "status", "reason", "__type")]
    words = next(
        (error[name] for name in ("message", "msg", "detail", "error", "Message") if error.get(name)), ""
    )
    raw = nested[1].get("raw") if len(nested) > 1 else None
    numbers = [error.get("code"), error.get("status"), error.get("status_code")]
    return Said(
        " ".join(filter(None, (_words(words), _words(raw) if raw else ""))),
        " ".join(str(code) for code in codes if isinstance(code, (str, int))),
        next((code for each in numbers if (code := _status(each))), None),
        next((wait for each in nested if (wait := _seconds(each.get("retryDelay"))) is not None), None),
    )


def _is_bare_error(data: Mapping[str, Any]) -> bool:
    """True if the JSON itself is an error: FastAPI's detail, Bedrock's and Mistral's message."""
    named = any(data.get(name) for name in ("detail", "message", "Message"))
    return named and not data.keys() & {"choices", "content", "output"}


def _words(value: Any) -> str:
    """The words of an error: a text, or each of a list with the place it is about."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_words, value)))
    if isinstance(value, dict):
        place = value.get("loc")
        inner = next((value[name] for name in ("msg", "message", "detail") if value.get(name)), "")
        where = ".".join(map(str, place)) if isinstance(place, list) else ""
        return ": ".join(filter(None, (where, _words(inner))))
    return ""


def _status(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:4])
    return value if isinstance(value, int) and _BAD_REQUEST <= value < 600 else None


def ending_of(target: Target, request: GenerationRequest, answer: Answer, said: Said | None) -> Outcome:
    """The end of a request that has an error for an answer: no answer, or a failure and whose fault it is.

    An error inside of an answer with status 200 counts by the status in it, else as the server's fault.
    """
    if said is None:
        said = Said(answer.body[:_READ].decode(errors="replace") if _is_words(answer) else "")
    inside = answer.status < _REDIRECT
    status = said.status or _LOST if inside else answer.status
    host, words = host_of(target), scrub(said.words or said.codes, target)
    wait = _wait(answer.headers) if said.wait_seconds is None else said.wait_seconds
    kind = _kind(status, said, inside=inside, waits=wait is not None)
    if kind == "filtered":
        return GenerationResult(
            request.key, "", None, None, Finish.FILTERED, 0.0, model=request.model, said=words
        )
    if kind == "too long":
        return unanswerable(request.key, f"{host} finds this request too long ({status}).", said=words)
    if inside and said.status is None and not kind:
        reason = f"{host} answers with an error in place of a reply."
        return GenerationFailure(request.key, reason, Fault.SERVER, said=words)
    fault, reason = _fault(status, kind, named_settings(target.takes, request.sampling, said.words[:_READ]))
    if status == _NOT_FOUND and request.sampling.extra_body and target.takes.extra_body:
        # Gateways find no server for some fields: a policy must not stop the connection of others.
        fault = Fault.SETTINGS
    remedy = " Enter another key." if fault == Fault.ACCESS and reason.startswith("refuses") else ""
    its_fault = fault in {Fault.BUSY, Fault.SERVER}
    return GenerationFailure(
        request.key,
        f"{host} {reason} ({status}).{remedy}",
        fault,
        said=words,
        wait_seconds=min(wait, _LONGEST_WAIT_SECONDS) if its_fault and wait is not None else None,
    )


def _fault(status: int, kind: str, names: Sequence[str]) -> tuple[Fault, str]:
    """The side at fault, and our words for it, which follow the host's name."""
    if kind == "busy":
        words = _SERVERS.get(status, _FAILED)
        return words if words[0] == Fault.BUSY else (Fault.BUSY, "asks to wait")
    if kind == "access":
        return Fault.ACCESS, _ACCESS.get(status, "refuses the key, the account or the model")
    if kind == "quota":
        return Fault.ACCESS, "has no quota left for this account"
    if status in _SERVERS or status >= _BROKEN:
        return _SERVERS.get(status, _FAILED)
    if status < _BAD_REQUEST:
        return Fault.ACCESS, "sends on to another address, which is not followed"
    return Fault.SETTINGS, f"refuses {' and '.join(names)}" if names else "refuses what this policy sends"


def _kind(status: int, said: Said, *, inside: bool, waits: bool) -> str:
    text = f"{said.words[:_READ]} {said.codes[:_READ]}".lower()
    found = next((kind for kind, pattern in _KINDS if pattern.search(text)), "")
    if found in {"filtered", "too long"} and not (inside and said.status is None):
        # A filter that is out of order also names itself.
        only_named = found == "filtered" and status >= _BROKEN and not _FILTERED.search(said.codes.lower())
        if status < _BAD_REQUEST or status in _AWAY or only_named:
            found = ""
    if status == _TOO_MANY:
        if "request too large" in text:
            return "too long"
        return "quota" if _QUOTA.search(text) and not waits else ""
    if status == _TOO_LARGE:
        return "too long"
    if found == "too long" or (found == "filtered" and (status == _FORBIDDEN or status not in _ACCESS)):
        return found
    if (found == "busy" or (found == "settings" and status < _BROKEN)) and status not in _PLAIN_ACCESS:
        return found
    return "access" if status in _ACCESS or (found == "access" and (inside or status < _BROKEN)) else ""


def named_settings(takes: Takes, sampling: SamplingParams, said: str) -> list[str]:
    """The settings of a level that a server's words name by their name in the request."""
    return [
        setting
        for setting in SETTINGS
        if isinstance(path := getattr(takes, setting), str)
        and path
        and is_set(getattr(sampling, setting))
        and re.search(rf"(?<![a-z_]){re.escape(path.rpartition('.')[2])}(?![a-z_])", said, re.IGNORECASE)
    ]


def _is_words(answer: Answer) -> bool:
    """True if the body may be a sentence rather than a page."""
    return b"<html" not in answer.body[:1000].lower() and b"<!doctype" not in answer.body[:1000].lower()


def _wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server wants to be left alone."""
    if (milliseconds := _seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "")
    if (seconds := _seconds(given)) is not None:
        return seconds
    if (until := _date(given)) is None:
        return None
    now = _date(headers.get("date", "")) or datetime.now(until.tzinfo)
    return max((until - now).total_seconds(), 0.0)


def _seconds(value: Any) -> float | None:
    """A number of seconds out of a header ("17", "1.5") or a field ("17s")."""
    if not isinstance(value, str) or not (
        found := re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*s?\s*", value)
    ):
        return None
    return float(found[1])


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.astimezone()
