"""The messages and settings of a policy, and the same as a request to send elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.domain.conversations import ASSISTANT, SYSTEM, USER, chat
from engine.domain.levels import Composition
from engine.domain.profiles import Provider, takes_of
from engine.domain.targets import Target
from engine.generation.remote.requests import prepare
from engine.generation.responses import composition_of, request_for
from engine.models import Experiment, Factor, Level, Policy, Task
from engine.selectors.policies import model_that_wrote, policy_at

# Stands for a task in a request to send elsewhere.
TASK = "{{task}}"
_TITLES = {SYSTEM: "System prompt", USER: "Message of the user", ASSISTANT: "Message of the model"}


@dataclass(frozen=True)
class Asked:
    """The messages and settings that a policy sends to its model.

    Attributes
    ----------
    user
        The message of the user, with ``TASK`` for the task.
    settings
        Terms and values of the sampling.
    model
        The model that writes; empty if nobody named one and nothing has been written.
    request
        The body of a call of OpenAI's chat protocol, as JSON.
    """

    composition: Composition
    user: str
    settings: list[tuple[str, str]]
    model: str
    request: str


def asked(policy: Policy) -> Asked | None:
    """The messages and settings of a policy; ``None`` where its responses were written elsewhere."""
    wrote = model_that_wrote(policy)
    if policy.experiment.responses == Experiment.Responses.IMPORTED or (
        not wrote and _is_known_by_name(policy)
    ):
        return None
    composition = composition_of(policy)
    model = composition.model or wrote or policy.experiment.model
    request = request_for(composition, key=0, task=Task(prompt=TASK), seed=0)
    plain = Target(0, model, Provider.COMPATIBLE, model, "", takes_of(Provider.COMPATIBLE, model))
    body = prepare(plain, request).body
    return Asked(
        composition=composition,
        user=composition.messages(chat(TASK))[-1].content,
        settings=sampling_said(composition),
        model=model,
        request=json.dumps(body, indent=2, ensure_ascii=False),
    )


def _is_known_by_name(policy: Policy) -> bool:
    """True for a policy of past votes that has nothing but a name: a default is no setting of its own.

    The votes' import makes a level of that name, with a model of the same.
    """
    return policy.experiment.past_votes > 0 and all(
        level.factor.kind == Factor.Kind.MODEL and level.value.get("name") == level.name
        for level in policy.levels.all()
    )


def winner_asked(experiment: Experiment) -> Asked | None:
    """The messages and settings of the winner; ``None`` without one, or where it wrote elsewhere."""
    winner = experiment.winner and policy_at(experiment, experiment.winner.index, composable=True)
    return asked(winner) if winner else None


def messages_for(policy: Policy, task: Task) -> list[tuple[str, str]]:
    """The messages that a policy sends for a task, each with its title; none where the response was written
    elsewhere.
    """
    if policy.experiment.responses == Experiment.Responses.IMPORTED:
        return []
    messages = composition_of(policy).filled(task.variables).messages(task.turns)
    return [(_TITLES[message.role], message.content) for message in messages]


def level_said(level: Level) -> list[tuple[str, str]]:
    """Terms and values of a level, those that are set."""
    return [
        (key.replace("_", " ").capitalize(), ", ".join(value) if isinstance(value, list) else str(value))
        for key, value in level.value.items()
        if value not in ("", [])
    ]


def sampling_said(composition: Composition) -> list[tuple[str, str]]:
    """Terms and values of the sampling, without those that are off."""
    sampling = composition.sampling
    said = []
    if sampling.temperature is not None:
        said.append(("Temperature", f"{sampling.temperature:g}"))
    if sampling.top_p is not None:
        said.append(("Top p", f"{sampling.top_p:g}"))
    if sampling.top_k is not None:
        said.append(("Top k", f"{sampling.top_k:,}"))
    if sampling.max_tokens is not None:
        said.append(("Maximum tokens", f"{sampling.max_tokens:,}"))
    if sampling.stop:
        said.append(("Stops at", ", ".join(map(repr, sampling.stop))))
    return said
