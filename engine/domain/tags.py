"""Tags: the categories of a task, and the words by which experiments are listed."""

import re
from collections.abc import Iterable

_LONGEST = 100
_SEPARATOR = re.compile(r"[,;\n]")


def read_tags(text: str) -> tuple[str, ...]:
    """The tags in one text, in which a comma, a semicolon or a line separates them."""
    return distinct(_SEPARATOR.split(text))


def distinct(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags without spaces around them, each once, without empty ones."""
    return tuple(dict.fromkeys(tag for each in tags if (tag := each.strip())))


def fault_of(tags: tuple[str, ...]) -> str:
    """The reason why these cannot be a task's tags; empty if they can."""
    if tags != distinct(tags):
        return "A tag is empty, stands twice, or has spaces around it. Remove it."
    for tag in tags:
        if len(tag) > _LONGEST:
            return f"The tag {tag[:40]!r}… has {len(tag):,} characters; the limit is {_LONGEST}. Shorten it."
        if not tag.isprintable() or _SEPARATOR.search(tag):
            return f"The tag {tag!r} has a comma, a semicolon or a control character in it. Remove it."
    return ""


def normal_tags(text: str) -> str:
    """The tags of an experiment as they are stored: in small letters, each once, by name, "a, b"."""
    return ", ".join(sorted({" ".join(tag.lower().split()) for tag in text.split(",")} - {""}))
