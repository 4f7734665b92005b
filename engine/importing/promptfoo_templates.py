"""Templates of promptfoo: names of variables between double braces, filled by substitution.

A template engine could run what a file says, such as loops, calls and includes, and with them open files and
read the environment. So only names, literals, `or` and a few filters are known here; a text with anything
else is left out by name, and never sent with its braces.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.domain.conversations import ASSISTANT, SYSTEM, USER, Message, content_of, holds_more_than_text
from engine.domain.limits import TEXT_CHARACTERS
from engine.domain.variables import NAME
from engine.importing.rows import ImportingError
from engine.importing.yaml_document import parse

_PLACE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_LITERAL = re.compile(r"\"([^\"\\]*)\"|'([^'\\]*)'|(-?\d+(?:\.\d+)?)")
_DEFAULT = re.compile(r"default\(\s*(?:\"([^\"\\]*)\"|'([^'\\]*)')\s*(?:,\s*true\s*)?\)")
_FILTERS = {
    "dump": lambda text: text,
    "safe": lambda text: text,
    "string": lambda text: text,
    "trim": str.strip,
    "upper": str.upper,
    "lower": str.lower,
    "capitalize": str.capitalize,
    "title": str.title,
}
# Marks of a place in a text that is parsed as JSON or YAML.
_FIRST, _LAST = "\ue000", "\ue001"
_MARK = re.compile(f"{_FIRST}([0-9]+){_LAST}")
# A chat in YAML, which people begin with remarks.
_TURNS = re.compile(r"(?:#.*\n\s*|---\s+)*-\s+\"?(?:role|content)\b")
_MOST_DEEP = 10


class UnfillableError(ValueError):
    """A template that cannot be filled; the message says why."""


class LackingError(UnfillableError):
    """A template names a variable that is not there. ``name`` is the variable's."""

    def __init__(self, name: str) -> None:
        super().__init__(f"without {name}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Place:
    """What stands between two braces: alternatives, of which the first that is there counts, and filters.

    An alternative is a name with dots, or a literal after a quotation mark.
    """

    alternatives: tuple[str, ...]
    filters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of a task's variable for the value of this place, as our templates can have it."""
        name = re.sub(r"\W", "_", "_".join((self.alternatives[0], *self.filters)))
        return name if NAME.fullmatch(name) else f"_{name}"[:100]

    @property
    def variables(self) -> list[str]:
        """The variables of the tests that it names."""
        names = [each.partition(".")[0] for each in self.alternatives if not each.startswith("'")]
        return [name for name in names if name != "env"]


Template = tuple[str | Place, ...]


def read_template(text: str) -> Template:
    """The texts and places of a template.

    Raises
    ------
    UnfillableError
        It holds something other than places that can be filled.
    """
    text = _COMMENT.sub("", text)
    if "{%" in text:
        raise UnfillableError("a block ({% … %}) cannot be filled here")
    pieces: list[str | Place] = []
    end = 0
    for found in _PLACE.finditer(text):
        before = text[end : found.start()]
        pieces.append(before.rstrip() if found[0].startswith("{{-") else before)
        pieces.append(_place(found[1].strip()))
        end = found.end()
        if found[0].endswith("-}}"):
            end += len(text[end:]) - len(text[end:].lstrip())
    pieces.append(text[end:])
    return tuple(each for each in pieces if each != "")


def _place(written: str) -> Place:
    expression, *filters = (part.strip() for part in written.split("|"))
    alternatives = []
    for part in re.split(r"\s+or\s+", expression):
        literal = _LITERAL.fullmatch(part)
        if literal is None and not _VARIABLE.fullmatch(part):
            raise UnfillableError(f"{{{{ {written[:60]} }}}} cannot be filled here")
        alternatives.append(part if literal is None else "'" + next(filter(None, literal.groups()), ""))
    known = []
    for each in filters:
        if default := _DEFAULT.fullmatch(each):
            alternatives.append("'" + next(filter(None, default.groups()), ""))
        elif each in _FILTERS:
            known.append(each)
        else:
            raise UnfillableError(f"the filter {each[:40]} cannot be used here")
    return Place(tuple(alternatives), tuple(known))


def places_in(*templates: Template) -> Iterator[Place]:
    """The places of templates, in order."""
    for template in templates:
        for piece in template:
            if isinstance(piece, Place):
                yield piece


@dataclass(frozen=True)
class Filling:
    """The values that places are filled with: variables of a test, and what the file itself sets as `env`."""

    variables: Mapping[str, Any]
    env: Mapping[str, str]

    def text(self, template: Template, depth: int = 0, *, in_chat: bool = False) -> str:
        """The template, filled. ``in_chat``: `dump` of a text is the text itself.

        Raises
        ------
        UnfillableError
            A variable is missing, or holds what cannot be filled.
        """
        text = "".join(
            piece if isinstance(piece, str) else self._value(piece, depth, in_chat=in_chat)
            for piece in template
        )
        if len(text) > TEXT_CHARACTERS.most:
            raise UnfillableError("with its variables filled, the text is too long")
        return text

    def _value(self, place: Place, depth: int, *, in_chat: bool) -> str:
        value = self._found(place, depth)
        text = value if isinstance(value, str) else text_of(value)
        if "dump" in place.filters and isinstance(value, str) and not in_chat:
            text = json.dumps(text, ensure_ascii=False)
        for each in place.filters:
            text = _FILTERS[each](text)
        return text

    def _found(self, place: Place, depth: int) -> Any:
        if depth > _MOST_DEEP:
            raise UnfillableError(f"{place.alternatives[0]} names itself")
        lacking = ""
        for each in place.alternatives:
            if each.startswith("'"):
                return each[1:]
            value = self._at(each)
            if isinstance(value, str) and ("{{" in value or "{%" in value):
                value = self.text(read_template(value), depth + 1)
            # As in JavaScript, an empty text gives way to the next alternative.
            if value is not None and (value != "" or each == place.alternatives[-1]):
                return value
            lacking = lacking or each
        raise LackingError(lacking)

    def _at(self, path: str) -> Any:
        first, *rest = path.split(".")
        value: Any = self.env if first == "env" else self.variables.get(first)
        for step in rest:
            if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                value = value.get(step) if isinstance(value, Mapping) else None
        return value


def text_of(value: Any) -> str:
    """The text of a variable that is none: lists of texts with commas, objects as JSON."""
    if value is None:
        return ""
    if isinstance(value, list) and not any(isinstance(each, (list, dict)) for each in value):
        return ",".join(map(text_of, value))
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------- prompts


@dataclass(frozen=True)
class Chat:
    """A prompt: its system text, and the turns after it, each with its role."""

    system: Template
    turns: tuple[tuple[str, Template], ...]


def read_chat(text: str) -> Chat:
    """A prompt's text: a conversation in JSON or YAML, or one message of the user.

    Raises
    ------
    UnfillableError
        It cannot be filled, or is a conversation that cannot be sent.
    """
    template = read_template(text)
    start = text.lstrip()
    if not (start[:1] in {"[", "{"} or _TURNS.match(start)) or "role" not in text:
        return Chat((), ((USER, template),))
    places = list(places_in(template))
    numbers = iter(range(len(places)))
    # JSON quotes a dumped text itself; any other place stands in quotes already.
    marked = "".join(
        piece
        if isinstance(piece, str)
        else f'"{_FIRST}{next(numbers)}{_LAST}"'
        if "dump" in piece.filters
        else f"{_FIRST}{next(numbers)}{_LAST}"
        for piece in template
    )
    try:
        value = parse(marked).plain()
    except ImportingError as error:
        if start[:1] == "{":
            return Chat((), ((USER, template),))
        raise UnfillableError("its conversation is no JSON or YAML that can be read") from error
    if isinstance(value, Mapping):
        value = value.get("messages")
    if not isinstance(value, list) or not all(isinstance(each, Mapping) and "role" in each for each in value):
        return Chat((), ((USER, template),))
    return _chat(value, places)


def _chat(messages: Sequence[Mapping[str, Any]], places: Sequence[Place]) -> Chat:
    system: list[str | Place] = []
    turns: list[tuple[str, Template]] = []
    for each in messages:
        role, content = each["role"], content_of(each)
        if holds_more_than_text(each) or not isinstance(content, str):
            raise UnfillableError("its conversation holds more than text")
        pieces = _unmarked(content, places)
        if role in {SYSTEM, "developer"}:
            if turns:
                raise UnfillableError("a system message comes after other messages")
            system += [*(["\n\n"] if system else []), *pieces]
        elif role in {USER, ASSISTANT}:
            turns.append((role, pieces))
        else:
            raise UnfillableError(f"its conversation has the role {str(role)[:40]}")
    if not turns or turns[-1][0] != USER:
        raise UnfillableError("its conversation does not end with a message of the user")
    return Chat(tuple(system), tuple(turns))


def _unmarked(content: str, places: Sequence[Place]) -> Template:
    parts = _MARK.split(content)
    return tuple(
        places[int(part)] if number % 2 else part for number, part in enumerate(parts) if number % 2 or part
    )


def our_template(template: Template) -> str:
    """The template as a level's text has it, with the names that `Place.name` gives."""
    return "".join(
        f"{{{{ {piece.name} }}}}" if isinstance(piece, Place) else piece.replace("{{", '{{ "{{" }}')
        for piece in template
    )


def as_messages(turns: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """Filled turns as messages."""
    return tuple(Message(role, text) for role, text in turns)
