"""A trial as its page shows it: responses by task, figures, and what to look at before the start."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from engine.domain.connection_targets import Target
from engine.domain.list_prices import Money
from engine.domain.policy_space import PolicyName
from engine.domain.replies import Finish
from engine.generation.base import GenerationRequest, GenerationResult
from engine.generation.remote.replies import remarks_of
from engine.generation.remote.requests import Prepared, prepare
from engine.generation.responses import composition_of, request_for
from engine.models import Experiment, Response, Task
from engine.selectors.policies import policy_names, without_prompt
from engine.selectors.pulses import pulses
from engine.selectors.spending import costs_of
from engine.selectors.trials import tried_responses
from engine.services.keys import targets_shown
from labeling.dashboard.policies import messages_for

_UNFILLED = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_TIES = "Two policies gave the same response. Equal pairs are settled as ties, and nobody sees them."
_SAME = (
    "Two policies send the same request for a task, as what differs between them is not sent. Leave one out, "
    "or choose a setting that the model takes."
)
_UNANSWERED = (
    "A response is no answer: it is empty, filtered or refused. Its reason stands in its place. "
    "Change the prompt or the model."
)
_BRACES = (
    "Braces are left over in a message, and the model is sent them as they are. Variables are filled in "
    "prompts, strategies and guardrails, not in the text of a task."
)
_LEAK = (
    "A response reveals its prompt or its model, so annotators can tell who wrote it. Ask the model in the "
    "prompt not to speak of its instructions."
)
_FAILED = "A response could not be written. Its reason stands in its place; mend that, and try again."
# Policies that a sentence names; of the others it says the number.
_NAMED = 5


# A response on the page, by its id there, and its name in a list of places.
Place = tuple[str, str]


@dataclass(frozen=True)
class Concern:
    """A reason to change the draft before its start, and the responses that give it."""

    text: str
    places: Sequence[Place] = ()


@dataclass(frozen=True)
class Tried:
    """One response of a trial: its policy's name, its request, the server and the cost."""

    response: Response
    name: PolicyName
    request: GenerationRequest
    target: Target
    cost: Money

    @property
    def anchor(self) -> str:
        """The id of its place on the page."""
        return f"tried-{self.response.pk}"

    @property
    def is_done(self) -> bool:
        return self.response.state == Response.State.DONE

    @property
    def has_failed(self) -> bool:
        return self.response.state == Response.State.FAILED

    @property
    def pending(self) -> bool:
        return not (self.is_done or self.has_failed)

    @property
    def tokens(self) -> int:
        """Number of tokens read and written."""
        return (self.response.prompt_tokens or 0) + (self.response.completion_tokens or 0)

    @cached_property
    def messages(self) -> list[tuple[str, str]]:
        """The messages that the policy sends for the task, each with its title."""
        return messages_for(self.response.policy, self.response.task)

    @cached_property
    def prepared(self) -> Prepared:
        """The request as its connection is sent it, but for the seed, which each response has of its own."""
        return prepare(self.target, replace(self.request, seed=0))

    @cached_property
    def remarks(self) -> list[str]:
        """Reasons to look at the reply itself, as sentences."""
        row = self.response
        if not self.is_done or row.guardrail or not row.finish_reason:
            return []
        result = GenerationResult(
            key=row.pk,
            text=row.text,
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            finish_reason=Finish(row.finish_reason),
            latency_seconds=row.latency_seconds or 0.0,
            thinking=row.thinking,
            marks=tuple(row.marks),
        )
        return remarks_of(result, self.request)

    @property
    def place(self) -> Place:
        return self.anchor, f"{self.name.name}, task {self.response.task.position + 1}"


