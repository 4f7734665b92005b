"""Checks the descriptions of experiments before anything is stored."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models

from engine.core import Design
from engine.domain import limits, tags, variables
from engine.domain.claim_settings import Rules, check_claim, completed
from engine.domain.conversations import fault_of, text_and_messages
from engine.domain.errors import SpecError
from engine.domain.levels import parse_level, unfillable
from engine.domain.policy_space import Combination, combinations, policy_space
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.domain.texts import is_blank
from engine.models import Experiment, Factor, Level
from engine.selectors.rubrics import why_no_judge
from engine.services import policy_requests
from engine.services.ready_made import check_ready_made


@dataclass(frozen=True)
class Description:
    """A checked description, and the policies that it makes."""

    spec: ExperimentSpec
    policies: Sequence[Combination]


def check_description(spec: ExperimentSpec) -> Description:
    """Find everything that is wrong with a description except a name that is taken. Writes nothing.

    It may have no tasks yet, which only the start needs.

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
    if unknown := set(spec.settings) - set(SETTINGS):
        raise SpecError(f"Unknown setting: {', '.join(sorted(unknown))}. Use {', '.join(SETTINGS)}.")
    _check_types(spec.settings)
    spec = replace(spec, settings=completed(spec.settings))
    _check_texts(spec)
    _check_tags(spec.tasks)
    judge = spec.settings.get("judge", Experiment.Judge.HUMAN)
    if judge == Experiment.Judge.RULE and (
        bare := [task.prompt for task in spec.tasks if not (task.reference.strip() or task.checks)]
    ):
        raise SpecError(
            f"The rule judge needs a reference answer or checks for every task; {bare[0]!r} has none."
        )
    _check_llm_judge(judge, spec.settings)
    experiment = Experiment(name=spec.name, **spec.settings)
    _check(experiment)
    if len(spec.gold) < experiment.practice:
        raise SpecError(
            "Practice pairs are gold items. Give at least as many gold items as practice pairs.",
            ("practice",),
        )
    if experiment.shown_thinking == Experiment.ShownThinking.BOTH and experiment.gold_rate:
        raise SpecError(
            "Gold items have no thinking, so that annotators who see the models' would know them. Hide the "
            "thinking, or set the share of gold pairs to 0.",
            ("shown_thinking",),
        )
    _check_factors(spec.factors)
    _check_variables(spec)
    check_claim(claim=experiment.claim, epsilon=experiment.epsilon, stopping=experiment.stopping)
    policies = _checked_policies(experiment, spec.factors)
    policy_requests.check_requests(experiment, spec.factors, policies)
    policy_requests.check_guards(experiment, spec.factors, policies)
    policy_requests.check_currency(experiment, spec.factors)
    check_ready_made(spec)
    return Description(spec, policies)


def named_twice(factors: Sequence[FactorSpec]) -> tuple[int, str] | None:
    """The position of the first factor that repeats an earlier one's name, and the error message."""
    names = [factor.name for factor in factors]
    for position, name in enumerate(names):
        if name in names[:position]:
            return position, f"Two factors are named {name!r}; give each a name of its own."
    return None


# Django's own conversion is too generous: it takes `True` for 1, "NaN" for a number, and 2.7 for 2.
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
            if value is None and getattr(field, "null", False):
                continue
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
    """Refuse a level whose text has variables that some task does not fill, once there are tasks."""
    if not spec.tasks:
        return
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


def _check_llm_judge(judge: str, settings: Mapping[str, Any]) -> None:
    stage = settings.get("llm_judge", Experiment.LLMJudge.OFF)
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
    if not settings.get("judge_model") and (reason := why_no_judge()):
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


def _check(
    row: Experiment | Factor | Level,
    where: str = "",
    exclude: Collection[str] = (),
    path: tuple[Hashable, ...] = (),
) -> None:
    try:
        row.full_clean(exclude=exclude, validate_unique=False, validate_constraints=False)
        # Uniqueness of the name is checked later: names are unique among the experiments of one maker.
        for constraint in row._meta.constraints:
            if isinstance(constraint, models.CheckConstraint) and _is_for_people(constraint):
                _check_constraint(constraint, row, exclude)
    except ValidationError as error:
        raise SpecError(where + faults_in(error), (*path, next(iter(error.message_dict)))) from error
    if not row.name.strip():
        raise SpecError(f"{where}name: Give it a name.", (*path, "name"))


def faults_in(error: ValidationError) -> str:
    """The faults of a row's fields, each after the name of its field."""
    return "; ".join(f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items())


def _is_for_people(constraint: models.CheckConstraint) -> bool:
    """True if it has a message: the others are about what no description sets, and a check takes three
    statements.
    """
    return constraint.violation_error_message != constraint.default_violation_error_message


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
