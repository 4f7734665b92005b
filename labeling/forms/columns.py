"""The form on which somebody says what each column of a table becomes."""

from __future__ import annotations

from django.http import QueryDict

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
