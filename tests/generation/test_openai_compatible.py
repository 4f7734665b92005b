"""The backend for OpenAI-compatible servers, against real servers on this machine."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine.generation.openai_compatible import Endpoint, OpenAICompatibleBackend

from engine.generation.base import BackendError, GenerationFailure, GenerationResult
from tests.generation.chat_server import MODEL, ChatServer, Reply, completion, embedded_model, error, serve
from tests.generation.contract import BackendContract, StreamContract, answer, ask

Respond = Callable[[dict[str, Any]], Reply]


@pytest.fixture(scope="module")
def backend() -> Iterator[OpenAICompatibleBackend]:
    with serve(embedded_model()) as server:
        backend = OpenAICompatibleBackend(Endpoint(server.url, MODEL))
        yield backend
        backend.close()


class TestContract(BackendContract, StreamContract):
    pass


@pytest.fixture
def against(request: pytest.FixtureRequest) -> Callable[..., tuple[OpenAICompatibleBackend, ChatServer]]:
    """Start a server that answers as told, and a backend that asks it."""

    def start(respond: Respond, **endpoint: Any) -> tuple[OpenAICompatibleBackend, ChatServer]:
        running = serve(respond)
        server = running.__enter__()
        backend = OpenAICompatibleBackend(Endpoint(server.url, MODEL, **endpoint))
        request.addfinalizer(lambda: running.__exit__(None, None, None))
        request.addfinalizer(backend.close)
        return backend, server

    return start


def asked_for(asked: dict[str, Any]) -> str:
    return asked["messages"][-1]["content"]


def first_fail(times: int, failure: Reply) -> Respond:
    """Fail each request so many times, then answer it."""
    tries: Counter[str] = Counter()

    def respond(asked: dict[str, Any]) -> Reply:
        tries[asked_for(asked)] += 1
        return failure if tries[asked_for(asked)] <= times else completion("fine")

    return respond


class TestWhatIsSent:
    def test_everything_a_request_has(self, against):
        backend, server = against(lambda asked: completion("fine"), api_key="s3cret")
        answer(
            backend, ask("Hi", system="Be brief.", seed=7, temperature=0.3, top_p=0.9, top_k=4, stop=["."])
        )
        assert server.asked == [
            {
                "model": MODEL,
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi"},
                ],
                "temperature": 0.3,
                "top_p": 0.9,
                "top_k": 4,
                "max_tokens": 48,
                "stop": ["."],
                "seed": 7,
            }
        ]
        assert server.headers[0]["authorization"] == "Bearer s3cret"

    def test_what_a_request_has_not_is_left_out(self, against):
        backend, server = against(lambda asked: completion("fine"))
        answer(backend, ask("Hi"))
        assert not {"stop", "top_k"} & set(server.asked[0])
        assert [message["role"] for message in server.asked[0]["messages"]] == ["user"]

    def test_the_limit_on_tokens_goes_by_the_name_the_vendor_wants(self, against):
        backend, server = against(lambda asked: completion("fine"), token_limit_field="max_completion_tokens")
        answer(backend, ask("Hi"))
        assert server.asked[0]["max_completion_tokens"] == 48
        assert "max_tokens" not in server.asked[0]

    def test_a_policys_model_is_asked_for_and_named_in_the_result(self, against):
        backend, server = against(lambda asked: completion("fine"))
        assert answer(backend, ask("Hi", model="adapter-1")).model == "adapter-1"
        assert server.asked[0]["model"] == "adapter-1"

    def test_no_more_are_under_way_than_allowed(self, against):
        gate = threading.Barrier(3)

        def respond(asked: dict[str, Any]) -> Reply:
            gate.wait(timeout=120)
            return completion("fine")

        backend, server = against(respond, concurrency=3)
        assert len(list(backend.generate([ask(key=i) for i in range(12)]))) == 12
        assert server.most_at_once == 3

    def test_the_first_to_finish_is_the_first_to_come(self, against):
        slow = threading.Event()

        def respond(asked: dict[str, Any]) -> Reply:
            if asked_for(asked) == "slow":
                slow.wait(30)
            return completion("fine")

        backend, _ = against(respond)
        keys = []
        for outcome in backend.generate([ask("slow", key=1), ask("fast", key=2), ask("fast", key=3)]):
            keys.append(outcome.key)
            if len(keys) == 2:
                slow.set()
        assert keys[2] == 1


class TestWhatComesBack:
    @pytest.mark.parametrize(
        ("message", "text"),
        [
            ({"content": None}, ""),
            ({"content": None, "refusal": "I can't."}, "I can't."),
            ({"content": "  kept as it is\n"}, "  kept as it is\n"),
        ],
    )
    def test_text_may_be_missing_or_elsewhere(self, against, message, text):
        backend, _ = against(lambda asked: completion("", message={"role": "assistant", **message}))
        assert answer(backend, ask()).text == text

    def test_a_server_may_not_count_tokens(self, against):
        def respond(asked: dict[str, Any]) -> Reply:
            reply = completion("fine")
            del reply.body["usage"]
            return reply

        backend, _ = against(respond)
        assert answer(backend, ask()).completion_tokens == 0


class TestRetries:
    @pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
    def test_what_may_pass_is_tried_again(self, against, status):
        backend, server = against(first_fail(1, error(status, "Not now", retry_after_ms="1")))
        assert answer(backend, ask()).text == "fine"
        assert len(server.asked) == 2

    def test_as_long_as_the_server_says_nobody_asks_again(self, against, monkeypatch):
        waits = []
        backend, _ = against(first_fail(1, error(429, "Slow down", Retry_After="17")))
        client = backend._client

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        monkeypatch.setattr("openai._base_client.anyio.sleep", sleep)
        assert answer(backend, ask()).text == "fine"
        assert waits == [17]
        assert client.max_retries == 4

    @pytest.mark.parametrize("status", [429, 500])
    def test_after_its_tries_the_request_fails_alone_and_may_come_again(self, against, status):
        def respond(asked: dict[str, Any]) -> Reply:
            bad = asked_for(asked) == "bad"
            return error(status, "Overloaded", retry_after_ms="1") if bad else completion("fine")

        backend, server = against(respond, retries=2)
        outcomes = {o.key: o for o in backend.generate([ask("bad", key=1), ask("good", key=2)])}
        assert outcomes[1] == GenerationFailure(1, outcomes[1].reason, retryable=True)
        assert f"{status}: " in outcomes[1].reason
        assert "Overloaded" in outcomes[1].reason
        assert isinstance(outcomes[2], GenerationResult)
        assert sum(asked_for(asked) == "bad" for asked in server.asked) == 3

    def test_a_server_that_hangs_is_not_waited_for_for_ever(self, against):
        def respond(asked: dict[str, Any]) -> Reply:
            if asked_for(asked) == "hang":
                server.closing.wait(30)
            return completion("fine")

        backend, server = against(respond, timeout_seconds=0.3, retries=0)
        outcomes = {o.key: o for o in backend.generate([ask("hang", key=1), ask("good", key=2)])}
        assert outcomes[1] == GenerationFailure(1, "No answer within 0.3 s.", retryable=True)
        assert isinstance(outcomes[2], GenerationResult)
        server.closing.set()

    def test_an_answer_that_breaks_off_half_way_is_tried_again(self, against):
        half = completion("x" * 1000)
        half.missing = 500
        backend, server = against(first_fail(1, half), retries=1)
        assert answer(backend, ask()).text == "fine"
        assert len(server.asked) == 2
        backend, _ = against(
            lambda asked: half if asked_for(asked) == "bad" else completion("fine"), retries=0
        )
        outcomes = {o.key: o for o in backend.generate([ask("bad", key=1), ask("good", key=2)])}
        assert isinstance(outcomes[1], GenerationFailure)
        assert outcomes[1].retryable
        assert isinstance(outcomes[2], GenerationResult)


class TestNonsense:
    @pytest.mark.parametrize(
        "reply",
        [
            Reply(b'{"id": "1", "choices": [{"mess'),
            Reply(b"<html>It works!</html>", content_type="text/html"),
            Reply(b"", content_type="text/plain"),
            Reply({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": []}),
            Reply({"detail": "what?"}),
        ],
        ids=["cut off", "a web page", "nothing", "no choices", "something else"],
    )
    def test_an_answer_that_is_none_fails_its_request_only(self, against, reply):
        backend, _ = against(
            lambda asked: reply if asked_for(asked) == "bad" else completion("fine"), retries=0
        )
        outcomes = {o.key: o for o in backend.generate([ask("bad", key=1), ask("good", key=2)])}
        assert isinstance(outcomes[1], GenerationFailure)
        assert outcomes[1].retryable
        assert "server's answer" in outcomes[1].reason
        assert isinstance(outcomes[2], GenerationResult)

    @pytest.mark.parametrize("status", [400, 413, 422])
    def test_a_request_that_the_server_does_not_want_fails_for_good(self, against, status):
        backend, server = against(lambda asked: error(status, "top_k is unknown here"))
        (outcome,) = backend.generate([ask(key=1)])
        assert outcome == GenerationFailure(1, outcome.reason, retryable=False)
        assert "top_k is unknown here" in outcome.reason
        assert len(server.asked) == 1


class TestOutOfOrder:
    def test_a_server_that_cannot_be_reached_is_said_with_the_setting_to_look_at(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        backend = OpenAICompatibleBackend(Endpoint(f"http://127.0.0.1:{port}/v1", MODEL, retries=0))
        with pytest.raises(BackendError, match=r"cannot be reached.*OPENAI_BASE_URL"):
            list(backend.generate([ask()]))
        backend.close()

    @pytest.mark.parametrize(
        ("reply", "advice"),
        [
            (error(401, "Wrong key"), r"refuses access: Wrong key\. Is OPENAI_API_KEY right\?"),
            (error(403, "Not you."), r"refuses access: Not you\. Is OPENAI_API_KEY right\?"),
            (error(404, "No such model"), "GENERATION_MODEL"),
            (error(429, "Pay first", code="insufficient_quota"), "no quota left"),
        ],
    )
    def test_what_is_wrong_for_everybody_is_the_backends_error(self, against, reply, advice):
        backend, _ = against(lambda asked: reply, retries=0)
        with pytest.raises(BackendError, match=advice):
            list(backend.generate([ask(key=i) for i in range(40)]))

    def test_what_was_answered_before_stays_answered(self, against):
        def respond(asked: dict[str, Any]) -> Reply:
            return error(401, "Wrong key") if asked_for(asked) == "late" else completion("fine")

        backend, _ = against(respond, concurrency=1)
        outcomes = backend.generate([ask(key=1), ask("late", key=2)])
        assert next(outcomes).key == 1
        with pytest.raises(BackendError):
            next(outcomes)

    def test_the_key_is_in_no_message(self):
        assert "s3cret" not in repr(Endpoint("http://x", MODEL, api_key="s3cret"))
