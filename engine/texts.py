"""Texts that come from outside."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """PostgreSQL has no NUL in a text and UTF-8 no half of a surrogate pair; a model may write both."""
    return _UNSTORABLE.sub("\ufffd", text)
