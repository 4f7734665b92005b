"""Reading an export back: its manifest, checked against the file, and its rows as JSON has them."""

from __future__ import annotations

import csv
import hashlib
import sys
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from engine.core import Claim
from engine.domain import limits
from engine.domain.blinding import Period, is_secret
from engine.domain.conversations import Message, read_messages
from engine.domain.errors import SpecError
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.importing.contents import decoded
from engine.importing.defusing import as_it_was
from engine.importing.rows import Fault, ImportingError
from engine.importing.sources import source_at
from engine.importing.strict_json import finite, integer, loads
from engine.models import Experiment
from labeling.exports.columns import COLUMNS, Kind
from labeling.exports.files import CSV, HUGGING_FACE, JSONL, PARQUET, SCHEMA_VERSION, manifest_name

_Part = TypeVar("_Part", FactorSpec, TaskSpec, GoldSpec, ReadyMade)
_KINDS = {"str": (str, "a text"), "int": (int, "a whole number")}


def read_manifest(manifest: Path, file: Path) -> dict[str, Any]:
    """The manifest of a file.

    Raises
    ------
    SpecError
        The manifest is missing, belongs to another file, or names a format that cannot be imported.
    """
    try:
        with manifest.open("rb") as opened:
            said: dict[str, Any] = loads(decoded(opened, limits.MANIFEST_BYTES))
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        if _has_manifest_inside(file):
            raise SpecError(
                f"{file.name} holds an export and its manifest. Unpack it, and import the file in it."
            ) from error
        raise SpecError(f"The manifest cannot be read: {error}. Export with its manifest.") from error
    try:
        if said["versions"]["schema"] != SCHEMA_VERSION:
            raise SpecError(
                f"The file has columns of version {said['versions']['schema']}, not {SCHEMA_VERSION}."
            )
        if said["format"] not in {CSV, JSONL, PARQUET, HUGGING_FACE}:
            raise SpecError(
                "Only exports of judgments can be imported: JSON lines, CSV, Parquet and Hugging Face. "
                "Export as JSON lines."
            )
        if said["sha256"] != digest:
            raise SpecError(f"{file.name} is not the file that {manifest.name} describes, or it was changed.")
        _check_counts(said)
    except (KeyError, TypeError) as error:
        raise SpecError(f"{manifest.name} is not a manifest of an export: {error} is missing.") from error
    return said


