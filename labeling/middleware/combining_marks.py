"""Cuts runs of combining marks in pages: a browser that draws 200,000 on one letter does nothing else."""

import re
import unicodedata
from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

# No script puts as many on one letter.
MOST_MARKS = 10

# All combining marks lie here, most of them in the first range. The joiners do not end a run.
_RANGES = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))
_ALL = [chr(code) for each in _RANGES for code in each if unicodedata.category(chr(code))[0] == "M"]
# `re` looks up a character of a class at once only where none lies beyond the first 65,536.
_FIRST = "\u200c\u200d" + "".join(mark for mark in _ALL if mark <= "\uffff")
_OTHERS = "".join(mark for mark in _ALL if mark > "\uffff")
_MARK = f"(?:[{_FIRST}]|(?![\0-\uffff])[{_OTHERS}])"
# In UTF-8 a mark takes two bytes or more, none of them ASCII. A page is searched for such a run in no time.
_IS_ASCII = bytes(byte < 128 for byte in range(256))
_LONG_RUN = b"\0\0" * (MOST_MARKS + 1)
_too_many = re.compile(f"(?=[^\0-\u02ff]{{{MOST_MARKS + 1}}}){_MARK}{{{MOST_MARKS + 1}}}").search
# Fields are sent back: stored texts must stay as they are.
_parts = re.compile(f"(<textarea\\b.*?</textarea>|<[^>]*>)|({_MARK}{{{MOST_MARKS}}}){_MARK}*", re.DOTALL)


class Legible:
    """Middleware: keep the first ten combining marks of a run, on every page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if response.streaming or not response.get("Content-Type", "").startswith("text/html"):
            return response
        content: bytes = response.content  # type: ignore[attr-defined]  # it does not stream
        if _LONG_RUN in content.translate(_IS_ASCII) and _too_many(page := content.decode()):
            response.content = _parts.sub(r"\1\2", page)  # type: ignore[attr-defined]
        return response
