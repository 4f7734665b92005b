"""Cut secrets out of servers' messages: some repeat everything that they were sent."""

import base64
import html
import json
import re
from collections.abc import Iterable
from string import ascii_lowercase, ascii_uppercase
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings

from engine.domain.connection_targets import Target
from engine.domain.texts import storable

_CUT = "…"
# Lower case, each character in its place.
_FOLD = str.maketrans(ascii_uppercase, ascii_lowercase)
# So many characters of a key in a row are cut from the words of a server; shorter keys are cut whole.
_PART = 8
# In answers of models, where ordinary words must stay: more characters, and shorter keys as they are written.
_PART_IN_ANSWERS = 16
# What is shorter is no secret, and is in every text.
_SHORTEST = 4
_SECRET_HEADERS = re.compile("auth|cookie|key|secret|token", re.IGNORECASE)
# Anybody's secrets, by shape: names and passwords in addresses, keys in queries, usual keys.
_SHAPES = (
    (re.compile(r"(//)[^/\s@]{1,300}@"), r"\1…@"),
    (re.compile(r"[^\s/:@\"']{1,99}:[^\s/@\"']{1,200}@(?=[\w.-])"), "…@"),
    (
        re.compile(
            r"([?&\s\"'](?:[\w-]*key|[\w-]*token|sig|signature|secret|password|code)[\"']?\s?[=:]\s?[\"']?)"
            r"[^&\s\"',]{4,}",
            re.IGNORECASE,
        ),
        r"\1…",
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE), r"\1 …"),
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|AIza|ABSK|ghp|eyJ)[-_A-Za-z0-9]{8,}"), _CUT),
)
_LONGEST = 600
# Read at most so much of a server's message.
_LONGEST_READ = 20_000


def scrub(said: str, target: Target) -> str:
    """The server's words for editors: without secrets, on one line, and not too long."""
    text = without(storable(said[:_LONGEST_READ]), _secrets(target), _PART)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def scrub_answer(text: str, target: Target) -> str:
    """The answer of a model without the key, which a server that repeats its request puts there."""
    if len(target.key) >= _PART_IN_ANSWERS:
        return without(text, [target.key], _PART_IN_ANSWERS)
    if len(target.key) < _SHORTEST:
        return text
    return _without_whole(text, _forms(target.key, text) | _coded(target.key))


def without(text: str, secrets: Iterable[str], part: int) -> str:
    """The text without the parts of the secrets that are at least so long, plain or encoded."""
    for secret in secrets:
        if len(secret) < _SHORTEST:
            continue
        text = _without_whole(text, _coded(secret))
        size = min(part, len(secret))
        folded = text.translate(_FOLD)
        forms = {form.translate(_FOLD) for form in _forms(secret, text)}
        # A quick look first: a part holds one whole piece of those that are half as long.
        half = max(size // 2, 1)
        if any(
            form[at : at + half] in folded for form in forms for at in range(0, len(form) - half + 1, half)
        ):
            grams = {form[at : at + size] for form in forms for at in range(len(form) - size + 1)}
            text = _cut(
                text, [at for at in range(len(folded) - size + 1) if folded[at : at + size] in grams], size
            )
    return text


def _cut(text: str, starts: Iterable[int], size: int) -> str:
    """The text with one mark in place of each run of pieces of this size that start there."""
    kept: list[str] = []
    copied = 0
    for start in starts:
        if start > copied or not kept:
            kept += (text[copied:start], _CUT)
        copied = start + size
    return "".join((*kept, text[copied:]))


def _forms(secret: str, text: str) -> set[str]:
    """The secret as it is and as servers write it, as far as the text may hold it: in hexadecimal, base64 at
    any offset, percent, JSON and HTML.
    """
    plain = secret.encode()
    forms = {secret, plain.hex(), plain.hex().upper()}
    for offset in range(3):
        # The characters at both ends also hold bits of the neighbours.
        encoded = base64.b64encode(b"\0" * offset + plain).decode().rstrip("=")
        own = encoded[-(-offset * 8 // 6) : len(encoded) - bool((offset + len(plain)) % 3)]
        forms |= {own, own.replace("+", "-").replace("/", "_")}
    if "%" in text:
        forms |= {quote(secret), quote(secret, safe="")}
    if "\\" in text:
        escaped = json.dumps(secret)[1:-1]
        marked = re.sub("[<>&'+]", lambda found: f"\\u{ord(found[0]):04x}", escaped)
        forms |= {escaped, escaped.replace("/", "\\/"), marked}
    if "&" in text:
        forms |= {html.escape(secret), html.escape(secret, quote=False)}
    return forms


def _coded(secret: str) -> set[str]:
    """The secret with a code for each character; parts of it would be of a few characters only."""
    codes = ("%{:02x}", "%{:02X}", "\\u{:04x}", "\\u{:04X}")
    return {"".join(map(code.format, secret.encode())) for code in codes}


def _without_whole(text: str, forms: Iterable[str]) -> str:
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _CUT)
    return text


def _secrets(target: Target) -> list[str]:
    proxy = urlsplit(settings.CONNECTION_PROXY)
    headers = [value for name, value in target.headers.items() if _SECRET_HEADERS.search(name)]
    return [target.key, unquote(proxy.password or ""), *headers]
