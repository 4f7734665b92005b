"""SmolLM2 keeps the contract of all backends, with its real model."""

import httpx2
import pytest

from engine.generation import smollm2
from engine.generation.base import Fault
from tests.generation import contract
from tests.generation.contract import BackendContract, StreamContract, answer, ask

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not smollm2.installed(), reason=smollm2.INSTALL)]


@pytest.fixture(autouse=True)
def _short_replies(monkeypatch):
    monkeypatch.setattr(contract, "SHORT", 5)


@pytest.fixture(scope="module")
def backend() -> smollm2.SmolLM2Backend:
    return smollm2.SmolLM2Backend()


class TestSmolLM2(BackendContract, StreamContract):
    too_long = "never " * 2500
    # It writes a hundred tokens a second, not thousands as the others do.
    many, some, seeds = 9, 4, 6


def test_it_does_as_it_is_told(backend):
    task = "How do I make a good cup of tea?"
    steps = answer(
        backend, ask(f"{task}\n\nAnswer with a numbered list of three short steps.", temperature=0.3)
    )
    sentence = answer(backend, ask(f"{task}\n\nAnswer in one short sentence.", temperature=0.3))
    assert steps.text.startswith("1.")
    assert not sentence.text.startswith("1.")


def test_only_requests_for_other_models_are_all_refused(backend):
    outcomes = list(backend.generate([ask(key=key, model="gpt") for key in range(9)]))
    assert [outcome.fault for outcome in outcomes] == [Fault.SETTINGS] * 9


def test_nobody_else_may_ask_its_server(backend):
    address = f"{backend._server.listening_address}/v1/chat/completions"
    assert httpx2.post(address, json={"messages": []}).status_code == 401
