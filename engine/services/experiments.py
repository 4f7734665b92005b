"""Creates experiments and moves them through their states."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import IntegrityError, models, transaction

from engine.core import Design, StopReason
from engine.domain import limits, tags, variables
from engine.domain.blinding import new_secret
from engine.domain.conversations import as_json, fault_of, text_and_messages
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.levels import parse_level, unfillable
from engine.domain.policy_space import Combination, combinations, policy_space
from engine.domain.rules import Rules, check_claim, completed
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.domain.texts import is_blank
from engine.models import (
    AuditEntry,
    Comparison,
    Experiment,
    Factor,
    GoldItem,
    Level,
    Membership,
    PairCount,
    Policy,
    Response,
    Task,
    Upload,
    User,
    clock,
)
from engine.selectors import designs
from engine.selectors.designs import Observed
from engine.selectors.findings import finding_of, finding_on
from engine.selectors.rubrics import why_no_judge
from engine.services.audit import record
from engine.services.bulk_rows import Prepared, insert, prepared
from engine.services.locks import locked_experiment
from engine.services.notifications import announce_conclusion
from engine.services.ready_made import check_ready_made, store_ready_made
from engine.services.replaying import catch_up, settle
from engine.services.uploads import take_upload

_STOPPABLE = {Experiment.State.RUNNING, Experiment.State.PAUSED}


@dataclass(frozen=True)
class Description:
    """A checked description, and the policies that it makes.

    ``pairs``: the counts of all pairs of policies, which are most of the rows that the description needs.
    """

    spec: ExperimentSpec
    policies: Sequence[Combination]
    pairs: Prepared


def create_experiment(
    *, spec: ExperimentSpec, by: User | None = None, upload: Upload | None = None
) -> Experiment:
    """Store a draft experiment with everything that its description contains.

    ``by`` makes it, and becomes its owner. ``upload`` is the kept file that it is made from.

    Raises
    ------
    SpecError
        Says which part is unusable and what it should be.
    WrongStateError
        Another request has imported the file.
    """
    return store_experiment(description=check_description(spec), by=by, upload=upload)


@transaction.atomic
def store_experiment(
    *, description: Description, by: User | None = None, upload: Upload | None = None
) -> Experiment:
    """Store a description that was checked before the transaction: SQLite has one writer at a time."""
    # First: its name is taken too where another request has imported the file.
    take_upload(upload)
    experiment = write_description(experiment=Experiment(maker=by), description=description)
    if by is not None:
        Membership.objects.create(
            experiment=experiment, user=by, role=Membership.Role.OWNER, origin=Membership.Origin.FOUNDER
        )
    record(experiment=experiment, by=by, action=AuditEntry.Action.CREATE)
    return experiment


def check_description(spec: ExperimentSpec) -> Description:
    """Find everything that is wrong with a description except a name that is taken. Writes nothing.

    Returns
    -------
    Description
        The description with the usual claim and margin where it names none, and its policies.

    Raises
    ------
    SpecError
        Says which part is unusable and what it should be.
    """
    limits.check_spec(spec)
    if not spec.factors or any(not factor.levels for factor in spec.factors):
        raise SpecError("Give at least one factor, and at least one level for each factor.")
    if twice := named_twice(spec.factors):
        position, fault = twice
        raise SpecError(fault, ("factors", position, "name"))
    if not spec.tasks:
        raise SpecError("Give at least one task.")
    if unknown := set(spec.settings) - set(SETTINGS):
        raise SpecError(f"Unknown setting: {', '.join(sorted(unknown))}. Use {', '.join(SETTINGS)}.")
    _check_types(spec.settings)
    spec = replace(spec, settings=completed(spec.settings))
    _check_texts(spec)
    _check_tags(spec.tasks)
    judge = spec.settings.get("judge", Experiment.Judge.HUMAN)
    if judge == Experiment.Judge.RULE and (bare := [t.prompt for t in spec.tasks if not t.reference.strip()]):
        raise SpecError(f"The rule judge needs a reference answer for every task; {bare[0]!r} has none.")
    _check_llm_judge(judge, spec.settings.get("llm_judge", Experiment.LLMJudge.OFF))
    experiment = Experiment(name=spec.name, **spec.settings)
    _check(experiment)
    if len(spec.gold) < experiment.practice:
        raise SpecError(
            "Practice pairs are gold items. Give at least as many gold items as practice pairs.",
            ("practice",),
        )
    _check_factors(spec.factors)
    _check_variables(spec)
    check_claim(claim=experiment.claim, epsilon=experiment.epsilon, stopping=experiment.stopping)
    policies = _checked_policies(experiment, spec.factors)
    check_ready_made(spec)
    # One row per pair from the start: a click then only ever updates, and never races to insert.
    pairs = prepared(
        PairCount,
        (
            PairCount(experiment_id=0, policy_i_id=i, policy_j_id=j)
            for i, j in itertools.combinations(range(len(policies)), 2)
        ),
    )
    return Description(spec, policies, pairs)


def named_twice(factors: Sequence[FactorSpec]) -> tuple[int, str] | None:
    """The position of the first factor that repeats an earlier one's name, and the error message."""
    names = [factor.name for factor in factors]
    for position, name in enumerate(names):
        if name in names[:position]:
            return position, f"Two factors are named {name!r}; give each a name of its own."
    return None


