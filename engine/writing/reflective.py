"""Our writer: one question for all texts that are wanted, with the votes and comments that it may see."""

import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from engine.domain.conversations import chat
from engine.domain.proposals import Brief
from engine.domain.texts import storable
from engine.importing import strict_json
from engine.writing.base import Ask, WriterError, Written

_PROMPT = Path(__file__).with_name("prompt.md")
_LONGEST_REASON = 500
# What the prompt shows in the place of a text. Weak models repeat it, and words more often.
_EXAMPLE = "…"
_VARIABLE = re.compile(r"\{\{.*?\}\}")


class ReflectiveWriter:
    """Asks a model to learn from comparisons and comments; see ``prompt.md``."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def write(self, brief: Brief, n: int) -> list[Written]:
        """See :class:`~engine.writing.base.Writer`."""
        return read(self._ask(chat(prompt(brief, n)), _schema(n)), n)


def prompt(brief: Brief, n: int) -> str:
    """The whole message. Its code is drawn after the material was written, which cannot close a marker."""
    material = asdict(brief)
    for each in material["compared"]:
        each["ended"] = _ended(each["outcome"])
    variables = ", ".join(dict.fromkeys(_VARIABLE.findall(brief.champion)))
    material |= {"n": n, "code": secrets.token_hex(4), "variables": variables, "example": _EXAMPLE}
    material["slots"] = _slots(n)
    return _template().render(**material).strip()


def _slots(n: int) -> list[str]:
    return [str(place + 1) for place in range(n)]


def _schema(n: int) -> dict[str, Any]:
    """A slot by name for each text: small models never end a list, and Claude refuses to limit its length."""
    proposal = _object({"reason": {"type": "string"}, "text": {"type": "string"}})
    return _object({"proposals": _object(dict.fromkeys(_slots(n), proposal))})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _ended(outcome: float) -> str:
    # Several people may make an outcome between.
    if outcome == 0.5:
        return "was found equally good"
    return "was preferred" if outcome > 0.5 else "lost"


def read(answer: str, n: int) -> list[Written]:
    """The first ``n`` texts of an answer: of its JSON, whatever words or fences stand around it.

    Raises
    ------
    WriterError
    """
    if not answer.strip():
        raise WriterError("The writer answered nothing.")
    for found in _objects(answer):
        proposals = found.get("proposals")
        if isinstance(proposals, dict):
            proposals = list(proposals.values())
        if isinstance(proposals, list):
            texts = [
                each for each in proposals if isinstance(each, dict) and isinstance(each.get("text"), str)
            ]
            own = [each for each in texts if each["text"].strip() != _EXAMPLE]
            if texts and not own:
                raise WriterError("The writer repeated the example of the request in the place of a text.")
            return [
                Written(
                    storable(each["text"]).strip(), storable(str(each.get("reason") or ""))[:_LONGEST_REASON]
                )
                for each in own[:n]
            ]
    raise WriterError("The writer's answer holds no proposals in JSON.")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    position = text.find("{")
    while position >= 0:
        try:
            found, end = strict_json.entry_at(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            if isinstance(found, dict):
                yield found
        position = text.find("{", end)


@cache
def _template() -> Template:
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - no page shows it as HTML
    return environment.from_string(_PROMPT.read_text())
