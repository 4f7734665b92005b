"""Seals keys of connections and destinations, and tokens of repositories, and opens them in a worker.

A sealed key holds the number and the address of its connection: copied to another row, or left behind by
another address, it does not open.
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cryptography.fernet import InvalidToken, MultiFernet
from django.conf import settings
from django.db import transaction

from engine.domain.connection_targets import Target
from engine.domain.credentials import cipher
from engine.domain.errors import KeyUnreadableError
from engine.domain.profiles import Provider, takes_of
from engine.models import Connection, Destination, Subscription, clock
from engine.selectors.policies import connections_named

# The end of a shorter key would reveal too much.
_SHORTEST_HINTED = 16
_HINT = 4


def target_of(connection: Connection) -> Target:
    """The connection with its key, for one request or batch; only a worker calls this.

    Raises
    ------
    KeyUnreadableError
        Its key cannot be opened here; says what to do.
    """
    return replace(target_without_key(connection), key=_opened(connection))


def target_without_key(connection: Connection) -> Target:
    """The connection as it is asked, for a page that shows a request."""
    provider = Provider(connection.provider)
    return Target(
        connection_id=connection.pk,
        name=connection.name,
        provider=provider,
        model_id=connection.model_id,
        address=connection.address,
        takes=takes_of(provider, connection.model_id, connection.takes),
        api_version=connection.api_version,
        headers=connection.headers,
        extra_body=connection.extra_body,
        at_once=connection.at_once,
        per_minute=connection.per_minute,
        answer_seconds=connection.answer_seconds,
    )


def targets_shown(models: Collection[str]) -> dict[str, Target]:
    """The connections of these names without their keys, to show requests; for a name without one, a server
    that takes the usual settings.
    """
    known = connections_named(models)
    usual = Provider.COMPATIBLE
    return {
        model: target_without_key(known[model])
        if model in known
        else Target(0, model, usual, model, "", takes_of(usual, model))
        for model in models
    }


def seal(connection: Connection, key: str) -> None:
    """Put this key into the stored connection, which the caller saves; an empty one removes it."""
    connection.key_variable = ""
    connection.key_set_at = clock.now() if key else None
    connection.key_hint = key[-_HINT:] if len(key) >= _SHORTEST_HINTED else ""
    connection.sealed_key = _sealed(key, "connection", connection.pk, connection.address) if key else ""


def has_key(connection: Connection) -> bool:
    """True if a key is stored, or named by a variable, whether it can be read or not."""
    return bool(connection.sealed_key or connection.key_variable)


def sealed_token(subscription: Subscription, token: str) -> str:
    """The token of a repository, sealed for the experiment and the address of its subscription."""
    return _sealed(token, "experiment", subscription.experiment_id, subscription.target)


def token_of(subscription: Subscription) -> str:
    """The token of a repository; only a worker calls this.

    Raises
    ------
    KeyUnreadableError
        It cannot be opened here; says what to do.
    """
    return _unsealed(
        subscription.secret,
        "experiment",
        subscription.experiment_id,
        subscription.target,
        elsewhere="The token belongs to another repository. Enter it again.",
    )


def sealed_key(destination: Destination, key: str) -> str:
    """The key of a destination, sealed for its number and address."""
    return _sealed(key, "destination", destination.pk, destination.address)


def key_of(destination: Destination) -> str:
    """The key of a destination, empty without one; only a worker calls this.

    Raises
    ------
    KeyUnreadableError
        It cannot be opened here; says what to do.
    """
    if not destination.sealed_key:
        return ""
    return _unsealed(
        destination.sealed_key,
        "destination",
        destination.pk,
        destination.address,
        elsewhere="The key belongs to another address. Add the destination anew.",
    )


@transaction.atomic
def seal_anew() -> tuple[int, list[Connection]]:
    """Encrypt all keys and tokens with the newest of ``CONNECTION_KEYS``, or of ``SECRET_KEY``.

    Returns the number of keys, and the connections whose key cannot be read: those stay as they are.
    """
    seals, done, unreadable = _seals(), 0, []
    for connection in Connection.objects.select_for_update(no_key=True).exclude(sealed_key=""):
        try:
            connection.sealed_key = seals.rotate(connection.sealed_key.encode()).decode()
        except InvalidToken:
            unreadable.append(connection)
            continue
        connection.save(update_fields=["sealed_key"])
        done += 1
    for forge in Subscription.objects.select_for_update(no_key=True).filter(kind__in=Subscription.FORGES):
        # One that cannot be read says so where it is used.
        with suppress(InvalidToken):
            forge.secret = seals.rotate(forge.secret.encode()).decode()
            forge.save(update_fields=["secret"])
    for destination in Destination.objects.select_for_update(no_key=True).exclude(sealed_key=""):
        with suppress(InvalidToken):
            destination.sealed_key = seals.rotate(destination.sealed_key.encode()).decode()
            destination.save(update_fields=["sealed_key"])
    return done, unreadable


def _opened(connection: Connection) -> str:
    if connection.key_variable:
        key = os.environ.get(connection.key_variable, "")
        if not key:
            raise KeyUnreadableError(f"The variable {connection.key_variable} is not set for this worker.")
        return key
    if not connection.sealed_key:
        return ""
    return _unsealed(
        connection.sealed_key,
        "connection",
        connection.pk,
        connection.address,
        elsewhere="The key belongs to another address. Enter it again.",
    )


def _sealed(key: str, owner: str, number: int, address: str) -> str:
    bound = {owner: number, "address": address, "key": key}
    return _seals().encrypt(json.dumps(bound).encode()).decode()


def _unsealed(sealed: str, owner: str, number: int, address: str, *, elsewhere: str) -> str:
    """The key in a seal. ``elsewhere``: what to say where it was sealed for another owner or address."""
    try:
        bound: dict[str, Any] = json.loads(_seals().decrypt(sealed.encode()))
    except InvalidToken:
        # Not chained: a traceback must not show the secret.
        raise KeyUnreadableError(
            "The key cannot be read: it was encrypted with another CONNECTION_KEYS or SECRET_KEY. Enter it "
            "again, or add the old one to CONNECTION_KEYS or SECRET_KEY_FALLBACKS."
        ) from None
    if (bound.get(owner), bound["address"]) != (number, address):
        raise KeyUnreadableError(elsewhere)
    return str(bound["key"])


def _seals() -> MultiFernet:
    """The newest encrypts, all decrypt. Keys of the site come last: they read what is from before others."""
    return cipher(
        "connections", [*settings.CONNECTION_KEYS, settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    )
