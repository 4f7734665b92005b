"""The form on which somebody says what each column of a table becomes."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import QueryDict

from engine.importing.items import Column

# Columns that one page may show without a scroll of many screens.
_MANY = 12

ROLE_LABELS = {
    "task": "Task",
    "task,variable": "Task and variable",
    "reference": "Reference answer",
    "tags": "Tags",
    "variable": "Variable",
    "policy": "Policy",
    "factor": "Factor",
    "response": "Response",
    "policy_a": "Policy A",
    "policy_b": "Policy B",
    "winner": "Winner",
    "response_a": "Response A",
    "response_b": "Response B",
    "conversation_a": "Conversation A",
    "conversation_b": "Conversation B",
    "annotator": "Annotator",
    "judged_at": "Time of the vote",
    "side_a": "Side of A",
    "judged_by": "Kind of judge",
    "ignore": "Leave out",
}


def said_columns(data: QueryDict, prefix: str = "") -> dict[str, str]:
    """The columns by their names, each with the roles that were chosen; none where nothing was sent.

    ``prefix``: what the names of the fields begin with.
    """
    # A name may have a line break (Alt+Enter in Excel), which forms send as two characters.
    names = [name.replace("\r\n", "\n") for name in data.getlist(f"{prefix}column")]
    return dict(zip(names, data.getlist(f"{prefix}role"), strict=False))


@dataclass(frozen=True)
class Columns:
    """The columns to ask about.

    Attributes
    ----------
    folded
        Columns with the default role, if there are many columns.
    rest
        The label of that role.
    """

    shown: Sequence[Column]
    folded: Sequence[Column]
    rest: str


def fold(columns: Sequence[Column], otherwise: str) -> Columns:
    """Fold the columns that have the role ``otherwise``, if there are many columns."""
    many = len(columns) > _MANY
    return Columns(
        [each for each in columns if not many or each.roles != otherwise],
        [each for each in columns if many and each.roles == otherwise],
        ROLE_LABELS[otherwise],
    )
