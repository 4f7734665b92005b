"""The kinds of material that people bring in files."""

from enum import StrEnum


class Material(StrEnum):
    """The material that a file holds: a table of it, or a whole experiment."""

    TASKS = "tasks"
    RESPONSES = "responses"
    VOTES = "votes"
    EXPERIMENT = "experiment"
