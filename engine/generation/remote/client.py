"""Sends one request to a model and reads what comes back, whatever that is."""

from __future__ import annotations

from types import TracebackType

from engine.domain.targets import Target
from engine.generation.base import GenerationFailure, GenerationRequest, Outcome


class Client:
    """Connections to servers, kept open between requests; for one event loop."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def ask(self, target: Target, request: GenerationRequest) -> Outcome:
        """The model's reply, or the failure to get one. Raises nothing: whatever a server does is told."""
        return GenerationFailure(request.key, "Nothing asks yet.")
