"""Seals the keys of connections, and opens them in the worker that asks."""

from __future__ import annotations

import os

from engine.domain.profiles import Provider, takes_of
from engine.domain.targets import Target
from engine.models import Connection


def target_of(connection: Connection) -> Target:
    """The connection with its key, for one request or batch; only a worker calls this."""
    provider = Provider(connection.provider)
    return Target(
        connection_id=connection.pk,
        name=connection.name,
        provider=provider,
        model_id=connection.model_id,
        address=connection.address,
        takes=takes_of(provider, connection.model_id, connection.takes),
        key=os.environ.get(connection.key_variable, ""),
        api_version=connection.api_version,
        headers=connection.headers,
        extra_body=connection.extra_body,
        at_once=connection.at_once,
        per_minute=connection.per_minute,
        answer_seconds=connection.answer_seconds,
    )
