"""YAML as people write it: values with the line that each of them is on.

Read by YAML 1.2's core schema, in which ``no`` and ``1e-3`` are what they look like. Tags are refused, and
aliases too unless the caller allows some nodes: a few lines of them stand for billions. JSON is read by its
own parser, since YAML's knows no pairs of escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from engine.domain import limits
from engine.importing.rows import Fault, ImportingError, storable
from engine.importing.strict_json import JSONLimitError, finite, integer, loads

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_QUOTED = {"'", '"', "|", ">"}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


class NotYAMLError(ImportingError):
    """The text is no YAML; it may be something else."""


@dataclass(frozen=True)
class Entry:
    """A value in a file: an object or a list of entries, or a single value with the letters it was written
    in.
    """

    value: Any
    path: tuple[Hashable, ...] = ()
    line: int | None = None
    written: str = ""

    @property
    def place(self) -> str:
        """The line and the path of the entry, for a message."""
        where = " → ".join(str(step + 1) if isinstance(step, int) else str(step) for step in self.path)
        return ", ".join(filter(None, [f"line {self.line}" if self.line else "", where]))

    def fault(self, message: str) -> ImportingError:
        """An error at this place."""
        return ImportingError([Fault(self.place, message)])

    def mapping(self) -> dict[str, Entry]:
        """The named values of an object; raises :class:`ImportingError` for another value."""
        if not isinstance(self.value, Mapping):
            raise self.fault("This must be an object of named values.")
        return dict(self.value)

    def items(self) -> list[Entry]:
        """The entries of a list; raises :class:`ImportingError` for another value."""
        if not isinstance(self.value, list):
            raise self.fault("This must be a list.")
        return list(self.value)

    def text(self) -> str:
        """The text as it was written, so that a reference answer 007 stays what it is."""
        if isinstance(self.value, (Mapping, list)) or self.value is None:
            raise self.fault("This must be a text.")
        return storable(self.written, self.place, "This")

    def plain(self) -> Any:
        """The value as JSON would hold it."""
        if isinstance(self.value, Mapping):
            return {name: entry.plain() for name, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        return storable(self.value, self.place, "This") if isinstance(self.value, str) else self.value

    def at(self, path: tuple[Hashable, ...]) -> Entry:
        """The entry at this path, or the nearest one above it that there is."""
        entry = self
        for step in path:
            known = dict(enumerate(entry.value)) if isinstance(entry.value, list) else entry.value
            if not isinstance(known, Mapping) or step not in known:
                break
            entry = known[step]
        return entry


@dataclass
class _Anchors:
    """The entries that aliases may repeat, each with its number of nodes and its height, and how many nodes
    may come yet.
    """

    left: int
    entries: dict[str, tuple[Entry, int, int]] = field(default_factory=dict)

    def count(self, nodes: int, here: Entry) -> None:
        self.left -= nodes
        if self.left < 0:
            raise here.fault("With its aliases (*) written out, the file is too large. Use fewer of them.")

    def entry(self, name: str, here: Entry) -> Entry:
        """The entry that an alias stands for."""
        if name not in self.entries:
            raise here.fault(f"There is no anchor &{name} before this alias. Write the value out.")
        entry, nodes, height = self.entries[name]
        self.count(nodes, here)
        if message := limits.DEPTH.refusal(len(here.path) + height):
            raise here.fault(f"This is nested too deeply to be read: {message}")
        return entry


def parse(text: str, *, most_nodes: int = 0) -> Entry:
    """The document that ``text`` holds, in YAML or JSON.

    ``most_nodes``: the number of values up to which aliases are read; 0 refuses them.
    """
    text = text.lstrip("\ufeff")
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return _of_json(loads(text), ())
        except json.JSONDecodeError:
            pass  # YAML in braces, or a fault that YAML's parser finds the line of
        except JSONLimitError as error:
            raise ImportingError.at("", str(error)) from error
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    try:
        next(events)  # the stream begins
        if not isinstance(next(events), yaml.DocumentStartEvent):
            raise ImportingError.at("", "The file is empty.")
        root = _of_events(next(events), events, (), _Anchors(most_nodes) if most_nodes else None)
        next(events)  # the document ends
        if not isinstance(more := next(events), yaml.StreamEndEvent):
            raise ImportingError.at(
                f"line {more.start_mark.line + 1}",
                "A second document begins here, but a file holds one experiment. Remove it.",
            )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise NotYAMLError.at(
            f"line {mark.line + 1}" if mark else "", f"This is not YAML: {problem}."
        ) from error
    return root


def _of_json(value: Any, path: tuple[Hashable, ...]) -> Entry:
    if isinstance(value, dict):
        return Entry({name: _of_json(each, (*path, name)) for name, each in value.items()}, path)
    if isinstance(value, list):
        return Entry([_of_json(each, (*path, number)) for number, each in enumerate(value)], path)
    return Entry(value, path, written=value if isinstance(value, str) else json.dumps(value))


def _of_events(
    event: Any, events: Iterator[Any], path: tuple[Hashable, ...], anchors: _Anchors | None
) -> Entry:
    """The entry that begins with ``event``. From events and not nodes, whose making would recurse without a
    limit.
    """
    line = event.start_mark.line + 1
    here = Entry(None, path, line)
    if anchors is None and (isinstance(event, yaml.AliasEvent) or event.anchor is not None):
        raise here.fault("Aliases (* and &) are not supported. Write the value out.")
    if message := limits.DEPTH.refusal(len(path)):
        raise Entry(None, path[:2], line).fault(f"This is nested too deeply to be read: {message}")
    if anchors is None:
        return _new(event, events, path, None)
    if isinstance(event, yaml.AliasEvent):
        return anchors.entry(str(event.anchor), here)
    before = anchors.left
    anchors.count(1, here)
    entry = _new(event, events, path, anchors)
    if event.anchor is not None:
        anchors.entries[event.anchor] = (entry, before - anchors.left, _height(entry))
    return entry


def _height(entry: Entry) -> int:
    inner = entry.value.values() if isinstance(entry.value, dict) else entry.value
    return 1 + max(map(_height, inner), default=0) if isinstance(entry.value, (dict, list)) else 0


def _new(event: Any, events: Iterator[Any], path: tuple[Hashable, ...], anchors: _Anchors | None) -> Entry:
    line = event.start_mark.line + 1
    if event.tag not in {None, "!"}:
        raise Entry(None, path, line).fault(f"The tag {event.tag} is not supported. Remove it.")
    if isinstance(event, yaml.MappingStartEvent):
        return Entry(_named(events, path, anchors), path, line)
    if isinstance(event, yaml.SequenceStartEvent):
        entries: list[Entry] = []
        while not isinstance(child := next(events), yaml.SequenceEndEvent):
            entries.append(_of_events(child, events, (*path, len(entries)), anchors))
        return Entry(entries, path, line)
    plain = event.implicit[0] and event.style not in _QUOTED
    return Entry(_resolved(event.value) if plain else event.value, path, line, event.value)


def _named(events: Iterator[Any], path: tuple[Hashable, ...], anchors: _Anchors | None) -> dict[str, Entry]:
    named: dict[str, Entry] = {}
    merged: dict[str, Entry] = {}
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        where = Entry(None, path, key.start_mark.line + 1)
        if not isinstance(key, yaml.ScalarEvent):
            raise where.fault("A name must be a text.")
        if key.value in named:
            raise where.fault(f"{key.value!r} appears twice in one object. Remove one of them.")
        storable(key.value, where.place, "A name")
        value = _of_events(next(events), events, (*path, key.value), anchors)
        if anchors is not None and key.value == "<<" and key.style not in _QUOTED:
            # The merge of YAML 1.1, which every reader of aliases knows: the object's own names come first.
            for each in value.items() if isinstance(value.value, list) else [value]:
                merged = each.mapping() | merged
        else:
            named[key.value] = value
    return merged | named


def _resolved(written: str) -> Any:
    if written in _WORDS:
        return _WORDS[written]
    try:
        if _INTEGER.fullmatch(written):
            return integer(written)
        return finite(written) if _FLOAT.fullmatch(written) else written
    except JSONLimitError:
        # No number that can be stored. As a text it may still be a task or an answer; a setting refuses
        # texts.
        return written


# Line breaks of other alphabets, which only survive as escapes.
_FRAGILE = re.compile("[\r\x85\u2028\u2029\ufeff]")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _FRAGILE.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)
# Quote texts that our reader would take for numbers, although YAML 1.1 takes them for texts.
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"(?:{_FLOAT.pattern})$"), list("-+.0123456789")
)


def dump(value: Any) -> str:
    """``value`` (of JSON's types) as YAML that :func:`parse` reads back; several lines of text stay several
    lines.
    """
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=110)
