"""The backend of a worker that asks connections."""

from __future__ import annotations

from collections.abc import Sequence

from engine.domain.targets import Target
from engine.generation.base import GenerationRequest, Outcomes, Take, take_from


class RemoteBackend:
    """Asks every connection within its own limits, and yields replies as they come."""

    name = "remote"
    model = ""

    def __init__(self, own: Target | None = None) -> None:
        """``own``: the only target, for all requests, of a server that a backend of ours has started."""
        self._own = own

    def generate(self, requests: Sequence[GenerationRequest]) -> Outcomes:
        """Answer every request once; see :class:`~engine.generation.base.Backend`."""
        return self.stream(take_from(requests))

    def stream(self, take: Take) -> Outcomes:
        """Answer what ``take`` hands over; see :class:`~engine.generation.base.ContinuousBackend`."""
        yield from ()
