"""Policies: their names, their space, and the models that write them."""

from collections.abc import Collection
from dataclasses import replace

from engine.core import Factorial
from engine.core.spaces import Space, grown
from engine.domain.policy_space import Combination, PolicyName, names_of, policy_space
from engine.models import Connection, Experiment, Factor, Policy, Response


def without_prompt(experiment: Experiment) -> list[int]:
    """Indices of the policies whose system prompts are all empty; none where no factor is a system prompt."""
    found = []
    for policy in experiment.policies.composable():
        levels = [level for level in policy.levels.all() if level.factor.kind == Factor.Kind.PROMPT]
        if levels and not any(level.value.get("text", "").strip() for level in levels):
            found.append(policy.index)
    return found


def model_that_wrote(policy: Policy) -> str:
    """The model that wrote the policy's newest response; empty where nothing has been written."""
    written = policy.responses.filter(state=Response.State.DONE).exclude(model="").order_by("-pk")
    return written.values_list("model", flat=True).first() or ""


def written_elsewhere(policy: Policy) -> bool:
    """True if its prompt is not known here: its responses were ready-made, or votes only named it."""
    if policy.experiment.responses == Experiment.Responses.IMPORTED:
        return True
    # The import of votes gives such a policy one level, whose model has the same name, and default settings.
    named = policy.experiment.past_votes > 0 and all(
        level.factor.kind == Factor.Kind.MODEL and level.value.get("name") == level.name
        for level in policy.levels.all()
    )
    return named and not model_that_wrote(policy)


def connections_named(names: Collection[str]) -> dict[str, Connection]:
    """The connections of these names that are asked from here, by name; those of workers are left out."""
    rows = Connection.objects.remote().filter(name__in=names)
    return {each.name: each for each in rows}


def space_of(experiment: Experiment) -> Space:
    """The experiment's assumption about the preference probabilities; policy i is its row i."""
    return labelled_space(experiment)[0]


def count_at_first(experiment: Experiment) -> int:
    """The number of policies that the experiment began with."""
    return experiment.policies.filter(joined_at=None).count()


def labelled_space(experiment: Experiment, n_policies: int | None = None) -> tuple[Space, list[str]]:
    """The space of `space_of`, and the names of its policies in sentences; of the first ``n_policies``."""
    levels, policies = _levels(experiment), combinations_of(experiment)
    labels = [each.name for each in names_of(levels, policies)]
    n_first = count_at_first(experiment)
    n_policies = len(policies) if n_policies is None else n_policies
    # What is assumed of those who were first stays so, whoever joins.
    first = policies[: min(n_first, n_policies)]
    known = {factor: {each[place] for each in first} for place, factor in enumerate(levels)}
    at_first = {factor: [name for name in names if name in known[factor]] for factor, names in levels.items()}
    space = policy_space(experiment.space, at_first, first)
    for each in policies[n_first:n_policies]:
        space = grown(space, each if isinstance(space, Factorial) else None)
    return space, labels[:n_policies]


def policy_names(experiment: Experiment) -> list[PolicyName]:
    """The names of the policies, by index."""
    return names_in([experiment])[experiment.pk]


def combinations_of(experiment: Experiment) -> list[Combination]:
    """The names of the levels of each policy, by index and in the order of the factors."""
    return [combination for combination, *_ in _policies_in([experiment])[experiment.pk]]


def levels_told(experiment: Experiment, index: int) -> list[tuple[str, str]]:
    """The factors that vary, each with its level in the policy of this index."""
    levels = policy_names(experiment)[index].levels
    factors = _levels(experiment).items()
    return [
        (factor, level) for (factor, choices), level in zip(factors, levels, strict=True) if len(choices) > 1
    ]


def winner_name(experiment: Experiment) -> str:
    """The name of the policy that has won; empty where none has."""
    return policy_names(experiment)[experiment.winner.index].name if experiment.winner else ""


def names_in(experiments: Collection[Experiment]) -> dict[int, list[PolicyName]]:
    """The policies' names of each experiment by its id, in as many queries for one as for many."""
    levels, policies = _levels_in(experiments), _policies_in(experiments)
    return {
        pk: [
            replace(name, present=present, reason=reason)
            for name, (_, present, reason) in zip(
                names_of(levels[pk], [combination for combination, *_ in policies[pk]]),
                policies[pk],
                strict=True,
            )
        ]
        for pk in levels
    }


def _levels(experiment: Experiment) -> dict[str, list[str]]:
    return _levels_in([experiment])[experiment.pk]


def _levels_in(experiments: Collection[Experiment]) -> dict[int, dict[str, list[str]]]:
    levels: dict[int, dict[str, list[str]]] = {experiment.pk: {} for experiment in experiments}
    rows = Factor.objects.filter(experiment__in=levels).order_by("position", "levels__position")
    for experiment_id, factor, level in rows.values_list("experiment_id", "name", "levels__name"):
        # A factor of a draft may have no level yet.
        levels[experiment_id].setdefault(factor, []).extend([] if level is None else [level])
    return levels


def _policies_in(experiments: Collection[Experiment]) -> dict[int, list[tuple[Combination, bool, str]]]:
    """The names of the levels of each policy, in the order of the factors, whether it is present, and why a
    writer proposed it; by index.
    """
    found: dict[int, dict[int, tuple[list[str], bool, str]]] = {each.pk: {} for each in experiments}
    rows = Policy.objects.filter(experiment__in=found).order_by("index", "levels__factor__position")
    for experiment_id, index, retired_at, reason, level in rows.values_list(
        "experiment_id", "index", "retired_at", "proposal__reason", "levels__name"
    ):
        found[experiment_id].setdefault(index, ([], retired_at is None, reason or ""))[0].append(level)
    return {
        pk: [(tuple(levels), present, reason) for levels, present, reason in by_index.values()]
        for pk, by_index in found.items()
    }


def factorial_space(experiment: Experiment) -> Factorial | None:
    """The Bradley-Terry space of the levels; ``None`` if the policies do not separate the levels."""
    levels = _levels(experiment)
    try:
        factorial = policy_space("factorial", levels, combinations_of(experiment))
    except ValueError:
        return None
    return factorial if isinstance(factorial, Factorial) else None
