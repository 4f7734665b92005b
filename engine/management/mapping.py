"""The option that says what the columns of a file are."""

from argparse import ArgumentParser

from engine.importing.mapping import MEANINGS


def add_map(parser: ArgumentParser) -> None:
    """Add `--map`, which may come several times; `parse_columns` reads it."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="COLUMN=MEANING",
        help=f"what a column is that has another name (may be repeated): {', '.join(MEANINGS)}. Several "
        "columns of responses hold one policy's each",
    )
