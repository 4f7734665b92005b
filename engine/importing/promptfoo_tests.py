"""Tests of promptfoo: inline, in files and in scenarios, each with the variables and checks above it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import product
from math import prod
from typing import Any

from engine.domain.limits import FILE_BYTES, TASKS
from engine.domain.tags import distinct, fault_of, read_tags
from engine.importing import promptfoo_checks as checks
from engine.importing.findings import Findings
from engine.importing.promptfoo_templates import text_of
from engine.importing.reading_process import Source
from engine.importing.rows import Fault, ImportingError, Row
from engine.importing.table_files import text_of as text_in_bytes
from engine.importing.yaml_document import Entry, parse

MOST_NODES = 200_000
_OF_A_TEST = {
    "vars", "assert", "description", "options", "metadata", "providers", "prompts", "provider", "threshold",
    "providerOutput", "assertScoringFunction", "assertionTemplates", "env",
}  # fmt: skip
_UNUSED = {"threshold", "description", "assertScoringFunction", "providerOutput", "env"}
UNREAD = "of a name that promptfoo does not read"
# Names that count in another place.
SETTINGS = {"temperature", "max_tokens", "maxTokens", "top_p", "apiKey", "apiBaseUrl", "config", "model"}
_MISPLACED = {
    "assert",
    "vars",
    "options",
    "provider",
    "providers",
    "prompts",
    "tests",
    "defaultTest",
    "label",
}
_CLOSE = 0.85
_OF_OPTIONS = {"prefix", "suffix", "disableVarExpansion"}
_CODE = re.compile(r".*\.(?:[cm]?[jt]s|py|rb|sh)(?::\w+)?")
_ELSEWHERE = re.compile(r"(?!file:)[a-z]+://")
_TABLE = (".csv", ".tsv", ".xlsx", ".parquet")
Open = Callable[[str, str], list[tuple[str, bytes]]]


@dataclass(frozen=True)
class Test:
    """A test, with what stands above it: variables, checks, tags, and texts around the prompt.

    ``transformed``: the checks read something other than the response.
    """

    variables: Mapping[str, Any]
    place: str
    checks: tuple[checks.Written, ...] = ()
    tags: tuple[str, ...] = ()
    prefix: str = ""
    suffix: str = ""
    expands: bool = True
    transformed: bool = False

    def below(self, above: Test) -> Test:
        """This test on top of another one."""
        return replace(
            self,
            variables={**above.variables, **self.variables},
            checks=(*above.checks, *self.checks),
            tags=distinct((*above.tags, *self.tags)),
            prefix=self.prefix or above.prefix,
            suffix=self.suffix or above.suffix,
            expands=self.expands and above.expands,
            transformed=self.transformed or above.transformed,
        )


@dataclass
class TestReader:
    """Reads the tests of a configuration. ``opened`` gives the files of a path."""

    __test__ = False
    parts: Mapping[str, Entry]
    env: Mapping[str, str]
    findings: Findings
    opened: Open
    tests: list[Test] = field(default_factory=list)
    inside: str = ""

    def read(self) -> list[Test]:
        """All tests, those with lists of values once for each combination."""
        above = Test({}, "")
        if "defaultTest" in self.parts:
            for entry in self._one_or_file(self.parts["defaultTest"]):
                above = self._test(entry) or above
        for test in self._in(self.parts.get("tests")):
            self._add(test.below(above))
        for scenario in self._scenarios():
            fields = scenario.mapping()
            rows = list(self._in(fields.get("config"), count=False)) or [Test({}, "")]
            tests = list(self._in(fields.get("tests"))) or [Test({}, scenario.place)]
            for row, test in product(rows, tests):
                self._add(test.below(row.below(above)))
        return self.tests

    def _scenarios(self) -> Iterator[Entry]:
        if "scenarios" in self.parts:
            for entry in self._listed(self.parts["scenarios"]):
                yield from self._one_or_file(entry)

    def _listed(self, entry: Entry) -> list[Entry]:
        return entry.items() if isinstance(entry.value, list) else [entry]

    def _one_or_file(self, entry: Entry) -> Iterator[Entry]:
        """An entry, or those of the file that it names."""
        if isinstance(entry.value, Mapping):
            yield entry
        elif isinstance(entry.value, str):
            for name, data in self._files(entry.value, entry.place):
                yield from self._listed(_document(name, data))

    def _files(self, path: str, place: str) -> list[tuple[str, bytes]]:
        if _ELSEWHERE.match(path):
            self.findings.leave("file of tests", "an address, which is not opened", place, path)
        elif _CODE.fullmatch(path):
            self.findings.leave("file of tests", "code", place, path)
        else:
            return self.opened(path, place)
        return []

    # ------------------------------------------------------------ lists of tests

    def _in(self, entry: Entry | None, *, count: bool = True) -> Iterator[Test]:
        if entry is None or entry.value is None:
            return
        for each in self._listed(entry):
            if isinstance(each.value, Mapping) and "path" in each.value:
                yield from self._in_files(each.mapping()["path"].text(), each.place)
            elif isinstance(each.value, Mapping):
                test = self._test(each)
                if test is not None:
                    yield test
            else:
                yield from self._in_files(each.text(), each.place)

    def _in_files(self, path: str, place: str) -> Iterator[Test]:
        for name, data in self._files(path, place):
            if name.endswith(_TABLE):
                yield from self._in_table(name, data)
                continue
            for entry in _entries(name, data):
                self.inside = name
                test = self._test(entry)
                self.inside = ""
                if test is not None:
                    yield test

    def _in_table(self, name: str, data: bytes) -> Iterator[Test]:
        for row in Source([(name, data)], FILE_BYTES).rows():
            if isinstance(row, Fault):
                self.findings.leave("test", row.message.rstrip("."), f"{name}, {row.place}")
            else:
                yield self._of_row(row, f"{name}, {row.place}")

    def _of_row(self, row: Row, place: str) -> Test:
        variables: dict[str, Any] = {}
        found: list[checks.Written] = []
        tags: list[str] = []
        affixes = {"prefix": "", "suffix": ""}
        for name, value in row.fields.items():
            text = text_of(value)
            special = name.strip()
            if not special.startswith("__"):
                variables[name] = value if isinstance(value, (dict, list)) else text
            elif not text.strip():
                continue
            elif re.fullmatch(r"__expected\d*", special):
                found.append(checks.check_in_cell(text, f"{place}, {special}"))
            elif special in {"__prefix", "__suffix"}:
                affixes[special[2:]] = text
            elif special.startswith("__metadata:"):
                tags += read_tags(text)
            else:
                self.findings.leave("field", f"{special.partition(':')[0]} is not used here", place)
        around = affixes["prefix"], affixes["suffix"]
        return Test(variables, place, tuple(found), distinct(tags), *around, expands=False)

    def _add(self, test: Test) -> None:
        lists = {name: value for name, value in test.variables.items() if isinstance(value, list)}
        if not lists or not test.expands:
            self.tests.append(test)
            return
        if message := TASKS.refusal(len(self.tests) + prod(map(len, lists.values()))):
            raise ImportingError.at(test.place, message)
        for values in product(*lists.values()):
            self.tests.append(
                replace(test, variables={**test.variables, **dict(zip(lists, values, strict=True))})
            )

    # ------------------------------------------------------------ one test

    def _at(self, entry: Entry) -> str:
        """The place of an entry, with the file of tests that it is in."""
        return ", ".join(filter(None, [self.inside, entry.place]))

    def _test(self, entry: Entry) -> Test | None:
        """A test, or `None` where it is for some of the policies only."""
        fields = entry.mapping()
        place = self._at(entry)
        for name in unknown_in(fields, _OF_A_TEST):
            if is_slip(name, _OF_A_TEST):
                message = f"promptfoo reads no {name} of a test. Correct the name."
                self.findings.slip(self._at(fields[name]), message)
            else:
                self.findings.leave("field", UNREAD, self._at(fields[name]))
        for name in fields.keys() & {"providers", "prompts"}:
            self.findings.leave("test", f"for some {name} alone", place, _shown(fields[name]))
            return None
        for name in fields.keys() & {
            "threshold",
            "description",
            "assertScoringFunction",
            "providerOutput",
            "env",
        }:
            self.findings.leave("field", f"{name} of a test is not used here", self._at(fields[name]))
        options = _mapping(fields.get("options"))
        judges = [*filter(None, [options.get("provider"), fields.get("provider")])]
        for each in judges:
            reason = "a model's judgments are no people's"
            self.findings.leave("provider that judges", reason, self._at(each), _shown(each))
        for name, each in options.items():
            if name not in {"provider", *_OF_OPTIONS}:
                self.findings.leave("field", f"{name} of options is not used here", self._at(each))
        disabled = options.get("disableVarExpansion")
        return Test(
            self._variables(fields.get("vars")),
            place,
            tuple(self._checks(fields.get("assert"))),
            self._tags(fields.get("metadata")),
            options["prefix"].written if "prefix" in options else "",
            options["suffix"].written if "suffix" in options else "",
            expands=not (disabled is not None and disabled.value is True),
            transformed=bool(options.keys() & {"transform", "postprocess"}),
        )

    def _variables(self, entry: Entry | None) -> dict[str, Any]:
        if entry is None or entry.value is None:
            return {}
        if not isinstance(entry.value, Mapping):
            found: dict[str, Any] = {}
            for each in self._listed(entry):
                for name, data in self._files(each.text(), each.place):
                    found |= self._variables(_document(name, data))
            return found
        variables: dict[str, Any] = {}
        for name, each in entry.mapping().items():
            if name == "assert" and _are_checks(each):
                self.findings.slip(self._at(each), "Checks in vars are variables. Move assert beside vars.")
            else:
                variables[name] = self._value(each)
        return variables

    def _value(self, entry: Entry) -> Any:
        value = _as_written(entry)
        if not isinstance(value, str) or not value.startswith("file://"):
            return value
        if _CODE.fullmatch(value):
            self.findings.leave("variable", "code", self._at(entry), value)
            return None
        found = self.opened(value, self._at(entry))
        if not found:
            return None
        name, data = found[0]
        try:
            text = text_in_bytes(data)
        except ImportingError:
            self.findings.leave("variable", "a file that is no text", self._at(entry), value)
            return None
        if name.endswith((".yaml", ".yml", ".json")):
            return _as_written(_document(name, data))
        return text

    def _checks(self, entry: Entry | None) -> Iterator[checks.Written]:
        if entry is None or entry.value is None:
            return
        for each in self._listed(entry):
            place = self._at(each)
            if isinstance(each.value, Mapping):
                fields = self._referred(each).mapping()
                given = {name: _as_written(field) for name, field in fields.items()}
                yield checks.check_of(given, place)
            else:
                yield checks.Written("", each.value, place, "no check that can be read")

    def _referred(self, check: Entry) -> Entry:
        """The check, or the template of the file that it refers to."""
        reference = check.mapping().get("$ref")
        name = reference.written.removeprefix("#/assertionTemplates/") if reference else ""
        return _mapping(self.parts.get("assertionTemplates")).get(name, check)

    def _tags(self, entry: Entry | None) -> tuple[str, ...]:
        found: list[str] = []
        for each in (inner for outer in _mapping(entry).values() for inner in self._listed(outer)):
            tags = read_tags(text_of(_as_written(each)))
            if isinstance(each.value, Mapping) or fault_of(tags):
                self.findings.leave("field", "metadata that is no tag", self._at(each))
            else:
                found += tags
        return distinct(found)


def is_slip(name: str, known: set[str]) -> bool:
    """True of a name that would count elsewhere, or nearly is a known one; others are people's own notes."""
    if name in known:
        return False
    elsewhere = SETTINGS | _MISPLACED
    return name in elsewhere or bool(get_close_matches(name, known | elsewhere, 1, _CLOSE))