def page_of(experiment: Experiment, *, budget_concern: str) -> dict[str, Any] | None:
    """The trial of a draft: its responses by task and by policy, figures, and the state of the workers;
    ``None`` where there is none.

    ``budget_concern``: the warning of a budget that will not do; empty where it will.
    """
    responses = tried_responses(experiment)
    if not responses:
        return None
    names = policy_names(experiment)
    requests = {each.pk: _request(each) for each in responses}
    targets = targets_shown({request.model for request in requests.values()})
    costs = costs_of([each.pk for each in responses])
    rows = [
        (
            task,
            [
                Tried(
                    each,
                    names[each.policy.index],
                    request,
                    targets[request.model],
                    costs.get(each.pk, Money()),
                )
                for each in of_task
                for request in [requests[each.pk]]
            ],
        )
        for task, of_task in groupby(responses, key=lambda each: each.task)
    ]
    concerns = [*_without_prompt(experiment, names), *_concerns(rows)]
    if budget_concern:
        concerns.append(Concern(budget_concern))
    tried = [each for _, row in rows for each in row]
    by_policy: dict[PolicyName, list[Tried]] = defaultdict(list)
    for each in tried:
        by_policy[each.name].append(each)
    return {
        "tasks": rows,
        "by_policy": list(by_policy.items()),
        "concerns": concerns,
        "pulse": pulses([experiment])[experiment.pk],
        "n_tried": len(tried),
        "n_pending": sum(each.pending for each in tried),
        "n_done": sum(each.is_done for each in tried),
        "tokens": sum(each.tokens for each in tried),
        "cost": Money.of(amount for each in tried for amount in each.cost.items()),
    }


def _request(response: Response) -> GenerationRequest:
    composition = composition_of(response.policy).filled(response.task.variables)
    return request_for(composition, key=response.pk, task=response.task, seed=response.seed)


def _without_prompt(experiment: Experiment, names: Sequence[PolicyName]) -> Iterable[Concern]:
    if empty := without_prompt(experiment):
        named = ", ".join(f"“{names[index].name}”" for index in empty[:_NAMED])
        rest = f" and {len(empty) - _NAMED} more" if len(empty) > _NAMED else ""
        yield Concern(f"No system prompt: {named}{rest}. Write one, unless that is what you want to compare.")


def _concerns(rows: Sequence[tuple[Task, Sequence[Tried]]]) -> Iterable[Concern]:
    tried = [each for _, row in rows for each in row]
    if same := [place for _, row in rows for place in _equal(row)]:
        yield Concern(_TIES, same)
    if same := [place for _, row in rows for place in _equal_requests(row)]:
        yield Concern(_SAME, same)
    for text, holds in _CHECKS:
        if places := [each.place for each in tried if holds(each)]:
            yield Concern(text, places)
    remarked: dict[str, list[Place]] = defaultdict(list)
    for each in tried:
        for sentence in each.remarks:
            remarked[sentence].append(each.place)
    for sentence, places in remarked.items():
        yield Concern(sentence, places)


# A sentence, and the test of a response that gives reason for it.
_CHECKS: tuple[tuple[str, Callable[[Tried], bool]], ...] = (
    (_FAILED, lambda each: each.has_failed),
    (_UNANSWERED, lambda each: each.is_done and not each.response.text.strip()),
    (_LEAK, lambda each: each.is_done and bool(each.response.leak)),
    (_BRACES, lambda each: any(_UNFILLED.search(text) for _, text in each.messages)),
)


def _equal(row: Sequence[Tried]) -> Iterable[Place]:
    """The responses to one task with the same text, an empty one apart."""
    done = [each for each in row if each.is_done and each.response.text.strip()]
    return _alike(done, lambda each: each.response.digest)


def _equal_requests(row: Sequence[Tried]) -> Iterable[Place]:
    """Responses to one task from requests that differ in their seeds only."""
    return _alike(row, lambda each: (each.prepared.url, repr(each.prepared.body)))


def _alike(row: Sequence[Tried], by: Callable[[Tried], Hashable]) -> Iterable[Place]:
    found: dict[Hashable, list[Tried]] = defaultdict(list)
    for each in row:
        found[by(each)].append(each)
    for same in found.values():
        if len(same) > 1:
            names = " = ".join(each.name.name for each in same)
            yield same[0].anchor, f"{names}, task {same[0].response.task.position + 1}"
