"""Checks of the requests that the policies of a description send to models."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from django.conf import settings as site

from engine.domain.errors import SpecError
from engine.domain.levels import Composition, Model, SamplingParams, compose, parse_level
from engine.domain.policy_space import Combination, names_of
from engine.domain.profiles import Provider, Takes, refused, takes_of
from engine.domain.specs import FactorSpec
from engine.models import Connection, Experiment, Factor


def check_requests(
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


def models_in(value: Mapping[str, Any]) -> set[Any]:
    """The models that a level names."""
    return {value.get("name"), value.get("guard_model")} - {None, ""}


def check_currency(experiment: Experiment, factors: Sequence[FactorSpec]) -> None:
    """Refuse a limit of money on connections with several currencies, whose costs do not add up."""
    if experiment.money_limit is None:
        return
    values = [value for factor in factors for value in factor.levels.values()]
    named = set().union(*map(models_in, values))
    named |= {experiment.model, experiment.judge_model}
    asked = Connection.objects.filter(name__in=named - {None, ""}, retired_at__isnull=True)
    currencies = sorted(set(asked.values_list("currency", flat=True)))
    if len(currencies) > 1:
        raise SpecError(
            f"money_limit: the connections have prices in {' and '.join(currencies)}, whose costs do not add "
            "up. Remove the limit, or give them one currency.",
            ("money_limit",),
        )


def check_guards(
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
    texts = (
        composition.system,
        composition.template,
        composition.suffix,
        composition.guardrails,
        repr(composition.examples),
    )
    return composition.model, texts, drawn, rest, objects
