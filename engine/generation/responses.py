"""Writes one response to a task: the requests to the backend, and the checks by guardrails."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from engine.domain.conversations import chat
from engine.domain.leaks import find_leak
from engine.domain.levels import Composition, Guardrail, compose, parse_level
from engine.domain.replies import Fault, Finish
from engine.domain.texts import is_blank, storable
from engine.generation.base import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    SamplingParams,
    unanswerable,
)
from engine.models import Charge, Connection, Policy, Response, Task
from engine.services.charges import Spent
from engine.services.generation import MOST_FAULTS, Failed, Written

# A verdict is a word or a sentence, and should be the same every time. Some models think before it.
_VERDICT = SamplingParams(temperature=0.0, max_tokens=1000)

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
        experiment_id=task.experiment_id,
    )


class ResponseInProgress:
    """A response that is being written, from a policy's composition with its variables still to be filled.

    Patterns check the task, then guard models do; then the policy's model writes, and patterns and guard
    models check the text. The first objection ends it with the refusal. A guard without a verdict makes it no
    answer: no text passes unchecked.
    """

    def __init__(
        self,
        response: Response,
        composition: Composition,
        connections: Mapping[str, Connection],
        *,
        thinking_is_shown: bool,
    ) -> None:
        """``connections``: by name. ``thinking_is_shown``: guards read it too."""
        self._thinking_is_shown = thinking_is_shown
        self._response = response
        # A response may quote what fills the variables, as it is the task's: only the rest can leak.
        self._instructions = [composition.system, composition.suffix]
        self._unfilled = composition
        self._connections = connections
        self._asked: Guardrail | None = None
        self._written: Written | None = None
        self._seconds = 0.0

    def asked_model(self, usual_model: str) -> str:
        """The name of the model that is asked now."""
        return self._model or usual_model

    def spent(self, outcome: Outcome, usual_model: str) -> Spent:
        """The backend's answer as a charge, before :meth:`proceed`."""
        experiment_id: int | None = self._response.policy.experiment_id
        if self._response.trial is not None:
            purpose = Charge.Purpose.TRIAL
            experiment_id = self._response.trial.experiment_id
        else:
            purpose = Charge.Purpose.RESPONSE if self._asked is None else Charge.Purpose.GUARD
        return Spent(
            model=self.asked_model(usual_model),
            usage=outcome.usage,
            purpose=purpose,
            experiment_id=experiment_id,
            policy_id=self._response.policy_id,
            response_id=self._response.pk,
        )

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
        if isinstance(outcome, GenerationFailure) and outcome.fault == Fault.SERVER:
            outcome = self._if_ever_answered(outcome)
        if isinstance(outcome, GenerationFailure):
            reason = storable(outcome.reason)
            if self._asked is not None:
                reason = f"The guard model did not answer: {reason}"
            return Failed(outcome.key, reason=reason, fault=outcome.fault, said=storable(outcome.said))
        self._seconds += outcome.latency_seconds
        if self._asked is None:
            self._written = self._write(outcome, usual_model)
            if self._written.guardrail or is_blank(self._shown(self._written)):
                return self._finished(self._written)
            self._guards = deque(self._composition.guards_of("output"))
            return self._next()
        # A cut verdict may object too, and a filter that removes it is an objection.
        if self._asked.objects(outcome.text) or outcome.finish_reason in {Finish.FILTERED, Finish.REFUSED}:
            return self._refused(
                self._asked.refusal,
                Response.Block.GUARD_INPUT if self._written is None else Response.Block.GUARD_OUTPUT,
            )
        if outcome.finish_reason != Finish.STOP or is_blank(outcome.text):
            return self._unchecked(outcome)
        return self._next()

    def _if_ever_answered(self, failure: GenerationFailure) -> Outcome:
        """No answer where the server has broken on this request again and again, and answered others."""
        if self._response.faults + 1 < MOST_FAULTS:
            return failure
        reason = (
            f"{failure.reason} It did so in {MOST_FAULTS} rounds of tries, and answered others meanwhile."
        )
        return replace(unanswerable(failure.key, reason, said=failure.said), model=self._model)

    @property
    def _model(self) -> str:
        own = self._composition.model
        return own if self._asked is None else self._asked.guard_model or own

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
                    else f"Request:\n{task.prompt}\n\nResponse:\n{self._shown(self._written)}",
                    system=self._asked.guard_instruction,
                ),
                sampling=_VERDICT,
                seed=seed,
                model=self._model,
                experiment_id=task.experiment_id,
            )
        if self._written is None:
            return request_for(self._composition, key=key, task=task, seed=seed)
        return self._finished(self._written)

    def _shown(self, reply: Written | GenerationResult) -> str:
        """What annotators will see of a reply."""
        thinking = reply.thinking if self._thinking_is_shown else ""
        return "\n\n".join(filter(None, (thinking, reply.text)))

    def _write(self, result: GenerationResult, usual_model: str) -> Written:
        text = storable(result.text)
        shown = self._shown(result)
        refusal = None if is_blank(shown) else self._composition.refusal_for_output(storable(shown))
        model = result.model or usual_model
        connection = self._connections.get(model)
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
            # A text that a guardrail has taken away is not shown by another way either.
            thinking=storable(result.thinking) if refusal is None else "",
            refusal=storable(result.refusal),
            marks=[storable(mark) for mark in result.marks],
            served_model=storable(result.served_model)[:200],
            connection_id=None if connection is None else connection.pk,
            cached_tokens=result.cached_tokens,
            thinking_tokens=result.thinking_tokens,
            failure_reason=storable(result.reason),
            said=storable(result.said),
        )

    def _finished(self, written: Written) -> Written:
        return replace(written, latency_seconds=self._seconds)

    def _refused(self, refusal: str, guardrail: str) -> Written:
        return self._finished(
            replace(self._unasked(), text=refusal, guardrail=guardrail, finish_reason=Finish.STOP)
        )

    def _unchecked(self, verdict: GenerationResult) -> Written:
        """No answer, as the guard read it and came to no verdict."""
        why = storable(verdict.reason)
        if verdict.finish_reason == Finish.LENGTH:
            why = f"it was cut at {_VERDICT.max_tokens} tokens"
        return self._finished(
            replace(
                self._unasked(),
                text="",
                finish_reason=Finish.ERROR,
                failure_reason=f"The guard model gave no verdict: {why or 'its answer was empty'}.",
                said=storable(verdict.said),
            )
        )

    def _unasked(self) -> Written:
        """The reply so far, without its thinking; the model may not have been asked at all."""
        if self._written is not None:
            return replace(self._written, thinking="")
        return Written(
            response_id=self._response.pk,
            text="",
            model="",
            prompt_tokens=0,
            completion_tokens=0,
            finish_reason=Finish.STOP,
            latency_seconds=0.0,
        )
