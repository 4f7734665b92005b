"""Chooses the backend of this worker process."""

from functools import cache
from typing import Any

from django.conf import settings

from engine.generation.base import Backend, BackendError
from engine.generation.speed import Speed
from engine.models import Experiment
from engine.selectors.offered_models import Offer
from engine.selectors.rubrics import why_no_judge


@cache
def backend() -> Backend:
    """The backend named by ``GENERATION_BACKEND``, kept for the process's life; it loads its model when first
    used.

    Raises
    ------
    BackendError
        Something that the backend needs is not installed or not set; says what to do.
    """
    return _load("GENERATION")


@cache
def judge_backend() -> Backend:
    """The backend for the language model that judges: a remote worker's asks connections, others run the one
    named by ``JUDGE_BACKEND``; else as :func:`backend`.
    """
    if _is_remote() or settings.JUDGE_BACKEND:
        return _load("GENERATION" if _is_remote() else "JUDGE")
    raise BackendError(why_no_judge())


def _is_remote() -> bool:
    return settings.GENERATION_BACKEND == Experiment.Backend.REMOTE


def _load(purpose: str) -> Backend:
    match getattr(settings, f"{purpose}_BACKEND"):
        case "smollm2":
            from engine.generation.smollm2 import SmolLM2Backend

            return SmolLM2Backend()
        case "vllm":
            try:
                from engine.generation.vllm import EngineSettings, VLLMBackend
            except ImportError as error:
                raise BackendError(
                    f"vLLM cannot be imported ({error}). On a machine with a GPU: pip install -r "
                    "requirements-gpu.txt"
                ) from error
            return VLLMBackend(
                EngineSettings(
                    model=_model(purpose, "a folder or a name on the Hugging Face hub"),
                    dtype=settings.GENERATION_DTYPE,
                    max_length=settings.GENERATION_MAX_LENGTH,
                    tensor_parallel=settings.GENERATION_TENSOR_PARALLEL,
                    quantization=settings.GENERATION_QUANTIZATION or None,
                    adapters=settings.GENERATION_ADAPTERS,
                    chat_template=settings.GENERATION_CHAT_TEMPLATE or None,
                    options=settings.GENERATION_ENGINE_OPTIONS,
                )
            )
        case "remote":
            from engine.generation.remote.backend import RemoteBackend

            return RemoteBackend()
        case unknown:
            raise ValueError(
                f"{purpose}_BACKEND is {unknown!r}, which is not a backend. Use smollm2, vllm or remote."
            )


@cache
def speed() -> Speed:
    """The speed of this worker's backend."""
    return Speed()


def offer() -> Offer:
    """The models that this worker serves, by its settings; nothing is loaded."""
    match settings.GENERATION_BACKEND:
        case "smollm2":
            from engine.generation import smollm2

            return Offer("smollm2", smollm2.MODEL_NAME)
        case "vllm":
            return Offer("vllm", settings.GENERATION_MODEL, tuple(settings.GENERATION_ADAPTERS))
        case _:
            return Offer("remote", settings.OPENAI_MODEL)


def details(running: Backend | None = None, *, trouble: str = "") -> dict[str, Any]:
    """Models and speed of this worker, for its pulse; ``trouble``: the error of its backend."""
    gpu_memory = getattr(running, "gpu_memory", lambda: None)
    loaded = getattr(running, "loaded", True)
    return offer().details() | {
        "tokens_per_second": speed().tokens_per_second,
        "gpu_memory": gpu_memory(),
        "loading": not loaded,
        "trouble": trouble,
    }


def judge_details(*, trouble: str = "") -> dict[str, Any]:
    """The model that judges on this worker, for its pulse; loads nothing. ``trouble``: the backend error."""
    backend, model = settings.JUDGE_BACKEND, settings.JUDGE_MODEL
    return {
        "backend": settings.GENERATION_BACKEND if _is_remote() else backend,
        "model": "" if _is_remote() else model,
        "trouble": trouble,
    }


def _model(purpose: str, what: str) -> str:
    model: str = getattr(settings, f"{purpose}_MODEL")
    if not model:
        raise BackendError(f"Set {purpose}_MODEL: the model's name, {what}.")
    return model
