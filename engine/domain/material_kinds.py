"""The kinds of material that people bring in files."""

from __future__ import annotations

from enum import StrEnum


class Material(StrEnum):
    """The material that a table holds."""

    TASKS = "tasks"
    RESPONSES = "responses"
    VOTES = "votes"
