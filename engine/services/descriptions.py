"""Checks the descriptions of experiments before anything is stored."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings as site
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models

from engine.core import Design
from engine.domain import limits, tags, variables
from engine.domain.conversations import fault_of, text_and_messages
from engine.domain.errors import SpecError
from engine.domain.levels import Composition, Model, SamplingParams, compose, parse_level, unfillable
from engine.domain.policy_space import Combination, combinations, names_of, policy_space
from engine.domain.profiles import Provider, Takes, refused, takes_of
from engine.domain.rules import Rules, check_claim, completed
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.domain.texts import is_blank
from engine.models import Connection, Experiment, Factor, Level
from engine.selectors.rubrics import why_no_judge
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
    if judge == Experiment.Judge.RULE and (bare := [t.prompt for t in spec.tasks if not t.reference.strip()]):
        raise SpecError(f"The rule judge needs a reference answer for every task; {bare[0]!r} has none.")
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
    _check_sent(experiment, spec.factors, policies)
    _check_guards(experiment, spec.factors, policies)
    _check_currency(experiment, spec.factors)
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


def _check_sent(
    experiment: Experiment, factors: Sequence[FactorSpec], policies: Sequence[Combination]
) -> None:
    """Refuse settings that a policy's model does not take, and two policies whose requests are the same.

    Of models that no connection has, and of workers', nothing is known but what workers take.
    """
    telling = [
        n for n, factor in enumerate(factors) if factor.kind in {Factor.Kind.SAMPLING, Factor.Kind.MODEL}
    ]
    if not telling:
        return
    parsed = [
        {name: parse_level(factor.kind, value) for name, value in factor.levels.items()} for factor in factors
    ]
    named = {level.name for levels in parsed for level in levels.values() if isinstance(level, Model)}
    taken = _taken({name or experiment.model for name in {"", *named}})
    names = names_of({factor.name: list(factor.levels) for factor in factors}, policies)
    sent: dict[Hashable, int] = {}
    for index, policy in enumerate(policies):
        levels = [parsed[n][level] for n, level in enumerate(policy)]
        composition = compose(levels, model=experiment.model)
        takes = taken.get(composition.model)
        if takes and (sentences := list(refused(takes, composition.sampling))):
            model = composition.model or "a worker's own model"
            raise SpecError(
                f"Policy “{names[index].name}”, {model}: {' '.join(sentences)} Remove the setting from the "
                "level, choose another model, or leave this combination out.",
                ("factors", _place_of(SamplingParams, levels)),
            )
        other = sent.setdefault(_request(composition, takes), index)
        if any(levels[n] != parsed[n][policies[other][n]] for n in telling):
            raise SpecError(
                f"Policies “{names[other].name}” and “{names[index].name}” send the same request: they "
                "differ only in what is not sent. Change one of their levels, or leave it out.",
                ("factors", telling[0]),
            )


def _check_currency(experiment: Experiment, factors: Sequence[FactorSpec]) -> None:
    """Refuse a limit of money on connections with several currencies, whose costs do not add up."""
    if experiment.money_limit is None:
        return
    values = [value for factor in factors for value in factor.levels.values()]
    named = {value.get(key) for value in values for key in ("name", "guard_model")}
    named |= {experiment.model, experiment.judge_model}
    asked = Connection.objects.filter(name__in=named - {None, ""}, retired_at__isnull=True)
    currencies = sorted(set(asked.values_list("currency", flat=True)))
    if len(currencies) > 1:
        raise SpecError(
            f"money_limit: the connections have prices in {' and '.join(currencies)}, whose costs do not add "
            "up. Remove the limit, or give them one currency.",
            ("money_limit",),
        )


def _check_guards(
    experiment: Experiment, factors: Sequence[FactorSpec], policies: Sequence[Combination]
) -> None:
    """Refuse a policy for which a worker's own model writes and a connection guards, or the reverse: one
    worker makes all of a response.
    """
    place = next((n for n, factor in enumerate(factors) if factor.kind == Factor.Kind.GUARDRAIL), None)
    if place is None:
        return
    asked: set[frozenset[str]] = set()
    for policy in policies:
        levels = [
            parse_level(factor.kind, factor.levels[level])
            for factor, level in zip(factors, policy, strict=True)
        ]
        composition = compose(levels, model=experiment.model)
        asked.add(frozenset({composition.model, *(each.guard_model for each in composition.guardrails)}))
    known = Connection.objects.filter(name__in=frozenset().union(*asked), retired_at=None)
    providers = dict(known.values_list("name", "provider"))
    for names in asked:
        own = sorted(name for name in names if providers.get(name) == Provider.WORKER)
        remote = sorted(name for name in names - {*own} if name in providers)
        if experiment.backend not in {"", Experiment.Backend.REMOTE}:
            own.append(f"the {experiment.backend} backend")
        if own and remote:
            raise SpecError(
                f"{remote[0]} is a connection and {own[0]} a worker's own model: one worker makes all of a "
                "response, so a model and its guard are both connections, or both of one worker. Choose "
                "another guard or another model, or leave this combination out.",
                ("factors", place),
            )


def _place_of(kind: type, levels: Sequence[object]) -> int:
    return next((n for n, level in enumerate(levels) if isinstance(level, kind)), 0)


def _taken(names: Collection[str]) -> dict[str, Takes]:
    """The rules of the models of these names, as far as they are known; "" is a worker's own model."""
    # Without a name, the connection of the environment serves, where there is one.
    wanted = {name or site.OPENAI_MODEL for name in names}
    known = {
        each.name: takes_of(Provider(each.provider), each.model_id, each.takes)
        for each in Connection.objects.filter(name__in=wanted - {""}, retired_at__isnull=True)
    }
    return known | {"": known.get(site.OPENAI_MODEL) or takes_of(Provider.WORKER, "")}


def _request(composition: Composition, takes: Takes | None) -> Hashable:
    """Equal for policies whose requests are equal; a worker's own model is sent the usual numbers too."""
    sampling = composition.sampling
    own = takes is not None and takes == takes_of(Provider.WORKER, "")
    drawn = (
        sampling.drawing
        if own
        else (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens)
    )
    seed = not own and sampling.seed
    rest = (sampling.stop, sampling.reasoning, sampling.reasoning_tokens, seed)
    objects = (repr(sampling.response_format), repr(sampling.extra_body))
    texts = (composition.system, composition.suffix, composition.guardrails, repr(composition.examples))
    return composition.model, texts, drawn, rest, objects
