"""Writes one response to a task: the requests to the backend, and the checks by guardrails."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TypeAlias

from engine.domain.conversations import chat
from engine.domain.leaks import find_leak
from engine.domain.levels import Composition, Guardrail, compose, parse_level
from engine.domain.replies import Fault, Finish
from engine.domain.texts import storable
from engine.generation.base import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    SamplingParams,
)
from engine.models import Policy, Response, Task
from engine.services.generation import Failed, Written

# A verdict is a word or a sentence, and should be the same every time.
_VERDICT = SamplingParams(temperature=0.0, max_tokens=64)

Step: TypeAlias = GenerationRequest | Written | Failed


def composition_of(policy: Policy) -> Composition:
    """The policy's levels as one composition, in the order of its factors."""
    levels = sorted(policy.levels.all(), key=lambda level: level.factor.position)
    values = (parse_level(level.factor.kind, level.value) for level in levels)
    return compose(values, model=policy.experiment.model)


def request_for(composition: Composition, *, key: int, task: Task, seed: int) -> GenerationRequest:
    """The request for a policy's response to this task, and the task."""
    return GenerationRequest(
        key=key,
        messages=composition.messages(task.turns),
        sampling=composition.sampling,
        seed=seed,
        model=composition.model,
    )


class Making:
    """A response that is being written, from a policy's composition with its variables still to be filled.

    Patterns check the task, then guard models do; then the policy's model writes, and patterns and guard
    models check the text. The first objection ends it with the refusal. If a guard cannot be asked the
    response fails: no text passes unchecked.
    """

    def __init__(self, response: Response, composition: Composition) -> None:
        self._response = response
        # A response may quote what fills the variables, as it is the task's: only the rest can leak.
        self._instructions = [composition.system, composition.suffix]
        self._unfilled = composition
        self._asked: Guardrail | None = None
        self._written: Written | None = None
        self._seconds = 0.0

    def begin(self) -> Step:
        """The first request, or the refusal if a pattern blocks the task."""
        task = self._response.task
        try:
            self._composition = self._unfilled.filled(task.variables)
        except ValueError as error:
            return Failed(self._response.pk, reason=str(error), fault=Fault.SETTINGS)
        self._guards = deque(self._composition.guards_of("input"))
        refusal = self._composition.refusal_for_input(*(each.content for each in task.turns))
        return self._next() if refusal is None else self._refused(refusal, Response.Block.INPUT)

    def proceed(self, outcome: Outcome, usual_model: str) -> Step:
        """The next step after the backend's answer: another request, or the end."""
        if isinstance(outcome, GenerationFailure):
            reason = storable(outcome.reason)
            if self._asked is not None:
                reason = f"The guard model did not answer: {reason}"
            return Failed(outcome.key, reason=reason, fault=outcome.fault, said=outcome.said)
        self._seconds += outcome.latency_seconds
        if self._asked is None:
            self._written = self._write(outcome, usual_model)
            if self._written.guardrail:
                return self._written
            self._guards = deque(self._composition.guards_of("output"))
        elif self._asked.objects(outcome.text):
            return self._refused(
                self._asked.refusal,
                Response.Block.GUARD_INPUT if self._written is None else Response.Block.GUARD_OUTPUT,
            )
        return self._next()

    def _next(self) -> Step:
        task = self._response.task
        key, seed = self._response.pk, self._response.seed
        self._asked = self._guards.popleft() if self._guards else None
        if self._asked is not None:
            return GenerationRequest(
                key=key,
                messages=chat(
                    task.prompt
                    if self._written is None
                    else f"Request:\n{task.prompt}\n\nResponse:\n{self._written.text}",
                    system=self._asked.guard_instruction,
                ),
                sampling=_VERDICT,
                seed=seed,
                model=self._asked.guard_model or self._composition.model,
            )
        if self._written is None:
            return request_for(self._composition, key=key, task=task, seed=seed)
        return replace(self._written, latency_seconds=self._seconds)

    def _write(self, result: GenerationResult, usual_model: str) -> Written:
        text = storable(result.text)
        refusal = self._composition.refusal_for_output(text)
        model = result.model or usual_model
        return Written(
            response_id=result.key,
            text=text if refusal is None else refusal,
            model=model,
            prompt_tokens=result.prompt_tokens,
            completion_tokens=result.completion_tokens,
            finish_reason=result.finish_reason,
            latency_seconds=self._seconds,
            guardrail="" if refusal is None else Response.Block.OUTPUT,
            leak=find_leak(text, instructions=self._instructions, model=model)[:500],
        )

    def _refused(self, refusal: str, guardrail: str) -> Written:
        unasked = Written(
            response_id=self._response.pk,
            text=refusal,
            model="",
            prompt_tokens=0,
            completion_tokens=0,
            finish_reason=Finish.STOP,
            latency_seconds=0.0,
        )
        return replace(
            self._written or unasked, text=refusal, guardrail=guardrail, latency_seconds=self._seconds
        )
