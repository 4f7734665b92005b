"""The command-line options that say how a file is read."""

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from engine.importing.items import Wishes
from engine.importing.mapping import ALL_ROLES, parse_columns
from engine.importing.rows import ImportingError


def add_map(parser: ArgumentParser) -> None:
    """Add the options that `wishes_of` reads, and `--sheet`."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="COLUMN=ROLE",
        help="what a column or a path such as data.outputs.a is (may be repeated, also for one column): "
        f"{', '.join(ALL_ROLES)}. Several columns of responses hold one policy's each",
    )
    parser.add_argument("--sheet", default="", help="XLSX: the sheet to read; the first one unless given")
    parser.add_argument(
        "--json-texts",
        action="store_true",
        help="take an object or a list as its JSON text where a text is wanted",
    )
    parser.add_argument("--sample", type=int, default=0, help="traces: draw so many tasks at random")
    parser.add_argument("--seed", type=int, default=1, help="traces: the seed by which they are drawn")
    parser.add_argument("--leave-out", action="store_true", help="leave out the rows that cannot be read")


def wishes_of(options: Mapping[str, Any]) -> Wishes:
    """What the options of a command say."""
    try:
        columns = parse_columns(options["map"])
    except ImportingError as error:
        raise CommandError(str(error)) from error
    named = {name: options[name] for name in ("json_texts", "leave_out", "sample", "seed")}
    return Wishes(columns, judged_by=options.get("judged_by") or "", **named)


def message_about(file: Path, error: ImportingError) -> str:
    """The message of a file that cannot be read; every row of it where others can be."""
    if error.summary:
        listed = "\n".join(f"{file}, {fault}" for fault in error.all_faults)
        return f"{listed}\n{error.summary} To leave the others out, add --leave-out. Nothing was imported."
    return "\n".join(f"{file}, {fault}" for fault in error.faults)
