"""Makes the request for a model: only what a level sets, in the words of its vendor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.domain.conversations import as_json
from engine.domain.targets import Target
from engine.generation.base import GenerationRequest


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to send, without the key.

    Attributes
    ----------
    left_out
        A sentence for each setting that is not sent, and for each message that was changed.
    """

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    left_out: Sequence[str] = ()


def prepare(target: Target, request: GenerationRequest) -> Prepared:
    """The request for this model, and what is left out of it and why."""
    sampling = request.sampling
    body: dict[str, Any] = {"model": target.model_id, "messages": as_json(request.messages)}
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    return Prepared(f"{target.address}/chat/completions", {}, body)