def _has_manifest_inside(file: Path) -> bool:
    """True for a ZIP of an export and its manifest, as the page and the API pack them."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith(manifest_name("")) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _check_counts(manifest: dict[str, Any]) -> None:
    """Check the numbers that the import uses before it reads a row. It counts the rows again later."""
    experiment = manifest["experiment"]
    for name, number in (("rows", manifest["rows"]), ("planned_count", experiment["planned_count"])):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
            raise SpecError(
                f"The manifest's {name} is {limits.shown(number)}. It must be a whole number of 0 or more."
            )
    limits.JUDGMENTS.check(manifest["rows"])
    if not isinstance(manifest["filter"], dict) or not isinstance(experiment["spec"], dict):
        raise SpecError("The manifest's filter and spec must be objects.")
    if not isinstance(manifest["raw"], bool) or not isinstance(experiment["evidence"], (list, NoneType)):
        raise SpecError("The manifest's raw must be true or false, and its evidence a list or null.")


def spec_of(manifest: dict[str, Any], *, name: str) -> ExperimentSpec:
    """The description of the exported experiment, under another name.

    Raises
    ------
    SpecError
        The manifest holds no description of an experiment, or not its ready-made responses.
    """
    said = manifest["experiment"]["spec"]
    if manifest.get("unfinished_left_out") and not said.get("ready_made") and _is_ready_made(said):
        raise SpecError(
            "The manifest lacks the ready-made responses, as it was made for somebody who judges them. Have "
            "somebody who does not judge them export it, or export it anew when the experiment has concluded."
        )
    try:
        return ExperimentSpec(
            name=name,
            factors=[_part(FactorSpec, factor) for factor in said["factors"]],
            tasks=[_task(task) for task in said["tasks"]],
            # It asks nobody anything before somebody here says so.
            # An export that names no claim is older than the choice: it was "best, if there is a best". One
            # that does not name another of these rules is older than it.
            settings={
                "claim": Claim.BEST_IF_ANY.value,
                "streams": False,
                "exact_ties": False,
                "exclusive_proofs": False,
            }
            | dict(said["settings"])
            | {"llm_judge": Experiment.LLMJudge.OFF},
            gold=[
                replace(_part(GoldSpec, gold, beside=("messages",)), messages=_messages(gold))
                for gold in said["gold"]
            ],
            ready_made=[_part(ReadyMade, response) for response in said["ready_made"]],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"The manifest's description of the experiment cannot be read: {error}.") from error


def _is_ready_made(said: dict[str, Any]) -> bool:
    settings = said.get("settings")
    return isinstance(settings, dict) and settings.get("responses") == Experiment.Responses.IMPORTED


def _task(said: dict[str, Any]) -> TaskSpec:
    variables = said.get("variables", {})
    return replace(
        _part(TaskSpec, said, beside=("messages", "variables", "tags")),
        messages=_messages(said),
        variables=dict(zip(variables, _texts(variables.values()), strict=True)),
        tags=tuple(_texts(said.get("tags", ()))),
    )


def _messages(said: dict[str, Any]) -> tuple[Message, ...]:
    return read_messages(said["messages"]) if said.get("messages") else ()


def _texts(said: Iterable[Any]) -> list[str]:
    texts = list(said)
    if not all(isinstance(each, str) for each in texts):
        raise TypeError("variables and tags must be texts")
    return texts


def _part(shape: type[_Part], said: dict[str, Any], beside: Collection[str] = ()) -> _Part:
    """One part of a description. Its fields are texts, a factor's levels an object, a response's task a
    number.

    ``beside``: fields that the caller reads.

    Raises
    ------
    TypeError
        A field is unknown, missing, or of another type.
    """
    part = shape(**{name: value for name, value in said.items() if name not in beside})
    for field in fields(part):
        if field.name in beside:
            continue
        kind, what = _KINDS.get(str(field.type), (dict, "an object"))
        if type(getattr(part, field.name)) is not kind:
            raise TypeError(f"{field.name} must be {what}")
    return part


def secrets_of(manifest: dict[str, Any]) -> list[Period]:
    """The secrets that the manifest publishes; none where the experiment had not concluded.

    Raises
    ------
    SpecError
        They are no secrets.
    """
    try:
        periods = [
            Period(first=each["first_comparison"], secret=each["secret"])
            for each in manifest["experiment"].get("secrets", [])
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise SpecError("The manifest's `secrets` cannot be read. Export again with its manifest.") from error
    for period in periods:
        if not (is_secret(period.secret) and isinstance(period.first, int) and 0 <= period.first < 2**31):
            raise SpecError("The manifest's `secrets` cannot be read. Export again with its manifest.")
    return periods


def read_file(file: Path, kind: str, *, raw: bool) -> Iterator[dict[str, Any]]:
    """The rows of a file. ``raw``: its cells were not defused, so they are taken as they are.

    Raises
    ------
    SpecError
        Names the row that cannot be read.
    """
    limits.FILE_BYTES.check(file.stat().st_size, file.name)
    if kind in {PARQUET, HUGGING_FACE}:
        yield from _parquet_rows(file)
        return
    number = 0
    with file.open(newline="", encoding="utf-8") as lines:
        read = _json_rows(lines) if kind == JSONL else _csv_rows(lines, raw=raw)
        try:
            for row in read:
                number += 1
                yield row
        except (ValueError, csv.Error) as error:
            raise SpecError(f"Row {number + 1} of {file.name} cannot be read: {error}") from error


def _parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Of a Parquet file, or of the ZIP file of a data set, which holds one."""
    try:
        for row in source_at(file, limits.FILE_BYTES).rows():
            if isinstance(row, Fault):
                raise SpecError(f"{file.name}: {row}")
            yield dict(row.fields)
    except ImportingError as error:
        raise SpecError(f"{file.name}: {error}") from error


def _json_rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        row = loads(line)
        if not isinstance(row, dict):
            raise ValueError("it is no object of named values.")
        yield row


def _csv_rows(lines: Iterable[str], *, raw: bool) -> Iterator[dict[str, Any]]:
    parse = _PARSE | {Kind.TEXT: str if raw else as_it_was}
    kinds = {column.name: column.kind for column in COLUMNS.values()}
    csv.field_size_limit(sys.maxsize)
    for row in csv.DictReader(lines, restval=""):
        yield {
            name: parse[kinds.get(name, Kind.TEXT)](cell) for name, cell in row.items() if name is not None
        }


def _or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda cell: parse(cell) if cell else None


def _truth(cell: str) -> bool:
    # Spreadsheets write them in capital letters.
    match cell.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"{limits.shown(cell)} is neither True nor False.")


_PARSE: dict[Kind, Callable[[str], Any]] = {
    Kind.INTEGER: _or_none(integer),
    Kind.NUMBER: _or_none(finite),
    Kind.TIME: _or_none(str),
    Kind.TRUTH: _truth,
}
