"""The backend that the settings name."""

import importlib.util
from collections.abc import Iterator

import pytest

from engine.generation import registry
from engine.generation.base import BackendError
from engine.selectors.offered_models import Offer
from tests.starting import settings_with


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    registry.backend.cache_clear()
    yield
    registry.backend.cache_clear()


def test_a_process_has_one_backend(settings):
    settings.GENERATION_BACKEND = "smollm2"
    assert registry.backend().name == "smollm2"
    assert registry.backend() is registry.backend()


def test_the_remote_one_takes_the_connection_of_the_environment_for_its_usual_one(settings):
    settings.GENERATION_BACKEND = "remote"
    settings.OPENAI_MODEL = "llama"
    backend = registry.backend()
    assert (backend.name, backend.model) == ("remote", "llama")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_without_a_model_it_says_what_to_set(settings):
    settings.GENERATION_BACKEND = "vllm"
    settings.GENERATION_MODEL = ""
    with pytest.raises(BackendError, match="GENERATION_MODEL"):
        registry.backend()


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_it_says_what_to_install(settings):
    settings.GENERATION_BACKEND = "vllm"
    with pytest.raises(BackendError, match=r"requirements-gpu\.txt"):
        registry.backend()


def test_a_name_that_nothing_answers_to(settings):
    settings.GENERATION_BACKEND = "telepathy"
    with pytest.raises(ValueError, match="telepathy"):
        registry.backend()


@pytest.mark.parametrize(
    ("backend", "offer"),
    [
        ("smollm2", Offer("smollm2", "SmolLM2-135M-Instruct")),
        ("vllm", Offer("vllm", "llama", others=("polite", "terse"))),
        ("remote", Offer("remote", "llama")),
    ],
)
def test_what_a_worker_offers_follows_from_the_settings_alone(settings, backend, offer):
    settings.GENERATION_BACKEND = backend
    settings.GENERATION_MODEL = settings.OPENAI_MODEL = "llama"
    settings.GENERATION_ADAPTERS = {"polite": "/adapters/polite", "terse": "/adapters/terse"}
    assert registry.offer() == offer
    assert registry.backend.cache_info().currsize == 0
    assert Offer.from_details(registry.details()) == offer


@pytest.mark.parametrize(
    ("variables", "most"),
    [
        ({"GENERATION_BACKEND": "vllm"}, 512),
        ({"GENERATION_BACKEND": "remote"}, 256),
        ({"GENERATION_BACKEND": "vllm", "GENERATION_BATCH_MAX": "64"}, 64),
    ],
)
def test_vllm_is_offered_more_at_once_unless_told_otherwise(variables, most):
    assert settings_with(**variables)["GENERATION_BATCH_MAX"] == most


def test_details_tell_the_gpus_memory_where_the_backend_can():
    class WithGPU:
        def gpu_memory(self):
            return 3, 4

    assert registry.details(WithGPU())["gpu_memory"] == (3, 4)
    assert registry.details(registry.backend())["gpu_memory"] is None
