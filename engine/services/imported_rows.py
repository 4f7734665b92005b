"""Checks every row of exported judgments before the transaction that imports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Field, Model

from engine.domain import limits
from engine.domain.errors import SpecError
from engine.domain.outcomes import outcome_of
from engine.domain.policy_space import code_of, index_of
from engine.domain.texts import digest
from engine.models import Judgment, JudgmentVoid, Response
from engine.selectors.counts import StandingJudgment
from engine.services.descriptions import Description

# One exported row by column name, its values as JSON has them.
Row = Mapping[str, Any]

_IDS = ("judgment_id", "comparison_id", "response_i_id", "response_j_id")
_WHOLE = ("task_number", "skips", "seed_i", "seed_j")
_WHOLE_OR_NOTHING = (
    "restores", "sampling_draw", "plan_number", "plan_rules", "plan_comparisons", "plan_in_flight",
    "prompt_tokens_i", "prompt_tokens_j", "completion_tokens_i", "completion_tokens_j",
)  # fmt: skip
_NUMBERS_OR_NOTHING = ("plan_delta", "plan_epsilon", "plan_evidence_i", "plan_evidence_j", "propensity")
_TRUTHS = ("voided", "annotator_could_see_policies", "side_known", "time_known", "texts_known")
_TIMES = ("planned_at", "judged_at")
_TEXTS = (
    "judge", "annotator", "policy_i", "policy_j", "left_policy", "response_i", "response_j", "choice",
    "reason", "comment", "void_reason", "sampler", "sampling_seed", "plan_stopping", "plan_claim", "via",
    "judgment_uuid",
    *(f"{name}_{side}" for name in ("model", "finish_reason", "guardrail", "leak") for side in "ij"),
)  # fmt: skip
_KEPT = (
    *_IDS, *_WHOLE, *_WHOLE_OR_NOTHING, *_NUMBERS_OR_NOTHING, *_TRUTHS, *_TIMES, *_TEXTS,
    "outcome", "shown_at", "voided_at", "voided_by",
)  # fmt: skip


def _longest(model: type[Model], name: str) -> int | None:
    field = model._meta.get_field(name)
    return field.max_length if isinstance(field, Field) else None


_LONGEST = {
    column: _longest(model, name)
    for model, name, columns in (
        (Judgment, "judge", ["judge"]),
        (Judgment, "choice", ["choice"]),
        (Judgment, "reason", ["reason"]),
        (Judgment, "comment", ["comment"]),
        (JudgmentVoid, "reason", ["void_reason"]),
        *(
            (Response, name, [f"{name}_i", f"{name}_j"])
            for name in ("model", "finish_reason", "guardrail", "leak")
        ),
    )
    for column in columns
}
_SMALL = {"skips": 32_767, "plan_number": 2**30} | {
    f"{name}_tokens_{side}": 2**31 - 1 for name in ("prompt", "completion") for side in "ij"
}


def check_rows(rows: Iterable[Row], description: Description) -> list[Row]:
    """The rows, which all fit the experiment. Writes nothing.

    Raises
    ------
    SpecError
        Names the first row and column that does not fit, and what to do.
    """
    checker = _Checker(description)
    checked: list[Row] = []
    for number, given in enumerate(rows, 1):
        limits.JUDGMENTS.check(number)
        # Older files lack the columns of the claim, of past votes and of UUIDs.
        ours = given.get("plan_number") is not None
        unsaid = {"plan_claim": "", "judgment_uuid": "", "time_known": True}
        unsaid |= {"side_known": ours, "texts_known": ours}
        row = unsaid | dict(given)
        try:
            checker.check(row)
        except KeyError as error:
            raise SpecError(
                f"Row {number} has no column {error}. Export the file again as JSON lines."
            ) from error
        except ValueError as error:
            raise SpecError(f"Row {number}: {error}") from error
        # Keep only the columns that are stored, so that a large file fits into memory.
        checked.append({name: row[name] for name in _KEPT})
    return checked


def standing(rows: Sequence[Row]) -> Iterator[StandingJudgment]:
    """The judgments that were not taken back, by their numbers in the file."""
    return (
        StandingJudgment(
            row["judgment_id"],
            row["comparison_id"],
            index_of(row["policy_i"]),
            index_of(row["policy_j"]),
            row["outcome"],
            row["via"],
        )
        for row in rows
        if not row["voided"]
    )


def time_of(said: str | None) -> datetime | None:
    """The time that a file gives in ISO 8601; ``None`` where it gives none."""
    return datetime.fromisoformat(said) if said else None


def uuid_of(row: Row) -> UUID | None:
    """The UUID of a row's judgment; ``None`` where an older file has none.

    Raises
    ------
    ValueError
        It is none.
    """
    said = row["judgment_uuid"]
    try:
        return UUID(said) if said else None
    except ValueError as error:
        raise ValueError(f"judgment_uuid must be a UUID, not {limits.shown(said)}.") from error


class _Checker:
    """The facts from the rows so far about each comparison and response."""

    def __init__(self, description: Description) -> None:
        self._labels = {code_of(index) for index in range(len(description.policies))}
        self._n_tasks = len(description.spec.tasks)
        # Responses that were written elsewhere, in the order of their numbers, which rows call their seeds.
        labels = {name: code_of(index) for index, (name, *_) in enumerate(description.policies)}
        self._ready_made = [
            (labels[each.policy], each.task + 1, each.response) for each in description.spec.ready_made
        ]
        # The comparison of each judgment, and whether it was taken back.
        self._judgments: dict[int, tuple[int, bool]] = {}
        self._restored: set[int] = set()
        self._uuids: set[UUID] = set()
        # Comparison and person of each judgment that stands.
        self._standing: set[tuple[int, str]] = set()
        self._pairs: dict[int, tuple[Any, ...]] = {}
        # The comparison of each pick.
        self._picks: dict[int, int] = {}
        self._responses: dict[int, tuple[Any, ...]] = {}

    def check(self, row: Row) -> None:
        """Raise KeyError for a column that is missing, and ValueError for a value that does not fit."""
        _check_types(row)
        for name in ("policy_i", "policy_j", "left_policy"):
            if row[name] not in self._labels:
                raise ValueError(
                    f"{name} is {limits.shown(row[name])}: the rows do not fit the experiment. Is this the "
                    "manifest of this file?"
                )
        i, j = row["policy_i"], row["policy_j"]
        if index_of(i) >= index_of(j) or row["left_policy"] not in {i, j}:
            raise ValueError("policy_i must come before policy_j, and left_policy must be one of the two.")
        if not 1 <= row["task_number"] <= self._n_tasks:
            raise ValueError(
                f"task_number is {limits.shown(row['task_number'])}: the rows do not fit the "
                f"experiment, which has {self._n_tasks:,} tasks. Is this the manifest of this file?"
            )
        if row["judge"] not in Judgment.Judge or row["choice"] not in Judgment.Choice:
            raise ValueError("judge or choice is none that there is.")
        _check_outcome(row)
        if row["via"] == Judgment.Via.IDENTICAL:
            same = digest(row["response_i"]) == digest(row["response_j"])
            if not same or row["judge"] != Judgment.Judge.RULE:
                raise ValueError(
                    "via is “identical”, which fits judge “rule” and two equal responses only. Export the "
                    "file again; cells cannot be edited one by one."
                )
        self._check_identity(row)

    def _check_identity(self, row: Row) -> None:
        """Check that a number means the same comparison or response in every row."""
        pair = (
            row["policy_i"],
            row["policy_j"],
            row["left_policy"],
            row["task_number"],
            row["response_i_id"],
            row["response_j_id"],
            row["plan_number"],
        )
        if self._pairs.setdefault(row["comparison_id"], pair) != pair:
            raise ValueError("comparison_id is that of an earlier row with another pair, side or task.")
        pick = row["plan_number"]
        if pick is not None and self._picks.setdefault(pick, row["comparison_id"]) != row["comparison_id"]:
            raise ValueError("plan_number is that of an earlier row of another comparison.")
        for side in "ij":
            written = (row[f"policy_{side}"], row["task_number"])
            if self._responses.setdefault(row[f"response_{side}_id"], written) != written:
                raise ValueError(f"response_{side}_id is that of an earlier row with another policy or task.")
            if self._ready_made:
                self._check_ready_made((*written, row[f"response_{side}"]), row[f"seed_{side}"], side)
        if row["judgment_id"] in self._judgments:
            raise ValueError("judgment_id is that of an earlier row.")
        if (uuid := uuid_of(row)) is not None:
            if uuid in self._uuids:
                raise ValueError("judgment_uuid is that of an earlier row.")
            self._uuids.add(uuid)
        if row["restores"] in self._judgments:
            if row["restores"] in self._restored:
                raise ValueError("restores names a judgment that an earlier row restores.")
            if self._judgments[row["restores"]] != (row["comparison_id"], True):
                raise ValueError(
                    "restores names a judgment of another comparison, or one that is not voided."
                )
            self._restored.add(row["restores"])
        self._judgments[row["judgment_id"]] = (row["comparison_id"], row["voided"])
        if row["annotator"] and not row["voided"]:
            self._check_once(row["comparison_id"], row["annotator"])

    def _check_ready_made(self, response: tuple[str, int, str], number: int, side: str) -> None:
        if number >= len(self._ready_made) or self._ready_made[number] != response:
            raise ValueError(
                f"response_{side} is not the ready-made response number "
                f"{number} of the manifest. Is this the manifest of this file?"
            )

    def _check_once(self, comparison_id: int, annotator: str) -> None:
        """Check that only one judgment of a comparison by one person stands."""
        if (comparison_id, annotator) in self._standing:
            raise ValueError(
                f"{limits.shown(annotator)} has two judgments of comparison {comparison_id} that both stand."
            )
        self._standing.add((comparison_id, annotator))


def _check_outcome(row: Row) -> None:
    """Check that the outcome follows from the choice; otherwise one of the two was edited."""
    expected = outcome_of(row["choice"], i_on_left=row["left_policy"] == row["policy_i"])
    if row["outcome"] != expected:
        raise ValueError(
            f"outcome is {limits.shown(row['outcome'])}, but choice and left_policy make it {expected:g}. "
            "Export the file again; cells cannot be edited one by one."
        )


def _check_types(row: Row) -> None:
    for name in (*_IDS, *_WHOLE, *(each for each in _WHOLE_OR_NOTHING if row[each] is not None)):
        _check_whole(name, row[name])
    for name in ("outcome", *(each for each in _NUMBERS_OR_NOTHING if row[each] is not None)):
        _check_number(name, row[name])
    if row["outcome"] not in {0.0, 0.5, 1.0}:
        raise ValueError(f"outcome is {limits.shown(row['outcome'])}; it must be 0, 0.5 or 1.")
    for name in _TEXTS:
        _check_text(name, row[name])
    for part in row["sampling_seed"].split():
        _check_whole("sampling_seed", int(part) if part.isdecimal() and len(part) < 20 else part)
    _check_events(row)


def _check_events(row: Row) -> None:
    """Check the times of showing and judging, the annotator's view, and the void."""
    for name in _TRUTHS:
        if not isinstance(row[name], bool):
            raise ValueError(f"{name} must be true or false, not {limits.shown(row[name])}.")
    _check_time("shown_at", row["shown_at"], required=False)
    for name in (*_TIMES, *(["voided_at"] if row["voided"] else [])):
        _check_time(name, row[name], required=True)
    if row["voided"]:
        _check_text("voided_by", row["voided_by"])
        if not row["voided_by"]:
            raise ValueError("voided_by is empty, although the judgment is voided.")


def _check_whole(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, not {limits.shown(value)}.")
    if not 0 <= value <= _SMALL.get(name, 2**63 - 1):
        raise ValueError(
            f"{name} is {limits.shown(value)}; it must lie between 0 and {_SMALL.get(name, 2**63 - 1):,}."
        )


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number, not {limits.shown(value)}.")
    if fault := limits.number_fault(value, name):
        raise ValueError(fault)


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {limits.shown(value)}.")
    if fault := limits.text_fault(value, name):
        raise ValueError(fault)
    longest = _LONGEST.get(name)
    if longest is not None and len(value) > longest:
        raise ValueError(f"{name} has {len(value):,} characters; the limit is {longest:,}. Shorten it.")


def _check_time(name: str, value: Any, *, required: bool) -> None:
    if not value and not required:
        return
    try:
        time = datetime.fromisoformat(value)
        # In the first and the last hours that Python knows, a conversion to UTC may overflow.
        fits = time.tzinfo is not None and bool(time.astimezone(UTC))
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(f"{name} must be a time with its zone in ISO 8601, not {limits.shown(value)}.")
