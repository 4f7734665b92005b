"""Our own export of judgments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.domain import limits
from engine.importing.defusing import as_it_was
from engine.importing.rows import ImportingError, Row
from engine.importing.votes.columns import list_in
from engine.importing.votes.table import vote_of
from engine.importing.votes.vote import Vote

_COLUMNS = {"policyi", "policyj", "policyiname", "policyjname", "leftpolicy", "choice", "voided"}
# R writes NA in the place of an empty cell. People may have written it in these.
_OF_PEOPLE = {"task", "policyiname", "policyjname", "responsei", "responsej", "annotator"}


def votes_of(row: Row, fields: Mapping[str, Any]) -> list[Vote] | None:
    """The vote of a row of our own export: a is the policy that was on the left. No vote if it is void;
    ``None`` for a row of another format.
    """
    if not fields.keys() >= _COLUMNS:
        return None
    cells = {
        name: "" if value == "NA" and name not in _OF_PEOPLE else value for name, value in fields.items()
    }
    return _votes_of(row.place, cells)


def _votes_of(place: str, fields: Mapping[str, Any]) -> list[Vote]:
    if _is_true(place, fields, "voided"):
        return []
    if fields.get("taskvariables") not in (None, "", "{}"):
        raise ImportingError.at(
            place,
            "The task has variables, which past votes cannot keep. To do without them, export as LMArena and "
            "import that file.",
        )
    # CSV has nothing but texts, and those that a spreadsheet would run are written with an apostrophe.
    as_given = as_it_was if isinstance(fields.get("judgmentid"), str) else str
    texts = {name: as_given(value) if isinstance(value, str) else value for name, value in fields.items()}
    left = texts["leftpolicy"]
    if left not in (texts["policyi"], texts["policyj"]):
        raise ImportingError.at(
            place, f"left_policy is {limits.shown(left)}, which is neither policy_i nor policy_j."
        )
    i_on_left = left == texts["policyi"]
    a, b = "ij" if i_on_left else "ji"
    messages = list_in(texts.get("taskmessages"))
    if messages is None and texts.get("taskmessages") not in (None, "", "[]"):
        raise ImportingError.at(place, "task_messages is no list of messages. Export the file again.")
    given: dict[str, Any] = {
        "task": messages or texts.get("task"),
        "annotator": texts.get("annotator"),
        "judgmentuuid": texts.get("judgmentuuid"),
        "judgedby": texts.get("judge"),
        "judgedat": texts.get("judgedat") if _is_true(place, texts, "timeknown") else None,
    }
    ours = texts.get("plannumber") not in (None, "")
    known = _is_true(place, texts, "textsknown", missing=ours)
    for side, half in (("a", a), ("b", b)):
        given[f"policy{side}"] = texts[f"policy{half}name"]
        text = texts.get(f"response{half}")
        given[f"response{side}"] = text if known or text else None
    vote = vote_of(place, given, winner=texts["choice"], in_order=True)
    if known:
        # Two empty ones too: they are one text, and a tie.
        vote = replace(vote, response_a=given["responsea"], response_b=given["responseb"])
    return [vote if _is_true(place, texts, "sideknown") else replace(vote, a_on_left=None)]


def _is_true(place: str, fields: Mapping[str, Any], name: str, *, missing: bool = True) -> bool:
    """The truth in one of our columns; ``missing`` where an older export has no such column."""
    # Spreadsheets write them in capital letters or as numbers.
    said = str(fields.get(name, missing)).lower()
    if said not in {"true", "false", "1", "0"}:
        raise ImportingError.at(place, f"{name} is {limits.shown(fields[name])}. Write true or false.")
    return said in {"true", "1"}
