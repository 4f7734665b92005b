"""A new experiment from the exported judgments of another one: the same counts, evidence and decision."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction

from engine.domain.blinding import Period
from engine.domain.errors import SpecError
from engine.domain.policy_space import index_of, names_of, policy_space
from engine.domain.specs import ExperimentSpec
from engine.domain.texts import digest, two_texts
from engine.models import (
    Comparison,
    Experiment,
    Judgment,
    JudgmentVoid,
    Response,
    User,
    clock,
)
from engine.selectors import counts
from engine.selectors.counts import Completion
from engine.selectors.designs import Observed, told_design
from engine.services.bulk_rows import Prepared, analyze, insert, prepared, staged
from engine.services.descriptions import check_description
from engine.services.drafts import store_experiment
from engine.services.experiments import conclude_as
from engine.services.identical_texts import IDENTICAL_PLAN
from engine.services.imported_rows import Row, check_rows, standing, time_of, uuid_of
from engine.services.imported_votes import (
    NO_TEXT,
    PAST_PLAN,
    add_to_counts,
    insert_comparisons,
    made_people,
    tokens_of,
)
from engine.services.judging import state_without_judgments
from engine.services.snapshots import write_snapshot

_PLAN = {
    "sampler": "sampler",
    "draw": "sampling_draw",
    "number": "plan_number",
    "rules": "plan_rules",
    "stopping": "plan_stopping",
    "claim": "plan_claim",
    "delta": "plan_delta",
    "epsilon": "plan_epsilon",
    "comparisons": "plan_comparisons",
    "in_flight": "plan_in_flight",
    "propensity": "propensity",
}


def import_experiment(
    *,
    spec: ExperimentSpec,
    rows: Iterable[Row],
    by: User | None = None,
    planned_count: int = 0,
    people: Mapping[str, User] | None = None,
    secrets: Sequence[Period] = (),
) -> Experiment:
    """Make the experiment of ``spec`` and give it the judgments of an export, in their order.

    It concludes if they decide it. Otherwise it is paused, and can be continued.

    ``by`` becomes its owner. ``people``: accounts by their names in the export, which are pseudonyms or user
    names; everybody else becomes a new user who cannot log in.

    ``secrets``: those that were published of the exported experiment. They stay with the record, so that its
    sides can still be verified; whatever is planned from here on has a secret of its own.

    Reading, checking, replaying and making the rows' values take nearly all of the time. They come before the
    transaction, because SQLite has one writer and clicks wait for it.

    Raises
    ------
    SpecError
        There are no tasks, or a row does not fit the experiment; nothing is made then.
    """
    if not spec.tasks:
        # It would be paused, where nobody can add tasks any more.
        raise SpecError(
            "This is the export of a draft that has no tasks yet. Bring its setup as an experiment file "
            "instead."
        )
    description = check_description(spec)
    checked = check_rows(rows, description)
    unsaved = Experiment(**description.spec.settings, planned_count=planned_count)
    completions = list(counts.completions(unsaved, standing(checked)))
    levels = {factor.name: list(factor.levels) for factor in spec.factors}
    space = policy_space(unsaved.space, levels, description.policies)
    labels = [each.name for each in names_of(levels, description.policies)]
    observed = told_design(unsaved, space, completions, labels=labels)
    ready = _prepared(
        checked,
        completions,
        made_elsewhere=bool(spec.ready_made),
        come_again=unsaved.responses != Experiment.Responses.FRESH,
    )
    del checked  # The prepared rows hold everything, and memory has room for one copy of a large file.
    tables = (ready.responses, ready.comparisons, ready.judgments, ready.voids)
    with description.staged(), staged(*tables), transaction.atomic():
        experiment = store_experiment(description=description, by=by)
        _store(experiment, ready, completions, observed, planned_count, people or {}, secrets)
        analyze(description.pairs, description.responses, *tables)
        return experiment


@dataclass(frozen=True)
class _Ready:
    """The rows to store. In them, people, policies, tasks and earlier rows are numbers until they have keys.

    ``responses`` is empty if the experiment's description contains them; then their numbers in it are used.
    """

    names: Sequence[str]
    responses: Prepared
    comparisons: Prepared
    judgments: Prepared
    uuids: Sequence[uuid.UUID | None]
    voids: Prepared
    planned_count: int
    past_votes: int
    # The place of each judgment among the rows, by its number in the file.
    places: Mapping[int, int]


def _prepared(
    rows: Sequence[Row], completions: Sequence[Completion], *, made_elsewhere: bool, come_again: bool
) -> _Ready:
    judged_at = {row["comparison_id"]: time_of(row["judged_at"]) for row in rows if not row["voided"]}
    outcomes = {each.comparison: (each.outcome, judged_at[each.comparison]) for each in completions}
    names = {row["annotator"] for row in rows} | {row["voided_by"] for row in rows if row["voided"]}
    people = {name: number for number, name in enumerate(sorted(names - {""}))}
    judgments = {row["judgment_id"]: number for number, row in enumerate(rows)}
    # The first row of each, which all rows of it agree with.
    of_comparisons: dict[int, Row] = {}
    of_responses: dict[int, tuple[Row, str]] = {}
    for row in rows:
        of_comparisons.setdefault(row["comparison_id"], row)
        for side in "ij":
            of_responses.setdefault(row[f"response_{side}_id"], (row, side))
    comparisons = {number: place for place, number in enumerate(of_comparisons)}
    responses = {
        number: row[f"seed_{side}"] if made_elsewhere else place
        for place, (number, (row, side)) in enumerate(of_responses.items())
    }
    digests = {number: digest(row[f"response_{side}"]) for number, (row, side) in of_responses.items()}
    picks = {
        number: row["plan_number"] for number, row in of_comparisons.items() if row["plan_number"] is not None
    }
    past = [number for number in of_comparisons if number not in picks]
    numbers = {number: place for place, number in enumerate(past)}
    numbers |= {number: len(past) + pick for number, pick in picks.items()}
    return _Ready(
        names=list(people),
        responses=prepared(
            Response, () if made_elsewhere else (_response(row, side) for row, side in of_responses.values())
        ),
        comparisons=prepared(
            Comparison,
            (
                _comparison(
                    row,
                    numbers[number],
                    responses,
                    outcomes.get(number),
                    texts=two_texts(digests[row["response_i_id"]], digests[row["response_j_id"]])
                    if come_again
                    else "",
                )
                for number, row in of_comparisons.items()
            ),
        ),
        judgments=prepared(Judgment, (_judgment(row, comparisons, judgments, people) for row in rows)),
        uuids=[uuid_of(row) for row in rows],
        voids=prepared(
            JudgmentVoid,
            (
                JudgmentVoid(
                    judgment_id=number,
                    by_id=people[row["voided_by"]],
                    reason=row["void_reason"],
                    created_at=datetime.fromisoformat(row["voided_at"]),
                )
                for number, row in enumerate(rows)
                if row["voided"]
            ),
        ),
        planned_count=max(picks.values(), default=-1) + 1,
        past_votes=len(past),
        places=judgments,
    )


def _response(row: Row, side: str) -> Response:
    # A past vote without texts has failed responses, so that nobody is shown them.
    textless = _is_textless(row, side)
    return Response(
        policy_id=index_of(row[f"policy_{side}"]),
        task_id=row["task_number"] - 1,
        state=Response.State.FAILED if textless else Response.State.DONE,
        failure_reason=NO_TEXT if textless else "",
        text=row[f"response_{side}"],
        created_at=datetime.fromisoformat(row["planned_at"]),
        **{
            name: row[f"{name}_{side}"]
            for name in (
                "seed", "model", "prompt_tokens", "completion_tokens", "finish_reason", "guardrail", "leak"
            )
        },
    )  # fmt: skip


def _is_textless(row: Row, side: str) -> bool:
    return not row["texts_known"] and not row[f"response_{side}"]


def _comparison(
    row: Row,
    number: int,
    responses: Mapping[int, int],
    settled: tuple[float, datetime | None] | None,
    *,
    texts: str,
) -> Comparison:
    outcome, judged_at = settled or (None, None)
    state, discard_reason = Comparison.State.JUDGED, ""
    if settled is None:
        state, discard_reason = state_without_judgments(
            textless=_is_textless(row, "i") or _is_textless(row, "j"),
            identical=row["via"] == Judgment.Via.IDENTICAL,
        )
    return Comparison(
        experiment_id=0,
        number=number,
        policy_i_id=index_of(row["policy_i"]),
        policy_j_id=index_of(row["policy_j"]),
        task_id=row["task_number"] - 1,
        response_i_id=responses[row["response_i_id"]],
        response_j_id=responses[row["response_j_id"]],
        i_on_left=row["left_policy"] == row["policy_i"],
        plan=_plan(row),
        texts=texts,
        state=state,
        discard_reason=discard_reason,
        outcome=outcome,
        judged_at=judged_at,
        skips=row["skips"],
        created_at=datetime.fromisoformat(row["planned_at"]),
    )


def _judgment(
    row: Row, comparisons: Mapping[int, int], judgments: Mapping[int, int], people: Mapping[str, int]
) -> Judgment:
    return Judgment(
        comparison_id=comparisons[row["comparison_id"]],
        judge=row["judge"],
        # Do not believe the file: only answers that this installation received itself are "page" or "api".
        # That two texts are identical is checked here, so it is believed.
        via=Judgment.Via.IDENTICAL if row["via"] == Judgment.Via.IDENTICAL else Judgment.Via.IMPORT,
        annotator_id=people.get(row["annotator"]),
        token=uuid.uuid4(),
        choice=row["choice"],
        outcome=row["outcome"],
        reason=row["reason"],
        comment=row["comment"],
        standing=not row["voided"],
        # A filter may have left it out.
        restores_id=judgments.get(row["restores"]),
        annotator_could_see_policies=row["annotator_could_see_policies"],
        shown_at=time_of(row["shown_at"]),
        created_at=datetime.fromisoformat(row["judged_at"]),
    )


def _store(  # noqa: PLR0917 - what was checked, in the order in which it is stored
    experiment: Experiment,
    ready: _Ready,
    completions: Sequence[Completion],
    observed: Observed,
    planned_count: int,
    people: Mapping[str, User],
    secrets: Sequence[Period],
) -> None:
    policies = list(experiment.policies.order_by("index").values_list("pk", flat=True))
    tasks = list(experiment.tasks.order_by("position").values_list("pk", flat=True))
    made = made_people(experiment, [name for name in ready.names if name not in people])
    persons = [(people.get(name) or made[name]).pk for name in ready.names]
    # In the order of their numbers; none where the file brings the responses along.
    ready_made = list(
        Response.objects.filter(policy__experiment=experiment).order_by("seed").values_list("pk", flat=True)
    )
    responses = ready_made or insert(ready.responses, {"policy_id": policies, "task_id": tasks})
    comparisons = insert_comparisons(experiment, ready.comparisons, policies, tasks, responses)
    judgments = insert(
        ready.judgments,
        {"comparison_id": comparisons, "annotator_id": persons},
        own="restores_id",
        values={"token": tokens_of(experiment, ready.uuids)} if any(ready.uuids) else None,
    )
    insert(ready.voids, {"judgment_id": judgments, "by_id": persons})
    experiment.planned_count = max(planned_count, ready.planned_count)
    experiment.state = Experiment.State.PAUSED
    experiment.started_at = clock.now()
    experiment.past_secrets = [{"first": period.first, "secret": period.secret} for period in secrets]
    experiment.secret_from = experiment.planned_count
    experiment.past_votes = ready.past_votes
    experiment.save(
        update_fields=["planned_count", "state", "started_at", "past_secrets", "secret_from", "past_votes"]
    )
    add_to_counts(experiment, ((each.i, each.j, each.outcome) for each in completions))
    if observed.last_judgment:
        observed = replace(observed, last_judgment=judgments[ready.places[observed.last_judgment]])
    write_snapshot(experiment=experiment, observed=observed)
    if observed.design.stopped:
        conclude_as(experiment=experiment, observed=observed)


def _plan(row: Row) -> dict[str, Any]:
    if row["plan_number"] is None:
        return PAST_PLAN | {name: row[name] for name in ("side_known", "time_known", "texts_known")}
    plan = {key: row[column] for key, column in _PLAN.items()}
    if row["via"] == Judgment.Via.IDENTICAL:
        plan |= IDENTICAL_PLAN
    plan["seed"] = [int(part) for part in row["sampling_seed"].split()]
    if row["plan_evidence_i"] is not None:
        plan["evidence"] = [row["plan_evidence_i"], row["plan_evidence_j"]]
    return plan