def unknown_in(fields: Mapping[str, Entry], known: set[str]) -> list[str]:
    """Names that the other tool does not read; a merge's or an editor's own names are none."""
    return [name for name in fields if name not in known and not name.startswith(("x-", "_", "$"))]


def _mapping(entry: Entry | None) -> Mapping[str, Entry]:
    return entry.mapping() if entry is not None and isinstance(entry.value, Mapping) else {}


def _as_written(entry: Entry) -> Any:
    """The value with the letters of each single value; in objects, JSON's own types."""
    if isinstance(entry.value, Mapping):
        return entry.plain()
    if isinstance(entry.value, list):
        return [_as_written(each) for each in entry.value]
    return "" if entry.value is None else entry.written


def _are_checks(entry: Entry) -> bool:
    return isinstance(entry.value, list) and all(
        isinstance(each.value, Mapping) and "type" in each.value for each in entry.value
    )


def _shown(entry: Entry) -> str:
    value = _as_written(entry)
    return ", ".join(map(text_of, value)) if isinstance(value, list) else text_of(value)


def _document(name: str, data: bytes) -> Entry:
    """The document in a file; its faults name the file."""
    try:
        return parse(text_in_bytes(data), most_nodes=MOST_NODES)
    except ImportingError as error:
        raise ImportingError(
            [Fault(", ".join(filter(None, [name, each.place])), each.message) for each in error.faults]
        ) from error


def _entries(name: str, data: bytes) -> Sequence[Entry]:
    if not name.endswith(".jsonl"):
        document = _document(name, data)
        return document.items() if isinstance(document.value, list) else [document]
    lines = text_in_bytes(data).splitlines()
    return [_document(f"{name}, line {n}", line.encode()) for n, line in enumerate(lines, 1) if line.strip()]
