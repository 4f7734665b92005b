"""Responses that were written elsewhere: checks that an experiment can use them, and makes their rows."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from engine.domain.errors import SpecError
from engine.domain.policy_space import combinations, name_of
from engine.domain.replies import Finish
from engine.domain.specs import ExperimentSpec
from engine.models import Experiment, Factor, Policy, Response, Task, clock


def check_ready_made(spec: ExperimentSpec) -> None:
    """Check that every two policies have a task to which both have a response.

    Raises
    ------
    SpecError
        Names the policies, or the part, that is missing.
    """
    imported = spec.settings.get("responses") == Experiment.Responses.IMPORTED
    kinds = [factor.kind for factor in spec.factors]
    if not imported:
        if spec.ready_made or Factor.Kind.IMPORTED in kinds:
            raise SpecError("Ready-made responses need the setting “responses: imported”.", ("responses",))
        return
    if set(kinds) != {Factor.Kind.IMPORTED}:
        raise SpecError(
            (
                "With ready-made responses all factors are of the kind imported. Give several columns the "
                "role factor, or name the policies in one column, and leave `factors` out."
            ),
            ("factors",),
        )
    if len({task.prompt for task in spec.tasks}) < len(spec.tasks):
        raise SpecError(
            "Two tasks are identical, so a ready-made response could belong to either. Remove one of them.",
            ("tasks",),
        )
    policies = policies_of(spec)
    answered: defaultdict[str, set[int]] = defaultdict(set)
    for response in spec.ready_made:
        if response.policy not in policies:
            raise SpecError(f"A response is by {response.policy!r}, which is not a policy.", ("ready_made",))
        if response.finish_reason not in {*Finish, ""}:
            raise SpecError(
                f"A response has the finish_reason {response.finish_reason[:40]!r}. "
                f"Use one of {', '.join(Finish)}, or leave it out.",
                ("ready_made",),
            )
        if not 0 <= response.task < len(spec.tasks):
            raise SpecError(
                f"A response is to task {response.task + 1}, which is not there.", ("ready_made",)
            )
        answered[response.policy].add(response.task)
    for first, second in itertools.combinations(policies, 2):
        if not answered[first] & answered[second]:
            raise SpecError(
                f"{first!r} and {second!r} have no task in common, so they cannot be compared. "
                "Give responses of both to the same tasks (dozens of tasks, for a useful answer), "
                "or leave one of them out.",
                ("ready_made",),
            )


def policies_of(spec: ExperimentSpec) -> list[str]:
    """The names by which responses name the policies, by index."""
    levels = {factor.name: list(factor.levels) for factor in spec.factors}
    named = [*map(name_of, combinations(levels, spec.settings.get("excluded", ())))]
    if len(set(named)) < len(named):
        raise SpecError("Two policies read alike. Name a level without “ · ”.", ("factors",))
    return named


def ready_made_responses(
    spec: ExperimentSpec, policies: Sequence[Policy], tasks: Sequence[Task]
) -> Iterator[Response]:
    """The rows of the responses, as if they had been generated."""
    places = dict(zip(policies_of(spec), policies, strict=False)) if spec.ready_made else {}
    now = clock.now()
    for number, each in enumerate(spec.ready_made):
        yield Response(
            policy=places[each.policy],
            task=tasks[each.task],
            seed=number,
            state=Response.State.DONE,
            text=each.response,
            thinking=each.thinking,
            finish_reason=each.finish_reason,
            created_at=now,
            done_at=now,
        )
