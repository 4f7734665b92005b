"""A row of a table, which is one vote: by the names of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from engine.domain import limits
from engine.domain.conversations import Message
from engine.domain.texts import is_blank
from engine.importing.rows import ImportingError, NoColumnError
from engine.importing.votes import lmarena
from engine.importing.votes.answers import side_of_a, winner_of
from engine.importing.votes.columns import (
    ANNOTATOR,
    JUDGED_AT,
    LONGEST_NAME,
    POLICY,
    RESPONSE,
    TASK,
    first_of,
    text_in,
    two_of,
    without_fraction,
)
from engine.importing.votes.times import time_of
from engine.importing.votes.vote import Judge, Vote

_OF_PREFERENCES = (
    "chosen and rejected say which text is better, but not whose it is. Add policy_a and policy_b, call the "
    "texts response_a and response_b, and add winner, which is a in each row."
)


def vote_of(
    place: str,
    fields: Mapping[str, Any],
    *,
    winner: Any = None,
    annotator: Any = None,
    judged_at: Any = None,
    uuid: Any = None,
    judged_by: Any = None,
    in_order: bool = False,
) -> Vote:
    """The vote of one row. What is given beside ``fields`` is in place of its column.

    ``in_order``: the fields are those of a tool that shows a on the left.
    """
    (policy_a, policy_b), named_by_side = two_of(fields, POLICY)
    a, b = ((text_in(place, "policy", name) or "").strip() for name in (policy_a, policy_b))
    if not a and not b:
        what = "policy_a and policy_b (or model_a and model_b)"
        if fields.keys() >= {"chosen", "rejected"}:
            raise NoColumnError(place, what, _OF_PREFERENCES)
        raise NoColumnError(place, what)
    if not a or not b:
        empty = "b" if a else "a"
        raise ImportingError.at(place, f"The policy of {empty} is empty. Write it, or remove the row.")
    for name, value in (("policy_a", a), ("policy_b", b)):
        if len(value) > LONGEST_NAME:
            raise ImportingError.at(
                place,
                f"{name} has {len(value):,} characters; the limit is {LONGEST_NAME}. Shorten the name.",
            )
    if a == b:
        raise ImportingError.at(
            place, f"Both policies are {limits.shown(a)}. A vote is about two policies; remove the row."
        )
    task, messages, responses, arena = _texts(place, fields, may_be_turns=not in_order)
    if task is None:
        raise NoColumnError(place, "task (or prompt, question, instruction, conversation_a)")
    if is_blank(task):
        raise ImportingError.at(place, "The task is empty. Write it, or remove the row.")
    if not any(responses):
        # An empty cell is no text; nobody votes on two empty ones.
        responses = (None, None)
    a_on_left = side_of_a(place, fields)
    if named_by_side and a_on_left is False:
        raise ImportingError.at(
            place,
            "side_a is right, but the policy of a stands in a column called left. Remove side_a.",
        )
    if a_on_left is None and (in_order or named_by_side or arena):
        a_on_left = True
    by = annotator if annotator is not None else first_of(fields, ANNOTATOR)
    if isinstance(by, list):
        # MT-bench: a model and the prompt that it judged with.
        by = " ".join(map(str, by))
    of_ours = _uuid(place, uuid if uuid is not None else fields.get("judgmentuuid"))
    # Elsewhere a column of this name may name a person.
    judge = _judge(place, judged_by if judged_by is not None else fields.get("judgedby")) if of_ours else None
    return Vote(
        place=place,
        task=task,
        policy_a=a,
        policy_b=b,
        winner=winner_of(place, fields, winner, (a, b), a_on_left=a_on_left, by_side=in_order or arena),
        response_a=responses[0],
        response_b=responses[1],
        annotator=without_fraction((text_in(place, "annotator", by) or "").strip()),
        judged_at=time_of(place, judged_at if judged_at is not None else first_of(fields, JUDGED_AT)),
        a_on_left=a_on_left,
        messages=messages,
        uuid=of_ours,
        judge=judge or Judge.HUMAN,
    )


def _judge(place: str, value: Any) -> Judge | None:
    if value in (None, ""):
        return None
    try:
        return Judge(value)
    except ValueError as error:
        raise ImportingError.at(
            place, f"The judge is {limits.shown(value)}. Write {', '.join(Judge)}, or leave it empty."
        ) from error


def _uuid(place: str, value: Any) -> UUID | None:
    if value in (None, ""):
        return None
    try:
        return UUID(str(value).strip())
    except ValueError as error:
        raise ImportingError.at(
            place, f"judgment_uuid is {limits.shown(value)}, which is no UUID. Export the file again."
        ) from error


def _task(fields: Mapping[str, Any]) -> Any:
    """The task; in Alpaca's data its instruction and, where there is one, the input below it."""
    given, more = (fields.get(name) for name in ("instruction", "input"))
    others = [name for name in TASK if name not in {"instruction", "input"} and fields.get(name)]
    if isinstance(given, str) and given and isinstance(more, str) and more and not others:
        return f"{given}\n\n{more}"
    return first_of(fields, TASK)


def _texts(
    place: str, fields: Mapping[str, Any], *, may_be_turns: bool
) -> tuple[str | None, tuple[Message, ...], tuple[str | None, str | None], bool]:
    """The task, its messages, the two responses, and whether they came as an arena's conversations."""
    if (found := lmarena.conversations(place, fields)) is not None:
        return *found, True
    task = _task(fields)
    (first, second), _ = two_of(fields, (*RESPONSE, ""))
    if may_be_turns and (found := lmarena.lists_of_turns(place, fields, (task, first, second))) is not None:
        return *found, True
    messages: tuple[Message, ...] = ()
    if isinstance(task, list):
        task, messages = lmarena.task_of_prompt(place, task)
    return (
        text_in(place, "task", task),
        messages,
        (text_in(place, "response_a", first), text_in(place, "response_b", second)),
        False,
    )