def check_name(experiment: Experiment) -> None:
    """Refuse a name that another experiment of its maker has.

    Raises
    ------
    SpecError
        It is taken.
    """
    try:
        experiment.validate_constraints()
    except ValidationError as error:
        raise SpecError(f"name: {' '.join(error.messages)}", ("name",)) from error


def write_description(*, experiment: Experiment, description: Description) -> Experiment:
    """Fill an experiment that has no rows yet with what its checked description says.

    Raises
    ------
    SpecError
        Another experiment of its maker has its name.
    """
    spec = description.spec
    described = Experiment(name=spec.name, **spec.settings)
    for name in ("name", *SETTINGS):
        setattr(experiment, name, getattr(described, name))
    check_name(experiment)
    try:
        with transaction.atomic():
            experiment.save()
    except IntegrityError:
        # Somebody may have taken the name since it was looked up.
        check_name(experiment)
        raise

    policies = _create_policies(experiment, description)
    keys = [policy.pk for policy in policies]
    insert(description.pairs, {"experiment_id": [experiment.pk], "policy_i_id": keys, "policy_j_id": keys})
    tasks = Task.objects.bulk_create(
        Task(
            experiment=experiment,
            position=i,
            prompt=task.prompt,
            reference=task.reference,
            messages=as_json(task.messages),
            variables=dict(task.variables),
            tags=list(task.tags),
        )
        for i, task in enumerate(spec.tasks)
    )
    GoldItem.objects.bulk_create(
        GoldItem(
            experiment=experiment,
            prompt=gold.prompt,
            messages=as_json(gold.messages),
            better=gold.better,
            worse=gold.worse,
            explanation=gold.explanation,
        )
        for gold in spec.gold
    )
    store_ready_made(spec, policies, tasks)
    return experiment


# Of fields and not of values: `True` is 1 and "NaN" a number to Django's own conversion, and 2.7 becomes 2.
_TYPES: tuple[tuple[tuple[type[models.Field[Any, Any]], ...], type | tuple[type, ...], str], ...] = (
    ((models.BooleanField,), bool, "true or false"),
    ((models.IntegerField,), int, "a whole number"),
    ((models.FloatField,), (int, float), "a number"),
    ((models.CharField, models.TextField), str, "a text"),
)


