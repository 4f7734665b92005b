"""The backend that needs no GPU and no download: the repository's own small model, run by NumPy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController
from tokenizers import Tokenizer

from engine.domain.conversations import ASSISTANT, ROLES
from engine.generation.base import (
    BackendError,
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Outcomes,
    SamplingParams,
    unanswerable,
)
from engine.generation.tinylm import MODEL_FOLDER, MODEL_NAME
from engine.generation.tinylm.conversation import BOS, END, REFUSALS, ROLE_TOKENS, SPECIAL
from engine.generation.tinylm.runtime import MASKED, Llama, SamplingTable, choose
from engine.generation.tinylm.words import contains_blocked

MAX_ROWS = 64
ROOM_FOR_REPLY = 64
KEEP_DONE_ROWS_BELOW = 0.25


@dataclass(slots=True)
class _Row:
    """A response that is being written."""

    request: GenerationRequest
    prompt: list[int]
    limit: int
    written: list[int] = field(default_factory=list)


class EmbeddedBackend:
    """Answers the paper's four tasks with the model in ``engine/generation/tinylm/model``.

    The model is loaded at the first batch. Same request, same text: each request draws from its own random
    stream, independent of the batch. Texts that contain an offensive word are replaced by a refusal.

    Parameters
    ----------
    folder : Path
        Another checkpoint of the same architecture and tokenizer.
    """

    name = "embedded"

    def __init__(self, folder: Path = MODEL_FOLDER, model: str = MODEL_NAME) -> None:
        self.model = model
        self._folder = folder

    @cached_property
    def _llama(self) -> Llama:
        return Llama(self._folder)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        # Text of a user stays text, even if it looks like a control token.
        tokenizer.encode_special_tokens = True
        return tokenizer

    @cached_property
    def _threads(self) -> ThreadpoolController:
        return ThreadpoolController()

    def _one_thread(self) -> AbstractContextManager[Any]:
        # The matrices are too small to share: on a busy machine, threads that wait for each other made this
        # 25 times slower. Never held while a result is handed out, since the limit is the whole process's.
        limit: AbstractContextManager[Any] = self._threads.limit(limits=1, user_api="blas")
        return limit

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        return {token: id_ for token in SPECIAL if (id_ := self._tokenizer.token_to_id(token)) is not None}

    @cached_property
    def _never_written(self) -> list[int]:
        return [number for token, number in self._special_ids.items() if token != END]

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Answer every request once, yielding each as it finishes; see
        :class:`~engine.generation.base.Backend`.

        ``completion_tokens`` counts the end-of-turn token. A prompt that leaves no room for a reply and an
        empty user text fail alone, with a reason that says what to do.
        """
        started = time.monotonic()
        try:
            most_tokens = self._llama.config.max_position_embeddings
            outcomes = [self._read(request, most_tokens) for request in requests]
        except OSError as error:
            raise BackendError(f"the embedded model in {self._folder} cannot be read: {error}") from error
        yield from (outcome for outcome in outcomes if not isinstance(outcome, _Row))
        rows = sorted((o for o in outcomes if isinstance(o, _Row)), key=lambda row: len(row.prompt))
        for start in range(0, len(rows), MAX_ROWS):
            yield from self._write(rows[start : start + MAX_ROWS], started)

    def _read(self, request: GenerationRequest, most_tokens: int) -> _Row | Outcome:
        turns = [(each.role, each.content.strip()) for each in request.messages]
        if not turns[-1][1]:
            return unanswerable(request.key, "The task text is empty: write one.")
        if request.model not in ("", self.model):
            reason = f"The embedded backend has no model {request.model!r}, only {self.model!r}."
            return GenerationFailure(request.key, reason, Fault.SETTINGS)
        if request.sampling.response_format:
            reason = "The embedded model keeps to no response format. Remove it, or choose another model."
            return GenerationFailure(request.key, reason, Fault.SETTINGS)
        tokens = {role: self._special_ids[token] for role, token in zip(ROLES, ROLE_TOKENS, strict=True)}
        prompt = [self._special_ids[BOS]]
        for role, content in turns:
            if content:
                written = self._tokenizer.encode(content, add_special_tokens=False).ids
                prompt += [tokens[role], *written, self._special_ids[END]]
        prompt.append(tokens[ASSISTANT])
        longest_prompt = most_tokens - ROOM_FOR_REPLY
        if len(prompt) > longest_prompt:
            reason = (
                f"The prompt has {len(prompt)} tokens, but the embedded model reads at most "
                f"{longest_prompt}: shorten the system prompt or the task, or use another backend."
            )
            return unanswerable(request.key, reason)
        return _Row(request, prompt, min(request.sampling.drawing.max_tokens, most_tokens - len(prompt)))

    def _write(self, rows: list[_Row], started: float) -> Iterator[GenerationResult]:
        with self._one_thread():
            logits, cache = self._llama.prefill([row.prompt for row in rows])
        table = _tabulate([row.request.sampling for row in rows])
        uniforms = np.stack([_draw(row.request.seed, max(r.limit for r in rows)) for row in rows])
        at_work = np.ones(len(rows), bool)
        for place in range(uniforms.shape[1]):
            logits[:, self._never_written] = MASKED
            tokens = choose(logits, table, uniforms[:, place])
            for i in np.flatnonzero(at_work):
                result = self._append(rows[i], int(tokens[i]), started)
                if result:
                    at_work[i] = False
                    yield result
            if not at_work.any():
                return
            cache.retire(~at_work)
            if at_work.mean() <= 1 - KEEP_DONE_ROWS_BELOW:
                kept = np.flatnonzero(at_work)
                cache.keep(kept)
                rows, table, uniforms = [rows[i] for i in kept], table.keep(kept), uniforms[kept]
                tokens, at_work = tokens[kept], at_work[kept]
            with self._one_thread():
                logits = self._llama.step(tokens, cache)

    def _append(self, row: _Row, token: int, started: float) -> GenerationResult | None:
        """Append a token; return the result if the response is now complete."""
        row.written.append(token)
        ended = token == self._special_ids[END]
        stop = row.request.sampling.stop
        text = self._tokenizer.decode(row.written) if ended or stop or len(row.written) == row.limit else ""
        stops = [text.index(string) for string in stop if string in text]
        if not (ended or stops or len(row.written) == row.limit):
            return None
        text = text[: min(stops, default=len(text))]
        return GenerationResult(
            key=row.request.key,
            text=REFUSALS[0] if contains_blocked(text) else text,
            prompt_tokens=len(row.prompt),
            completion_tokens=len(row.written),
            finish_reason=Finish.STOP if ended or stops else Finish.LENGTH,
            latency_seconds=time.monotonic() - started,
        )


def _tabulate(samplings: list[SamplingParams]) -> SamplingTable:
    return SamplingTable(
        temperature=np.array([s.drawing.temperature for s in samplings]),
        top_p=np.array([s.drawing.top_p for s in samplings]),
        top_k=np.array([s.drawing.top_k for s in samplings]),
    )


def _draw(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed % 2**64).random(count)
