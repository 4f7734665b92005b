"""A new experiment from the exported judgments of another one: the same counts, evidence and decision."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.utils import timezone

from engine import selectors
from engine.blinding import Period
from engine.core import Design
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
from engine.policy_space import policy_space
from engine.services.experiments import Description, check_description, conclude, store_experiment
from engine.services.imported_rows import Row, check_rows, standing
from engine.services.imported_rows import time_of as _time
from engine.services.snapshots import write_snapshot
from engine.specs import ExperimentSpec

_BATCH = 1000
# Of a user name's 150 characters; a number and the experiment's take the rest.
_LONGEST_STEM = 110
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
    completions = list(selectors.completions(unsaved, standing(checked)))
    levels = {factor.name: list(factor.levels) for factor in spec.factors}
    space = policy_space(unsaved.space, levels, description.policies)
    design = selectors.told_design(unsaved, space, (told for _, *told in completions))
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
    experiment = store_experiment(description=description)
    names = {row["annotator"] for row in rows} | {row["voided_by"] for row in rows if row["voided"]}
    made = _made_people(experiment, sorted(names - {""} - people.keys()))
    importing = _Import(experiment, outcomes, made | people)
    for start in range(0, len(rows), _BATCH):
        importing.add(rows[start : start + _BATCH])
    experiment.planned_count = max(planned_count, importing.planned_count)
    experiment.state = Experiment.State.PAUSED
    experiment.started_at = timezone.now()
    experiment.past_secrets = [{"first": period.first, "secret": period.secret} for period in secrets]
    experiment.secret_from = experiment.planned_count
    experiment.save(update_fields=["planned_count", "state", "started_at", "past_secrets", "secret_from"])
    _count(experiment, completions)
    write_snapshot(experiment=experiment, design=design)
    decision = design.decision
    if decision.stopped:
        certified = decision.reason == Experiment.Conclusion.CERTIFIED
        winner = experiment.policies.get(index=decision.best) if certified else None
        conclude(experiment=experiment, conclusion=str(decision.reason), winner=winner)
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
        self._people: dict[str, User | None] = {"": None, **people}
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
            created_at=_time(row["planned_at"]),
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
            created_at=_time(row["planned_at"]),
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
                annotator=self._people[row["annotator"]],
                token=uuid.uuid4(),
                choice=row["choice"],
                outcome=row["outcome"],
                reason=row["reason"],
                comment=row["comment"],
                standing=not row["voided"],
                restores_id=self._judgments.get(row["restores"]),
                annotator_could_see_policies=row["annotator_could_see_policies"],
                shown_at=_time(row["shown_at"]),
                created_at=_time(row["judged_at"]),
            )
            for row in rows
        ]
        Judgment.objects.bulk_create(judgments)
        self._judgments |= {row["judgment_id"]: j.pk for row, j in zip(rows, judgments, strict=True)}
        JudgmentVoid.objects.bulk_create(
            JudgmentVoid(
                judgment=judgment,
                by=self._people[row["voided_by"]],
                reason=row["void_reason"],
                created_at=_time(row["voided_at"]),
            )
            for row, judgment in zip(rows, judgments, strict=True)
            if row["voided"]
        )


def _made_people(experiment: Experiment, names: Sequence[str]) -> dict[str, User]:
    """Accounts for people of these names as they are known here: they cannot log in, and nobody shares one.

    Two names may become one when they are cut, or when Unicode's forms of the same letters are made one, and an
    account of that name may be there already. Such a name gets a number.
    """
    suffix = f"@import-{experiment.pk}"
    taken = set(User.objects.filter(username__endswith=suffix).values_list("username", flat=True))
    numbers: Counter[str] = Counter()
    accounts: dict[str, User] = {}
    for name in names:
        stem = User.normalize_username(name)[:_LONGEST_STEM]
        while True:
            numbers[stem] += 1
            username = f"{stem}{f'-{numbers[stem]}' if numbers[stem] > 1 else ''}{suffix}"
            if username not in taken:
                break
        taken.add(username)
        accounts[name] = User(username=username, password=make_password(None), is_active=False)
    User.objects.bulk_create(accounts.values(), batch_size=_BATCH)
    return accounts


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
