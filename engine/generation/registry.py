"""Which backend this worker process runs."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from engine.generation.base import Backend


@cache
def backend() -> Backend:
    """The backend named by ``GENERATION_BACKEND``, loaded on first use and kept for the process's life."""
    match settings.GENERATION_BACKEND:
        case "embedded":
            from engine.generation.embedded import EmbeddedBackend

            return EmbeddedBackend()
        case unknown:
            raise ValueError(f"GENERATION_BACKEND is {unknown!r}, which no backend answers to.")
