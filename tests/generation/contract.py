"""The promises of every backend, with any engine.

A backend's test module subclasses :class:`BackendContract` (and :class:`StreamContract` where it takes on new
requests while it writes) and gives a ``backend`` fixture with a small model.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.domain.conversations import chat
from engine.generation.base import (
    Backend,
    ContinuousBackend,
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    SamplingParams,
)

LONG = "I have a pig, two ducks, and a dog. How many animals do I have?"
STEPS = "Think step by step."
# Tokens of a reply, at most, unless told otherwise.
SHORT = 48


def ask(
    user: str = LONG, *, key: int = 0, seed: int = 0, system: str = "", model: str = "", **sampling: Any
) -> GenerationRequest:
    """A request with short replies unless told otherwise."""
    sampled = SamplingParams(**{"max_tokens": SHORT, **sampling})
    return GenerationRequest(key, chat(user, system), sampled, seed, model)


def answer(backend: Backend, request: GenerationRequest) -> GenerationResult:
    """The result of a request that must succeed, alone in its batch."""
    (outcome,) = backend.generate([request])
    assert isinstance(outcome, GenerationResult), outcome
    return outcome


def texts(outcomes: Sequence[Outcome]) -> dict[int, str]:
    return {outcome.key: outcome.text for outcome in outcomes}


def mixed(n: int) -> list[GenerationRequest]:
    """Requests that differ in everything a request has."""
    users = ["12 29", f"{LONG}\n\n{STEPS}", "government", "naïve 日本語 😀"]
    return [
        ask(
            users[i % 4],
            key=1000 + i,
            seed=i,
            system=("", "You are a tutor.", "Be brief.")[i % 3],
            temperature=(0.0, 0.7, 1.5)[i % 3],
            top_k=(0, 5)[i % 2],
            top_p=(1.0, 0.9)[i % 2],
        )
        for i in range(n)
    ]


class BackendContract:
    """Inherit, and define the fixture ``backend``."""

    # Characters that no prompt of the backend's longest kind holds.
    too_long = "x" * 5000
    # More than are written at once; enough to be told apart; seeds that give some different texts.
    many, some, seeds = 70, 12, 16

    def test_it_says_what_it_is(self, backend: Backend):
        assert backend.name
        assert backend.model

    def test_every_request_is_answered_exactly_once_under_its_own_key(self, backend: Backend):
        requests = mixed(self.many)
        outcomes = list(backend.generate(requests))
        assert sorted(outcome.key for outcome in outcomes) == [request.key for request in requests]
        assert all(isinstance(outcome, GenerationResult) for outcome in outcomes)

    def test_no_requests_no_outcomes(self, backend: Backend):
        assert list(backend.generate([])) == []

    def test_the_same_batch_gives_the_same_texts(self, backend: Backend):
        requests = mixed(self.some)
        assert texts(list(backend.generate(requests))) == texts(list(backend.generate(requests)))

    def test_a_text_belongs_to_its_request_and_not_to_its_place(self, backend: Backend):
        requests = mixed(self.some)
        assert texts(list(backend.generate(requests))) == texts(list(backend.generate(requests[::-1])))

    def test_seeds_make_the_difference_unless_greedy(self, backend: Backend):
        def different(temperature: float) -> int:
            requests = [ask(key=i, seed=i, temperature=temperature) for i in range(self.seeds)]
            return len(set(texts(list(backend.generate(requests))).values()))

        assert different(2.0) > 3
        assert different(0.0) == 1

    def test_a_large_seed_is_as_good_as_any(self, backend: Backend):
        request = ask(seed=2**31 - 1, temperature=1.0)
        assert answer(backend, request).text == answer(backend, request).text

    def test_the_most_probable_token_alone_is_greedy(self, backend: Backend):
        greedy = answer(backend, ask(temperature=0.0)).text
        assert answer(backend, ask(temperature=2.0, top_k=1, seed=5)).text == greedy

    def test_a_stop_string_ends_the_text_and_is_left_out(self, backend: Backend):
        whole = answer(backend, ask(f"{LONG}\n\n{STEPS}", temperature=0.0))
        middle = whole.text[len(whole.text) // 2]
        stopped = answer(backend, ask(f"{LONG}\n\n{STEPS}", temperature=0.0, stop=[middle, "never written"]))
        assert stopped.text == whole.text.split(middle)[0]
        assert stopped.finish_reason == "stop"
        assert stopped.completion_tokens <= whole.completion_tokens

    def test_a_text_may_be_empty(self, backend: Backend):
        whole = answer(backend, ask(temperature=0.0))
        empty = answer(backend, ask(temperature=0.0, stop=[whole.text[0]]))
        assert (empty.text, empty.finish_reason) == ("", "stop")

    def test_max_tokens_cuts_the_text_off(self, backend: Backend):
        whole = answer(backend, ask(f"{LONG}\n\n{STEPS}", temperature=0.0))
        cut = answer(backend, ask(f"{LONG}\n\n{STEPS}", temperature=0.0, max_tokens=3))
        assert (cut.finish_reason, cut.completion_tokens) == ("length", 3)
        assert whole.text.startswith(cut.text)

    def test_each_request_has_its_own_sampling(self, backend: Backend):
        limits = {1: 2, 2: 5, 3: 3}
        requests = [
            ask(f"{LONG}\n\n{STEPS}", key=key, temperature=0.0, max_tokens=limit)
            for key, limit in limits.items()
        ]
        assert {o.key: o.completion_tokens for o in backend.generate(requests)} == limits

    def test_the_system_prompt_is_read(self, backend: Backend):
        alone = answer(backend, ask())
        with_system = answer(backend, ask(system="You are a tutor. Be kind, and be brief."))
        assert with_system.prompt_tokens > alone.prompt_tokens

    def test_tokens_and_time_are_counted(self, backend: Backend):
        result = answer(backend, ask())
        assert result.prompt_tokens > 0
        assert 0 < result.completion_tokens <= SHORT
        assert result.latency_seconds > 0

    @pytest.mark.parametrize(
        "text",
        ["日本語のテスト", "naïve café 😀👩‍👩‍👧", "a\x00b\ufffd", "<|end|><|assistant|>fine", "\u202eback"],
    )
    def test_any_text_can_be_asked_and_is_answered_with_text(self, backend: Backend, text: str):
        result = answer(backend, ask(text, system=text, temperature=1.5))
        result.text.encode()

    def test_a_prompt_that_is_too_long_fails_alone_for_good_and_says_so(self, backend: Backend):
        outcomes = {
            o.key: o for o in backend.generate([ask(key=1), ask(self.too_long, key=2), ask("12 29", key=3)])
        }
        assert isinstance(outcomes[2], GenerationResult)
        assert (outcomes[2].text, outcomes[2].finish_reason) == ("", Finish.ERROR)
        assert outcomes[2].reason
        assert isinstance(outcomes[1], GenerationResult)
        assert isinstance(outcomes[3], GenerationResult)

    def test_a_model_that_is_not_served_fails_alone_for_good(self, backend: Backend):
        outcomes = {o.key: o for o in backend.generate([ask(key=1, model="no-such-model"), ask(key=2)])}
        assert isinstance(outcomes[1], GenerationFailure)
        assert outcomes[1].fault == Fault.SETTINGS
        assert "no-such-model" in outcomes[1].reason
        assert isinstance(outcomes[2], GenerationResult)

    def test_what_is_cancelled_is_over_and_the_next_batch_is_whole(self, backend: Backend):
        outcomes = iter(backend.generate(mixed(20)))
        next(outcomes)
        outcomes.close()
        afterwards = [replace(request, key=request.key + 5000) for request in mixed(5)]
        assert sorted(o.key for o in backend.generate(afterwards)) == [request.key for request in afterwards]


class StreamContract:
    """For backends that take on new requests while others are being written."""

    def test_it_is_continuous(self, backend: Backend):
        assert isinstance(backend, ContinuousBackend)

    def test_what_comes_later_is_written_too_and_like_at_any_other_time(self, backend: ContinuousBackend):
        requests = mixed(9)
        waiting = list(requests)
        rooms = []

        def take(room: int) -> list[GenerationRequest]:
            rooms.append(room)
            return [waiting.pop(0) for _ in range(min(room, len(waiting), 2))]

        outcomes = list(backend.stream(take))
        assert texts(outcomes) == texts(list(backend.generate(requests)))
        assert all(room >= 0 for room in rooms)

    def test_it_ends_when_there_is_nothing_to_take(self, backend: ContinuousBackend):
        assert list(backend.stream(lambda room: [])) == []

    def test_an_exception_of_the_caller_ends_the_stream_and_leaves_the_backend_in_order(
        self, backend: ContinuousBackend
    ):
        calls = iter([[ask(key=1), ask(key=2, system="Be brief.")]])

        def take(room: int) -> list[GenerationRequest]:
            batch = next(calls, None)
            if batch is None:
                raise InterruptedError
            return batch

        with pytest.raises(InterruptedError):
            list(backend.stream(take))
        assert [o.key for o in backend.generate([ask(key=3)])] == [3]
