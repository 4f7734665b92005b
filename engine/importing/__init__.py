"""Reading what people bring along: tasks, gold items, ready-made responses, whole experiments.

Pure parsing without the database. An error names every fault with its place, all at once.
"""

from engine.importing.contents import decoded
from engine.importing.files import ExperimentFile, description_in, read_experiment, write_experiment
from engine.importing.items import (
    Answers,
    as_lines,
    as_typed,
    factor_of,
    read_gold,
    read_responses,
    read_tasks,
    with_columns,
    write_gold,
    write_tasks,
)
from engine.importing.looking import look
from engine.importing.mapping import check_columns, parse_columns
from engine.importing.rows import Fault, ImportingError, Remedy
from engine.importing.sources import Source, as_one, source_at, source_of
from engine.importing.votes.reading import read_votes
from engine.importing.votes.vote import Vote, Votes, Winner
from engine.importing.warnings import warnings_of_gold, warnings_of_tasks

__all__ = [
    "Answers",
    "ExperimentFile",
    "Fault",
    "ImportingError",
    "Remedy",
    "Source",
    "Vote",
    "Votes",
    "Winner",
    "as_lines",
    "as_one",
    "as_typed",
    "check_columns",
    "decoded",
    "description_in",
    "factor_of",
    "look",
    "parse_columns",
    "read_experiment",
    "read_gold",
    "read_responses",
    "read_tasks",
    "read_votes",
    "source_at",
    "source_of",
    "warnings_of_gold",
    "warnings_of_tasks",
    "with_columns",
    "write_experiment",
    "write_gold",
    "write_tasks",
]
