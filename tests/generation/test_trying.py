"""The test of a connection: what it finds about a model that refuses settings, and about one that fails."""

import asyncio

import pytest

from engine.domain.profiles import Provider
from engine.generation.base import GenerationFailure, GenerationResult
from engine.generation.remote.connection_test import _ask, _differences
from tests.generation.chat_server import completion, error, serve
from tests.servers import BEHAVIOURS, refusing, serving, target_at


@pytest.fixture(autouse=True)
def on_this_machine(settings):
    settings.ALLOW_PRIVATE_CONNECTIONS = True


def found(model: str, provider: Provider = Provider.COMPATIBLE, **more):
    with serving() as server:
        target = target_at(server.url, model, provider, **more)
        usages = []
        outcome, asked = asyncio.run(_ask(target, usages))
    assert len(usages) == len(server.asked), "each request is counted"
    return outcome, _differences(target.takes, asked.takes), len(server.asked)


def test_a_model_that_takes_everything_is_asked_once(monkeypatch):
    monkeypatch.setitem(BEHAVIOURS, "free", lambda asked: completion("fine"))
    outcome, proposed, asked = found("free")
    assert isinstance(outcome, GenerationResult)
    assert (proposed, asked) == ({}, 1)


@pytest.mark.parametrize(
    ("refused", "proposed"),
    [
        (("max_tokens",), {"max_tokens": "max_completion_tokens"}),
        (("temperature", "top_p", "seed"), {"temperature": "", "top_p": "", "seed": ""}),
        (("top_k",), {"top_k": ""}),
        (("max_tokens", "max_completion_tokens"), {"max_tokens": "max_completion_tokens"}),
    ],
)
def test_what_the_server_names_is_left_out(refused, proposed, monkeypatch):
    monkeypatch.setitem(BEHAVIOURS, "strict", refusing(*refused))
    outcome, differs, _ = found("strict")
    if len(refused) == 2:
        assert isinstance(outcome, GenerationFailure), "it takes neither name of the limit"
        return
    assert isinstance(outcome, GenerationResult)
    assert differs == proposed


def test_what_the_server_does_not_name_is_found_alone(monkeypatch):
    monkeypatch.setitem(
        BEHAVIOURS,
        "silent",
        lambda asked: error(400, "Bad request.") if "stop" in asked else completion("ok"),
    )
    outcome, proposed, _ = found("silent")
    assert isinstance(outcome, GenerationResult)
    assert proposed == {"stop": ""}


def test_a_server_that_breaks_when_a_system_message_comes_gets_none():
    def respond(asked):
        if asked["messages"][0]["role"] == "system":
            return error(500, "")
        return completion("fine")

    with serve(respond) as server:
        target = target_at(server.url, "gemma")
        outcome, asked = asyncio.run(_ask(target, []))
    assert isinstance(outcome, GenerationResult)
    assert _differences(target.takes, asked.takes) == {"system": False}


def test_strict_imitations_are_answered_by_the_rules_of_their_vendors():
    for model, provider in (
        ("mistral", Provider.MISTRAL),
        ("gemini", Provider.GOOGLE),
        ("claude", Provider.ANTHROPIC),
    ):
        outcome, proposed, _ = found(model, provider)
        assert isinstance(outcome, GenerationResult), (model, outcome)
        assert proposed == {}, model


def test_a_wrong_key_is_told_at_once():
    outcome, proposed, asked = found("echo401", key="sk-secret-of-this-test-000")
    assert isinstance(outcome, GenerationFailure)
    assert (proposed, asked) == ({}, 1)
