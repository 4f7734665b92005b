"""A connection made ready for one request: what a worker needs to know, the key included."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.domain.profiles import Provider, Takes


@dataclass(frozen=True, slots=True)
class Target:
    """A connection with its key, for as long as a worker asks it; never stored, sent or printed.

    ``connection_id`` 0: no connection, but a server that a backend of ours has started on this machine.
    """

    connection_id: int
    name: str
    provider: Provider
    model_id: str
    address: str
    takes: Takes
    key: str = field(default="", repr=False)
    api_version: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    at_once: int = 16
    per_minute: int | None = None
    answer_seconds: float = 600.0
