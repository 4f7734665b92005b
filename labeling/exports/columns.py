"""The columns of an export of judgments: one row per judgment, in the order of the judgments.

New columns go to the end, because readers may count columns. `docs/export.md` has the meaning of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from engine.models import Experiment, Flag
from engine.selectors import browsing
from engine.selectors.browsing import Selection
from labeling.dashboard.status import policy_names
from labeling.exports.people import names_of_people

Row = tuple[Any, ...]

INTEGER, NUMBER, TEXT, TIME, TRUTH = "integer", "number", "text", "time", "truth"

COLUMNS: dict[str, str] = {
    "judgment_id": INTEGER,
    "comparison_id": INTEGER,
    "judge": TEXT,
    "annotator": TEXT,
    "shown_at": TIME,
    "judged_at": TIME,
    "task": TEXT,
    "reference": TEXT,
    "policy_i": TEXT,
    "policy_j": TEXT,
    "policy_i_name": TEXT,
    "policy_j_name": TEXT,
    "response_i": TEXT,
    "response_j": TEXT,
    "left_policy": TEXT,
    "right_policy": TEXT,
    "choice": TEXT,
    "chosen_policy": TEXT,
    "chosen_response": TEXT,
    "outcome": NUMBER,
    "reason": TEXT,
    "sampler": TEXT,
    "sampling_seed": TEXT,
    "sampling_draw": INTEGER,
    "voided": TRUTH,
    "voided_at": TIME,
    "voided_by": TEXT,
    "void_reason": TEXT,
    "restores": INTEGER,
    "comment": TEXT,
    "seconds": NUMBER,
    "task_number": INTEGER,
    "comparison_state": TEXT,
    "comparison_outcome": NUMBER,
    "skips": INTEGER,
    "flags": TEXT,
    "planned_at": TIME,
    "plan_number": INTEGER,
    "plan_rules": INTEGER,
    "plan_stopping": TEXT,
    "plan_delta": NUMBER,
    "plan_epsilon": NUMBER,
    "plan_comparisons": INTEGER,
    "plan_in_flight": INTEGER,
    "plan_evidence_i": NUMBER,
    "plan_evidence_j": NUMBER,
    "propensity": NUMBER,
    "response_i_id": INTEGER,
    "response_j_id": INTEGER,
    "model_i": TEXT,
    "model_j": TEXT,
    "seed_i": INTEGER,
    "seed_j": INTEGER,
    "prompt_tokens_i": INTEGER,
    "prompt_tokens_j": INTEGER,
    "completion_tokens_i": INTEGER,
    "completion_tokens_j": INTEGER,
    "finish_reason_i": TEXT,
    "finish_reason_j": TEXT,
    "guardrail_i": TEXT,
    "guardrail_j": TEXT,
    "leak_i": TEXT,
    "leak_j": TEXT,
    "via": TEXT,
    "annotator_could_see_policies": TRUTH,
}

_OF_RESPONSE = {
    "text": "text", "response": "pk", "model": "model", "seed": "seed", "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens", "finish_reason": "finish_reason", "guardrail": "guardrail",
    "leak": "leak",
}  # fmt: skip
# Fields to read: a short name and the path from a judgment. Policies and people are few and looked up.
FIELDS = {
    "pk": "pk",
    "comparison_id": "comparison_id",
    "judge": "judge",
    "annotator_id": "annotator_id",
    "shown_at": "shown_at",
    "created_at": "created_at",
    "choice": "choice",
    "outcome": "outcome",
    "reason": "reason",
    "comment": "comment",
    "restores_id": "restores_id",
    "voided_at": "void__created_at",
    "voided_by_id": "void__by_id",
    "void_reason": "void__reason",
    "policy_i_id": "comparison__policy_i_id",
    "policy_j_id": "comparison__policy_j_id",
    "i_on_left": "comparison__i_on_left",
    "comparison_state": "comparison__state",
    "comparison_outcome": "comparison__outcome",
    "skips": "comparison__skips",
    "planned_at": "comparison__created_at",
    "plan": "comparison__plan",
    "prompt": "comparison__task__prompt",
    "reference": "comparison__task__reference",
    "position": "comparison__task__position",
    "annotator_could_see_policies": "annotator_could_see_policies",
} | {
    f"{name}_{side}" + ("_id" if name == "response" else ""): f"comparison__response_{side}__{field}"
    for side in "ij"
    for name, field in _OF_RESPONSE.items()
}
FIELDS["via"] = "via"


def _stamped(time: datetime) -> str:
    return time.isoformat(timespec="microseconds")


def read_rows(
    experiment: Experiment,
    selection: Selection,
    *,
    usernames: bool = False,
    stamp: Callable[[datetime], Any] = _stamped,
    chunk: int = 2000,
) -> Iterator[Row]:
    """The selected judgments, a row each, as they stand at the first one; never more than ``chunk`` in memory.

    ``usernames``: people by their user names instead of pseudonyms. ``stamp`` makes a column's value of a time.
    """
    names = [name.long for name in policy_names(experiment)]
    labels = {
        pk: (f"P{index + 1}", names[index]) for pk, index in experiment.policies.values_list("pk", "index")
    }
    people: dict[int | None, str] = {None: "", **names_of_people(experiment, usernames=usernames)}
    flags = _flags(experiment)
    judgments = browsing.selected_judgments(experiment, selection).values_list(*FIELDS.values())
    with one_look():
        for row in judgments.iterator(chunk_size=chunk):
            yield _row(row, labels, people, flags, stamp)


def one_look() -> Any:
    """A cursor that reads from the database as it is now, row by row.

    PostgreSQL keeps such a cursor in a transaction only; outside of one it would write the whole result aside
    before the first row. SQLite needs none, and one would keep everybody else from writing.
    """
    return transaction.atomic() if connection.vendor == "postgresql" else nullcontext()


def _flags(experiment: Experiment) -> dict[int, str]:
    flags: dict[int, str] = {}
    rows = Flag.objects.filter(comparison__experiment=experiment).order_by("pk")
    for comparison_id, reason in rows.values_list("comparison_id", "reason"):
        flags[comparison_id] = f"{flags[comparison_id]} {reason}" if comparison_id in flags else reason
    return flags


def _row(
    fields: Row,
    labels: dict[int, tuple[str, str]],
    people: dict[int | None, str],
    flags: dict[int, str],
    stamp: Callable[[datetime], Any],
) -> Row:
    (
        pk, comparison_id, judge, annotator_id, shown_at, created_at, choice, outcome, reason,
        comment, restores_id, voided_at, voided_by, void_reason,
        policy_i, policy_j, i_on_left, state,
        joint, skips, planned_at, plan,
        prompt, reference, position, could_see,
        text_i, id_i, model_i, seed_i, prompt_tokens_i, tokens_i, finish_i, guardrail_i, leak_i,
        text_j, id_j, model_j, seed_j, prompt_tokens_j, tokens_j, finish_j, guardrail_j, leak_j,
        via,
    ) = fields  # fmt: skip
    label_i, name_i = labels[policy_i]
    label_j, name_j = labels[policy_j]
    left, right = (label_i, label_j) if i_on_left else (label_j, label_i)
    if choice in {"left", "right"}:
        chose_i = (choice == "left") == i_on_left
        chosen, chosen_text = (label_i, text_i) if chose_i else (label_j, text_j)
    else:
        chosen = chosen_text = ""
    told = plan.get
    evidence_i, evidence_j = told("evidence") or (None, None)
    return (
        pk, comparison_id, judge, people[annotator_id],
        None if shown_at is None else stamp(shown_at), stamp(created_at),
        prompt, reference, label_i, label_j, name_i, name_j, text_i, text_j, left, right,
        choice, chosen, chosen_text, outcome, reason,
        told("sampler", ""), " ".join(map(str, told("seed", ()))), told("draw"),
        voided_at is not None, None if voided_at is None else stamp(voided_at), people[voided_by],
        void_reason or "", restores_id, comment,
        None if shown_at is None else (created_at - shown_at).total_seconds(),
        position + 1, state, joint, skips, flags.get(comparison_id, ""), stamp(planned_at),
        told("number"), told("rules"), told("stopping", ""), told("delta"), told("epsilon"),
        told("comparisons"), told("in_flight"), evidence_i, evidence_j, told("propensity"),
        id_i, id_j, model_i, model_j, seed_i, seed_j, prompt_tokens_i, prompt_tokens_j, tokens_i, tokens_j,
        finish_i, finish_j, guardrail_i, guardrail_j, leak_i, leak_j,
        via,
        could_see,
    )  # fmt: skip
