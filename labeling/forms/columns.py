"""The form on which somebody says what each column of a table becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import QueryDict

from engine.importing.looking import Column
from engine.importing.rows import Remedy

# In the words of the pages New experiment and Columns, and of the step Tasks.
REMEDIES = {
    Remedy.COLUMN: "You can also say which column it is in the table of columns.",
    Remedy.SHEET: "Choose another sheet under “Columns”.",
    Remedy.TABLE: "A list of tasks goes to “Your own questions”, responses to “From existing responses”, "
    "and votes to “From past votes”.",
}
REMEDIES_OF_TASKS = {
    Remedy.COLUMN: "You can also say which column it is under “Columns of the tasks”.",
}
# Columns that one page may show without a scroll of many screens.
_MANY = 12

MEANING_LABELS = {
    "task": "Task",
    "reference": "Reference answer",
    "tags": "Tags",
    "variable": "Variable",
    "policy": "Policy",
    "response": "Response",
    "policy_a": "Policy A",
    "policy_b": "Policy B",
    "winner": "Winner",
    "response_a": "Response A",
    "response_b": "Response B",
    "annotator": "Annotator",
    "judged_at": "Time of the vote",
    "side_a": "Side of A",
    "ignore": "Leave out",
}


def said_columns(data: QueryDict, prefix: str = "") -> dict[str, str]:
    """The columns by their names, each with the meaning that was chosen; none where nothing was sent.

    ``prefix``: what the names of the fields begin with.
    """
    # A name may have a line break (Alt+Enter in Excel), which forms send as two characters.
    names = [name.replace("\r\n", "\n") for name in data.getlist(f"{prefix}column")]
    return dict(zip(names, data.getlist(f"{prefix}meaning"), strict=False))


@dataclass(frozen=True)
class Columns:
    """The columns to ask about, each with its meaning so far.

    Attributes
    ----------
    folded
        Columns with the default meaning, if there are many columns.
    rest
        The label of that meaning.
    """

    shown: Sequence[tuple[Column, str]]
    folded: Sequence[tuple[Column, str]]
    rest: str


def fold(columns: Sequence[tuple[Column, str]], otherwise: str) -> Columns:
    """Fold the columns that have the meaning ``otherwise``, if there are many columns."""
    many = len(columns) > _MANY
    return Columns(
        [each for each in columns if not many or each[1] != otherwise],
        [each for each in columns if many and each[1] == otherwise],
        MEANING_LABELS[otherwise],
    )
