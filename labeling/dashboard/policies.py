"""The messages and settings of a policy, and the same as a request to send elsewhere."""

import json
from typing import Any

from engine.domain.conversations import ASSISTANT, SYSTEM, USER, chat
from engine.domain.levels import Composition
from engine.generation.remote.requests import prepare
from engine.generation.responses import composition_of, request_for
from engine.models import Experiment, Level, Policy, Task
from engine.selectors.policies import model_that_wrote, written_elsewhere
from engine.services.keys import targets_shown

# Stands for a task in a request to send elsewhere.
TASK = "{{task}}"
_TITLES = {SYSTEM: "System prompt", USER: "Message of the user", ASSISTANT: "Message of the model"}


def asked(policy: Policy) -> dict[str, Any] | None:
    """The messages and settings of a policy, its model as far as anybody named one, and the body of the
    request to its connection as JSON; ``None`` where its responses were written elsewhere.
    """
    if written_elsewhere(policy):
        return None
    composition = composition_of(policy)
    model = composition.model or model_that_wrote(policy)
    request = request_for(composition, key=0, task=Task(prompt=TASK), seed=0)
    prepared = prepare(targets_shown([model])[model], request)
    return {
        "composition": composition,
        "user": composition.messages(chat(TASK))[-1].content,
        "settings": sampling_said(composition),
        "model": model,
        "request": json.dumps(prepared.body, indent=2, ensure_ascii=False),
        "left_out": prepared.left_out,
    }


def winner_asked(experiment: Experiment) -> dict[str, Any] | None:
    """The messages and settings of the winner; ``None`` without one, or where it wrote elsewhere."""
    winner = experiment.winner and experiment.policies.composable().at(experiment.winner.index)
    return asked(winner) if winner else None


def messages_for(policy: Policy, task: Task) -> list[tuple[str, str]]:
    """The messages that a policy sends for a task, each with its title; none where the response was written
    elsewhere.
    """
    if policy.experiment.responses == Experiment.Responses.IMPORTED:
        return []
    messages = composition_of(policy).filled(task.variables).messages(task.turns)
    return [(_TITLES[message.role], message.content) for message in messages]


def level_terms(level: Level) -> list[tuple[str, str]]:
    """The settings of a level that are set: terms and values."""
    return [
        (key.replace("_", " ").capitalize(), _said(value))
        for key, value in level.value.items()
        if value not in ("", [])
    ]


def _said(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value)


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
    if sampling.reasoning:
        said.append(("Reasoning effort", sampling.reasoning))
    if sampling.reasoning_tokens is not None:
        said.append(("Maximum of thinking", f"{sampling.reasoning_tokens:,}"))
    objects = {"Response format": sampling.response_format, "Further fields": sampling.extra_body}
    for term, value in objects.items():
        if value:
            said.append((term, _said(dict(value))))
    if sampling.seed:
        said.append(("Seed", "each response has its own"))
    if composition.examples:
        said.append(("Examples", str(len(composition.examples) // 2)))
    return said
