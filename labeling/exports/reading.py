"""Reading an export back: its manifest, checked against the file, and its rows as JSON has them."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.blinding import Period, is_secret
from engine.errors import SpecError
from engine.specs import ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from labeling.exports.columns import COLUMNS, INTEGER, NUMBER, TEXT, TIME, TRUTH
from labeling.exports.defusing import as_it_was
from labeling.exports.files import CSV, JSONL, SCHEMA_VERSION


def read_manifest(manifest: Path, file: Path) -> dict[str, Any]:
    """The manifest of a file.

    Raises
    ------
    SpecError
        There is none, or it is another file's, or of a format that cannot be read back.
    """
    try:
        said: dict[str, Any] = json.loads(manifest.read_text())
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise SpecError(f"The manifest cannot be read: {error}. Export with its manifest.") from error
    try:
        if said["versions"]["schema"] != SCHEMA_VERSION:
            raise SpecError(
                f"The file has columns of version {said['versions']['schema']}, not {SCHEMA_VERSION}."
            )
        if said["format"] not in {CSV, JSONL}:
            raise SpecError("Only CSV and JSON lines can be imported; export as JSON lines.")
        if said["sha256"] != digest:
            raise SpecError(f"{file.name} is not the file that {manifest.name} describes, or it was changed.")
    except (KeyError, TypeError) as error:
        raise SpecError(f"{manifest.name} is no manifest of an export: {error} is missing.") from error
    return said


def spec_of(manifest: dict[str, Any], *, name: str) -> ExperimentSpec:
    """The description of the exported experiment, under another name."""
    said = manifest["experiment"]["spec"]
    spec = ExperimentSpec(
        name=said["name"],
        factors=[FactorSpec(**factor) for factor in said["factors"]],
        tasks=[TaskSpec(**task) for task in said["tasks"]],
        settings=said["settings"],
        gold=[GoldSpec(**gold) for gold in said["gold"]],
    )
    return replace(spec, name=name)


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
    """The rows of a file. ``raw``: its cells were not defused, so they are taken as they are."""
    parse = _PARSE | {TEXT: str if raw else as_it_was}
    with file.open(newline="", encoding="utf-8") as lines:
        if kind == JSONL:
            yield from map(json.loads, lines)
            return
        csv.field_size_limit(sys.maxsize)
        for row in csv.DictReader(lines):
            yield {name: parse[COLUMNS.get(name, TEXT)](cell) for name, cell in row.items()}


def _or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda cell: parse(cell) if cell else None


_PARSE: dict[str, Callable[[str], Any]] = {
    INTEGER: _or_none(int),
    NUMBER: _or_none(float),
    TIME: _or_none(str),
    TRUTH: lambda cell: cell == "True",
}