def _check_types(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        field = Experiment._meta.get_field(name)
        for fields, types, what in _TYPES:
            if isinstance(field, fields) and (
                not isinstance(value, types) or (isinstance(value, bool) and types is not bool)
            ):
                raise SpecError(f"{name}: this must be {what}, not {limits.shown(value)}.", (name,))


def _check_texts(spec: ExperimentSpec) -> None:
    """Refuse tasks and gold items without a text: nobody could judge answers to them."""
    for n, task in enumerate(spec.tasks):
        if is_blank(task.prompt):
            raise SpecError(f"Task {n + 1} is empty. Write it or leave it out.", ("tasks", n))
        _check_messages(f"Task {n + 1}", task, ("tasks", n))
    for n, gold in enumerate(spec.gold):
        for part in ("prompt", "better", "worse"):
            if not getattr(gold, part).strip():
                raise SpecError(
                    f"Gold item {n + 1} has no {part}. Write it or leave the item out.", ("gold", n)
                )
        _check_messages(f"Gold item {n + 1}", gold, ("gold", n))


def _check_messages(where: str, item: TaskSpec | GoldSpec, path: tuple[Hashable, ...]) -> None:
    if not item.messages:
        return
    if fault := fault_of(item.messages):
        raise SpecError(f"{where}: {fault}", path)
    if (item.prompt, item.messages) != text_and_messages(item.messages):
        raise SpecError(f"{where}: The text is not the transcript of its messages. Leave one out.", path)


def _check_tags(tasks: Sequence[TaskSpec]) -> None:
    for n, task in enumerate(tasks):
        if fault := tags.fault_of(task.tags):
            raise SpecError(f"Task {n + 1}: {fault}", ("tasks", n))


def _check_variables(spec: ExperimentSpec) -> None:
    """Refuse a level whose text has variables that some task does not fill."""
    for n, task in enumerate(spec.tasks):
        if wrong := next((name for name in task.variables if not variables.NAME.fullmatch(name)), None):
            raise SpecError(
                f"Task {n + 1}: {limits.shown(wrong)} cannot be the name of a variable. Use letters, digits "
                "and _, and begin with a letter.",
                ("tasks", n),
            )
    space = variables.Space.of(task.variables for task in spec.tasks)
    for factor, level, fault in unfillable(spec.factors, space):
        raise SpecError(fault, ("factors", factor, "levels", level))


def _check_llm_judge(judge: str, stage: str) -> None:
    if stage == Experiment.LLMJudge.OFF:
        return
    if stage == Experiment.LLMJudge.VOTES:
        raise SpecError(
            "llm_judge: a language model may vote only after an admin "
            "has accepted its agreement with people. Begin with shadow.",
            ("llm_judge",),
        )
    if judge != Experiment.Judge.HUMAN:
        raise SpecError(
            "llm_judge: a language model judges only beside people. Set judge: human, or llm_judge: off.",
            ("llm_judge",),
        )
    if reason := why_no_judge():
        raise SpecError(f"llm_judge: {reason}", ("llm_judge",))


def _check_factors(factors: Sequence[FactorSpec]) -> None:
    for position, spec in enumerate(factors):
        where = f"Factor {spec.name!r}: "
        if spec.kind not in Factor.Kind:
            raise SpecError(
                f"{where}{spec.kind!r} is not a kind of factor; use one of {', '.join(Factor.Kind)}.",
                ("factors", position, "kind"),
            )
        factor = Factor(name=spec.name, kind=spec.kind, position=position)
        _check(factor, where, exclude={"kind", "experiment"}, path=("factors", position))
        _check_levels(position, spec)


def _check_levels(factor: int, spec: FactorSpec) -> None:
    for position, (name, value) in enumerate(spec.levels.items()):
        path = ("factors", factor, "levels", name)
        where = f"Factor {spec.name!r}, level {name!r}: "
        try:
            parse_level(spec.kind, value)
        except ValueError as error:
            raise SpecError(f"{where}{error}", path) from error
        _check(Level(name=name, position=position), where, exclude={"value", "factor"}, path=path)


def _create_policies(experiment: Experiment, description: Description) -> list[Policy]:
    """Store the factors, their levels and the policies made of them; returns the policies, by index."""
    level_rows: list[dict[str, Level]] = []
    for position, spec in enumerate(description.spec.factors):
        factor = Factor.objects.create(
            experiment=experiment, name=spec.name, kind=spec.kind, position=position
        )
        level_rows.append({level.name: level for level in _create_levels(factor, spec)})
    policies = Policy.objects.bulk_create(
        Policy(experiment=experiment, index=i) for i in range(len(description.policies))
    )
    through = Policy.levels.through
    through.objects.bulk_create(
        through(policy_id=policy.pk, level_id=rows[name].pk)
        for policy, combination in zip(policies, description.policies, strict=True)
        for rows, name in zip(level_rows, combination, strict=True)
    )
    return policies


def _create_levels(factor: Factor, spec: FactorSpec) -> list[Level]:
    return Level.objects.bulk_create(
        Level(factor=factor, name=name, value=dict(value), position=position)
        for position, (name, value) in enumerate(spec.levels.items())
    )


def _check(
    row: Experiment | Factor | Level,
    where: str = "",
    exclude: Collection[str] = (),
    path: tuple[Hashable, ...] = (),
) -> None:
    try:
        row.full_clean(exclude=exclude, validate_unique=False, validate_constraints=False)
        # Not yet whether the name is taken: that depends on who makes it.
        for constraint in row._meta.constraints:
            if isinstance(constraint, models.CheckConstraint):
                _check_constraint(constraint, row, exclude)
    except ValidationError as error:
        raise SpecError(where + faults_in(error), (*path, next(iter(error.message_dict)))) from error
    if not row.name.strip():
        raise SpecError(f"{where}name: Give it a name.", (*path, "name"))


def faults_in(error: ValidationError) -> str:
    """The faults of a row's fields, each after the name of its field."""
    return "; ".join(f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items())


def _check_constraint(
    constraint: models.CheckConstraint, row: Experiment | Factor | Level, exclude: Collection[str]
) -> None:
    try:
        constraint.validate(type(row), row, exclude=set(exclude))
    except ValidationError as error:
        raise ValidationError({NON_FIELD_ERRORS: error.messages}) from error


def _checked_policies(experiment: Experiment, factors: Sequence[FactorSpec]) -> list[Combination]:
    """The policies of an experiment, which the engine has seen and not refused."""
    levels = {factor.name: list(factor.levels) for factor in factors}
    sizes = [len(factor.levels) for factor in factors]
    try:
        policies = combinations(levels, experiment.excluded)
        if len(policies) < 2:
            raise SpecError(
                "There is only one policy. Give a factor a second level, or exclude fewer combinations."
            )
        limits.check_space(
            sizes, policies=len(policies), factorial=experiment.space == Experiment.Space.FACTORIAL
        )
        Design(
            policy_space(experiment.space, levels, policies),
            **Rules.of(experiment).design(),
            budget=experiment.budget,
        )
    except ValueError as error:
        raise SpecError(str(error)) from error
    return policies


@transaction.atomic
def start(*, experiment_id: int, by: User | None = None) -> Experiment:
    """Draft or paused → running.

    Raises
    ------
    WrongStateError
        It runs, has concluded, or is in the archive.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state not in {Experiment.State.DRAFT, Experiment.State.PAUSED}:
        raise WrongStateError(
            f"Only a draft or paused experiment can be started; this one is {experiment.state}."
        )
    refuse_archived(experiment)
    resumed = experiment.state == Experiment.State.PAUSED
    # Tried responses have no part in the experiment.
    Response.objects.filter(trial__experiment=experiment).delete()
    experiment.state = Experiment.State.RUNNING
    experiment.started_at = experiment.started_at or clock.now()
    experiment.save(update_fields=["state", "started_at"])
    action = AuditEntry.Action.RESUME if resumed else AuditEntry.Action.START
    record(experiment=experiment, by=by, action=action)
    return experiment


@transaction.atomic
def pause(*, experiment_id: int, by: User | None = None) -> Experiment:
    """Running → paused: nothing new is planned or shown; pairs on a screen may still be judged.

    Raises
    ------
    WrongStateError
        It does not run.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state != Experiment.State.RUNNING:
        raise WrongStateError(f"Only a running experiment can be paused; this one is {experiment.state}.")
    experiment.state = Experiment.State.PAUSED
    experiment.save(update_fields=["state"])
    record(experiment=experiment, by=by, action=AuditEntry.Action.PAUSE)
    return experiment


def stop(*, experiment_id: int, by: User | None = None) -> Experiment:
    """End the experiment by hand, without a certified winner.

    Raises
    ------
    WrongStateError
        It neither runs nor is paused, or is in the archive.
    """
    # Before the lock: clicks wait for it.
    catch_up(experiment_id=experiment_id)
    return _stop(experiment_id, by)


@transaction.atomic
def _stop(experiment_id: int, by: User | None) -> Experiment:
    experiment = locked_experiment(experiment_id)
    check_may_stop(experiment)
    # Nothing is replayed after the conclusion.
    settle(experiment=experiment)
    conclude(experiment=experiment, conclusion=StopReason.STOPPED, winner=None, by=by)
    return experiment


def stop_on(*, experiment_id: int, claim: str, by: User | None) -> Experiment:
    """End the experiment on a claim that holds; the policy that the claim names is the winner.

    Raises
    ------
    WrongStateError
        It neither runs nor is paused, is in the archive, or the claim does not hold.
    """
    catch_up(experiment_id=experiment_id)
    return _stop_on(experiment_id, claim, by)


@transaction.atomic
def _stop_on(experiment_id: int, claim: str, by: User | None) -> Experiment:
    experiment = locked_experiment(experiment_id)
    check_may_stop(experiment)
    settle(experiment=experiment)
    observed = designs.observed(experiment)
    decision = observed.design.decision_given(designs.model_test(experiment, observed))
    state = next((each for each in decision.claims if each.claim == claim), None)
    if state is None or not state.holds or state.policy is None:
        missing = "This experiment does not watch that claim." if state is None else state.text
        raise WrongStateError(
            f"The experiment cannot stop on this claim, because it does not hold. {missing}"
        )
    conclude(
        experiment=experiment,
        conclusion=StopReason.CERTIFIED,
        winner=experiment.policies.get(index=state.policy),
        claim=claim,
        finding=finding_on(experiment, state, decision),
        by=by,
    )
    return experiment


def may_stop(experiment: Experiment) -> bool:
    """True if the experiment can be ended by hand."""
    return experiment.archived_at is None and experiment.state in _STOPPABLE


def check_may_stop(experiment: Experiment) -> None:
    """Refuse to end an experiment that cannot be ended by hand.

    Raises
    ------
    WrongStateError
        It neither runs nor is paused, or is in the archive.
    """
    if experiment.state not in _STOPPABLE:
        raise WrongStateError(
            f"Only a running or paused experiment can be stopped; this one is {experiment.state}."
        )
    refuse_archived(experiment)


def refuse_archived(experiment: Experiment) -> None:
    """Refuse to change an experiment that is in the archive.

    Raises
    ------
    WrongStateError
        It is archived.
    """
    if experiment.archived_at is not None:
        raise WrongStateError("The experiment is archived. Take it out of the archive first.")


def conclude_as(*, experiment: Experiment, observed: Observed) -> None:
    """Close a locked experiment whose design has stopped, with that design's result.

    Raises
    ------
    ValueError
        The design has not stopped.
    """
    decision = observed.design.decision
    if decision.reason is None:
        raise ValueError("The design has not stopped, so there is nothing to conclude.")
    best = decision.best if decision.reason == StopReason.CERTIFIED else None
    conclude(
        experiment=experiment,
        conclusion=decision.reason,
        winner=None if best is None else experiment.policies.get(index=best),
        claim="" if best is None or decision.claim is None else decision.claim.value,
        finding=finding_of(experiment, observed),
    )


def conclude(
    *,
    experiment: Experiment,
    conclusion: StopReason,
    winner: Policy | None,
    claim: str = "",
    finding: str = "",
    by: User | None = None,
) -> None:
    """Close a locked experiment: nothing waits any longer, and pairs on a screen may be finished.

    ``claim``: the one that certifies the winner. ``finding``: the claim in words. ``by``: the person who
    stops it, on that claim or without any.
    """
    experiment.state = Experiment.State.CONCLUDED
    experiment.conclusion = conclusion
    experiment.winner = winner
    experiment.certified_claim = claim
    experiment.finding = finding
    experiment.concluded_at = clock.now()
    experiment.save(
        update_fields=["state", "conclusion", "winner", "certified_claim", "finding", "concluded_at"]
    )
    _discard_leftovers(experiment_ids=[experiment.pk])
    # Those that the finding rests on, as every page says it: a late click is counted, but has no part in it.
    latest = designs.latest_snapshot(experiment)
    comparisons = 0 if latest is None else latest.comparisons
    action = AuditEntry.Action.CONCLUDE
    if conclusion == StopReason.STOPPED:
        action = AuditEntry.Action.STOP
    elif by is not None:
        action = AuditEntry.Action.STOP_ON
    record(
        experiment=experiment,
        by=by,
        action=action,
        details={
            "comparisons": comparisons,
            "conclusion": experiment.get_conclusion_display(),
            "claim": experiment.get_certified_claim_display(),
            "finding": finding,
        },
    )
    announce_conclusion(experiment=experiment, comparisons=comparisons)


def renew_secret(*, experiment: Experiment) -> None:
    """Plan under a new secret from now on, as the old one may have been published. The record keeps both."""
    experiment.past_secrets = [
        *experiment.past_secrets,
        {"first": experiment.secret_from, "secret": experiment.secret},
    ]
    experiment.secret = new_secret()
    experiment.secret_from = experiment.planned_count
    experiment.save(update_fields=["past_secrets", "secret", "secret_from"])


@transaction.atomic
def discard_leftovers() -> None:
    """Discard comparisons that were returned to an experiment while it concluded."""
    concluded = Comparison.objects.filter(
        experiment__state=Experiment.State.CONCLUDED,
        state__in=[Comparison.State.PLANNED, Comparison.State.READY],
    )
    _discard_leftovers(experiment_ids=list(concluded.values_list("experiment_id", flat=True).distinct()))


def _discard_leftovers(*, experiment_ids: Sequence[int]) -> None:
    reason = "The experiment concluded before this comparison was needed."
    Comparison.objects.filter(
        experiment__in=experiment_ids, state__in=[Comparison.State.PLANNED, Comparison.State.READY]
    ).update(state=Comparison.State.DISCARDED, discard_reason=reason)
    Response.objects.filter(task__experiment__in=experiment_ids, state=Response.State.WAITING).update(
        state=Response.State.FAILED, failure_reason=reason
    )
