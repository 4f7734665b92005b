"""The command-line options that describe the columns of a file."""

from argparse import ArgumentParser

from engine.importing.mapping import MEANINGS
from engine.importing.rows import Remedy

# In the words of these options.
REMEDIES = {
    Remedy.COLUMN: 'You can also say which column it is: --map "NAME={}".',
    Remedy.SHEET: "Choose another by --sheet NAME.",
    Remedy.TABLE: "Name it in a description, as tasks_file or responses_file; votes are for import_votes.",
}


def add_map(parser: ArgumentParser) -> None:
    """Add `--map`, which may come several times, and `--sheet`; `parse_columns` reads the first."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="COLUMN=MEANING",
        help=f"what a column is that has another name (may be repeated): {', '.join(MEANINGS)}. Several "
        "columns of responses hold one policy's each",
    )
    parser.add_argument("--sheet", default="", help="XLSX: the sheet to read; the first one unless given")
