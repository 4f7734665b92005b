"""Policies with everything that composes their messages."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import QuerySet

from engine.domain.profiles import Provider
from engine.models import Connection, Experiment, Factor, Policy, Response


def composable(policy_ids: Collection[int]) -> QuerySet[Policy]:
    """These policies, each with its experiment, levels and factors, in three queries for all."""
    return _with_levels(Policy.objects.filter(pk__in=policy_ids))


def policies_of(experiment: Experiment) -> QuerySet[Policy]:
    """The policies of an experiment by index, with what :func:`composable` has at hand."""
    return _with_levels(experiment.policies.order_by("index"))


def policy_at(experiment: Experiment, index: int, *, composable: bool = False) -> Policy | None:
    """The policy of this index; ``None`` where there is none.

    ``composable``: with what :func:`composable` has at hand, in two more queries.
    """
    policies = experiment.policies.filter(index=index)
    return (_with_levels(policies) if composable else policies).first()


def without_prompt(experiment: Experiment) -> list[int]:
    """Indices of the policies whose system prompts are all empty; none where no factor is a system prompt."""
    found = []
    for policy in policies_of(experiment):
        levels = [level for level in policy.levels.all() if level.factor.kind == Factor.Kind.PROMPT]
        if levels and not any(level.value.get("text", "").strip() for level in levels):
            found.append(policy.index)
    return found


def model_that_wrote(policy: Policy) -> str:
    """The model that wrote the policy's newest response; empty where nothing has been written."""
    written = policy.responses.filter(state=Response.State.DONE).exclude(model="").order_by("-pk")
    return written.values_list("model", flat=True).first() or ""


def _with_levels(policies: QuerySet[Policy]) -> QuerySet[Policy]:
    return policies.select_related("experiment").prefetch_related("levels__factor")


def connections_named(names: Collection[str]) -> dict[str, Connection]:
    """The connections of these names that are asked from here, by name; those of workers are left out."""
    rows = Connection.objects.filter(name__in=names).exclude(provider=Provider.WORKER)
    return {each.name: each for each in rows}
