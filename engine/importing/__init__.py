"""Reading what people bring along: tasks, gold items, ready-made responses, whole experiments.

Pure parsing without the database. An error names every fault with its place, all at once.
"""

from engine.importing.files import ExperimentFile, read_experiment, write_experiment
from engine.importing.items import read_gold, read_responses, read_tasks, write_gold, write_tasks
from engine.importing.mapping import parse_columns
from engine.importing.rows import Fault, ImportingError, decoded
from engine.importing.sources import Source, source_at, source_of
from engine.importing.votes import Vote, Votes, Winner, read_votes

__all__ = [
    "ExperimentFile",
    "Fault",
    "ImportingError",
    "Source",
    "Vote",
    "Votes",
    "Winner",
    "decoded",
    "parse_columns",
    "read_experiment",
    "read_gold",
    "read_responses",
    "read_tasks",
    "read_votes",
    "source_at",
    "source_of",
    "write_experiment",
    "write_gold",
    "write_tasks",
]
