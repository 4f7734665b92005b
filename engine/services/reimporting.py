"""A new experiment from the exported judgments of another one: the same counts, evidence and decision."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from engine.core import Design, StopReason
from engine.domain.blinding import Period
from engine.domain.policy_space import policy_space
from engine.domain.specs import ExperimentSpec
from engine.models import (
    Comparison,
    Experiment,
    Judgment,
    JudgmentVoid,
    PairCount,
    Policy,
    Response,
    Task,
    User,
)
from engine.selectors import counts, designs
from engine.services.experiments import Description, check_description, conclude, store_experiment
from engine.services.imported_rows import Row, check_rows, standing
from engine.services.imported_rows import time_of as _time
from engine.services.snapshots import write_snapshot

_BATCH = 1000
_PLAN = {
    "sampler": "sampler",
    "draw": "sampling_draw",
    "number": "plan_number",
    "rules": "plan_rules",
    "stopping": "plan_stopping",
    "delta": "plan_delta",
    "epsilon": "plan_epsilon",
    "comparisons": "plan_comparisons",
    "in_flight": "plan_in_flight",
    "propensity": "propensity",
}

# A comparison by its number in the file, its policies by index, its outcome.
Completion = tuple[int, int, int, float]


def import_experiment(
    *,
    spec: ExperimentSpec,
    rows: Iterable[Row],
    planned_count: int = 0,
    people: Mapping[str, User] | None = None,
    secrets: Sequence[Period] = (),
) -> Experiment:
    """Make the experiment of ``spec`` and give it the judgments of an export, in their order.

    It concludes if they decide it, and is paused otherwise, to go on from there. ``people``: accounts by their names
    in the export, which are pseudonyms or user names; everybody else is made anew as a user who cannot log in.

    ``secrets``: those that were published of the exported experiment. They stay with the record, so that its sides
    can still be verified; what is planned from here on has a secret of its own.

    Reading, checking and replaying take nearly all of the time and come before the transaction: SQLite has one
    writer, and clicks wait for it.

    Raises
    ------
    SpecError
        A row does not fit the experiment; nothing is made then.
    """
    description = check_description(spec)
    checked = check_rows(rows, description)
    unsaved = Experiment(**spec.settings, planned_count=planned_count)
    completions = list(counts.completions(unsaved, standing(checked)))
    levels = {factor.name: list(factor.levels) for factor in spec.factors}
    space = policy_space(unsaved.space, levels, description.policies)
    design = designs.told_design(unsaved, space, ((i, j, outcome) for _, i, j, outcome in completions))
    return _store(description, checked, completions, design, planned_count, people or {}, secrets)


@transaction.atomic
def _store(  # noqa: PLR0917 - what was checked, in the order in which it is stored
    description: Description,
    rows: Sequence[Row],
    completions: Sequence[Completion],
    design: Design,
    planned_count: int,
    people: Mapping[str, User],
    secrets: Sequence[Period],
) -> Experiment:
    judged_at = {row["comparison_id"]: _time(row["judged_at"]) for row in rows if not row["voided"]}
    outcomes = {number: (outcome, judged_at[number]) for number, _, _, outcome in completions}
    importing = _Import(store_experiment(description=description), outcomes, people)
    for start in range(0, len(rows), _BATCH):
        importing.add(rows[start : start + _BATCH])
    experiment = importing.experiment
    experiment.planned_count = max(planned_count, importing.planned_count)
    experiment.state = Experiment.State.PAUSED
    experiment.started_at = timezone.now()
    experiment.past_secrets = [{"first": period.first, "secret": period.secret} for period in secrets]
    experiment.secret_from = experiment.planned_count
    experiment.save(update_fields=["planned_count", "state", "started_at", "past_secrets", "secret_from"])
    _count(experiment, completions)
    write_snapshot(experiment=experiment, design=design)
    decision = design.decision
    if decision.reason is not None:
        certified = decision.reason == StopReason.CERTIFIED
        best = decision.best if certified else None
        winner = None if best is None else experiment.policies.get(index=best)
        conclude(experiment=experiment, conclusion=decision.reason, winner=winner)
    return experiment


class _Import:
    """What has been made so far, by its number in the file."""

    def __init__(
        self,
        experiment: Experiment,
        outcomes: Mapping[int, tuple[float, datetime | None]],
        people: Mapping[str, User],
    ) -> None:
        self.experiment = experiment
        self._outcomes = outcomes
        self.planned_count = 0
        self._policies: dict[str, Policy] = {policy.label: policy for policy in experiment.policies.all()}
        self._tasks: dict[int, Task] = {task.position + 1: task for task in experiment.tasks.all()}
        self._people: dict[str, User] = dict(people)
        self._responses: dict[int, int] = {}
        self._comparisons: dict[int, int] = {}
        self._judgments: dict[int, int] = {}

    def add(self, rows: Sequence[Row]) -> None:
        self._add_responses(rows)
        self._add_comparisons(rows)
        self._add_judgments(rows)

    def _add_responses(self, rows: Sequence[Row]) -> None:
        new = {
            row[f"response_{side}_id"]: self._response(row, side)
            for row in rows
            for side in "ij"
            if row[f"response_{side}_id"] not in self._responses
        }
        Response.objects.bulk_create(new.values())
        self._responses |= {number: response.pk for number, response in new.items()}

    def _response(self, row: Row, side: str) -> Response:
        return Response(
            policy=self._policies[row[f"policy_{side}"]],
            task=self._tasks[row["task_number"]],
            state=Response.State.DONE,
            text=row[f"response_{side}"],
            created_at=datetime.fromisoformat(row["planned_at"]),
            **{
                name: row[f"{name}_{side}"]
                for name in (
                    "seed", "model", "prompt_tokens", "completion_tokens", "finish_reason", "guardrail", "leak"
                )
            },
        )  # fmt: skip

    def _add_comparisons(self, rows: Sequence[Row]) -> None:
        new = {}
        for row in rows:
            if row["comparison_id"] not in self._comparisons and row["comparison_id"] not in new:
                new[row["comparison_id"]] = self._comparison(row)
        Comparison.objects.bulk_create(new.values())
        self._comparisons |= {number: comparison.pk for number, comparison in new.items()}

    def _comparison(self, row: Row) -> Comparison:
        self.planned_count = max(self.planned_count, (row["plan_number"] or 0) + 1)
        return Comparison(
            experiment=self.experiment,
            policy_i=self._policies[row["policy_i"]],
            policy_j=self._policies[row["policy_j"]],
            task=self._tasks[row["task_number"]],
            response_i_id=self._responses[row["response_i_id"]],
            response_j_id=self._responses[row["response_j_id"]],
            i_on_left=row["left_policy"] == row["policy_i"],
            plan=_plan(row),
            **self._settled(row),
            skips=row["skips"],
            created_at=datetime.fromisoformat(row["planned_at"]),
        )

    def _settled(self, row: Row) -> dict[str, Any]:
        if row["comparison_id"] not in self._outcomes:
            return {"state": Comparison.State.READY}
        outcome, judged_at = self._outcomes[row["comparison_id"]]
        return {"state": Comparison.State.JUDGED, "outcome": outcome, "judged_at": judged_at}

    def _add_judgments(self, rows: Sequence[Row]) -> None:
        # A judgment is written once for all: one that restores another waits until that one has its number.
        batch: dict[int, Row] = {}
        for row in rows:
            if row["restores"] in batch:
                self._write_judgments(list(batch.values()))
                batch = {}
            batch[row["judgment_id"]] = row
        self._write_judgments(list(batch.values()))

    def _write_judgments(self, rows: Sequence[Row]) -> None:
        judgments = [
            Judgment(
                comparison_id=self._comparisons[row["comparison_id"]],
                judge=row["judge"],
                # Not the file's word: only what this installation saw itself can be "page" or "api".
                via=Judgment.Via.IMPORT,
                annotator=self._person(row["annotator"]),
                token=uuid.uuid4(),
                choice=row["choice"],
                outcome=row["outcome"],
                reason=row["reason"],
                comment=row["comment"],
                standing=not row["voided"],
                restores_id=self._judgments.get(row["restores"]),
                annotator_could_see_policies=row["annotator_could_see_policies"],
                shown_at=_time(row["shown_at"]),
                created_at=datetime.fromisoformat(row["judged_at"]),
            )
            for row in rows
        ]
        Judgment.objects.bulk_create(judgments)
        self._judgments |= {row["judgment_id"]: j.pk for row, j in zip(rows, judgments, strict=True)}
        JudgmentVoid.objects.bulk_create(
            JudgmentVoid(
                judgment=judgment,
                by=self._person(row["voided_by"]),
                reason=row["void_reason"],
                created_at=datetime.fromisoformat(row["voided_at"]),
            )
            for row, judgment in zip(rows, judgments, strict=True)
            if row["voided"]
        )

    def _person(self, name: str) -> User | None:
        """Somebody of that name as they are known here: they cannot log in, and are nobody else's namesake."""
        if not name:
            return None
        if name not in self._people:
            self._people[name] = User.objects.create_user(
                f"{name[:120]}@import-{self.experiment.pk}", is_active=False
            )
        return self._people[name]


def _count(experiment: Experiment, completions: Sequence[Completion]) -> None:
    wins: defaultdict[tuple[int, int], float] = defaultdict(float)
    comparisons: Counter[tuple[int, int]] = Counter()
    for _, i, j, outcome in completions:
        wins[i, j] += outcome
        comparisons[i, j] += 1
    rows = []
    for row in PairCount.objects.filter(experiment=experiment).select_related("policy_i", "policy_j"):
        pair = (row.policy_i.index, row.policy_j.index)
        if pair in comparisons:
            row.wins_i, row.comparisons = wins[pair], comparisons[pair]
            rows.append(row)
    PairCount.objects.bulk_update(rows, ["wins_i", "comparisons"], batch_size=250)


def _plan(row: Row) -> dict[str, Any]:
    plan = {key: row[column] for key, column in _PLAN.items()}
    plan["seed"] = [int(part) for part in row["sampling_seed"].split()]
    if row["plan_evidence_i"] is not None:
        plan["evidence"] = [row["plan_evidence_i"], row["plan_evidence_j"]]
    return plan
