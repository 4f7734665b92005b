"""Reading what people bring along: tasks, gold items, ready-made responses, whole experiments.

Pure parsing: nothing here knows of the database. Whatever is wrong is said with its place, all of it at once.
"""

from engine.importing.files import ExperimentFile, read_experiment, write_experiment
from engine.importing.items import read_gold, read_responses, read_tasks, write_gold, write_tasks
from engine.importing.rows import Fault, ImportingError, decoded

__all__ = [
    "ExperimentFile",
    "Fault",
    "ImportingError",
    "decoded",
    "read_experiment",
    "read_gold",
    "read_responses",
    "read_tasks",
    "write_experiment",
    "write_gold",
    "write_tasks",
]
