"""Connections: made, changed and retired. Every step is in the log, without a key."""

import json
import logging
import os
from collections.abc import Iterable
from typing import Any

import re2
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from engine.domain.addresses import check_connection
from engine.domain.errors import SpecError
from engine.domain.forbidden_fields import fault_of_fields, fault_of_headers
from engine.domain.limits import CONNECTIONS, text_fault
from engine.domain.list_prices import CURRENCY, propose
from engine.domain.profiles import VENDORS, Provider, takes_of
from engine.models import AuditEntry, Connection, User, clock
from engine.selectors import connections as selectors
from engine.services import connection_loans, keys
from engine.services.audit import record
from engine.services.connection_pauses import WORKS

logger = logging.getLogger(__name__)

# The fields that people enter; the key has functions of its own.
EDITABLE = (
    "name", "provider", "model_id", "address", "api_version", "headers", "extra_body", "takes", "at_once",
    "per_minute", "answer_seconds", "price_prompt", "price_cached", "price_completion", "currency",
    "daily_limit", "everybody",
)  # fmt: skip
_PRICES = ("price_prompt", "price_cached", "price_completion")
# Levels name it, and responses rest on it.
_FIXED = ("name", "provider", "model_id")
_KEY = re2.compile(r"[\x21-\x7e]+")
_LONGEST_KEY = 2048
# Every key is cut out of answers, and a word such as "none" must stay in them.
_SHORTEST_KEY, _SHORTEST_WORD = 4, 8
# A test says the same of a connection in which these were changed.
_BESIDE_A_TEST = {
    "at_once", "per_minute", "price_prompt", "price_cached", "price_completion", "currency", "daily_limit",
    "everybody",
}  # fmt: skip
_ENVIRONMENT_KEY = "OPENAI_API_KEY"


@transaction.atomic
def make(
    *, by: User | None, owner: User | None, key: str = "", key_variable: str = "", **values: Any
) -> Connection:
    """A new connection: of ``owner``, or of the site. ``by``: ``None`` for a command.

    ``key_variable`` is for those who run the machine: whoever chose it freely could send any secret of a
    worker to an address of theirs.

    Raises
    ------
    SpecError
        A value cannot be used; ``path`` names its field.
    """
    connection = Connection(owner=owner)
    CONNECTIONS.check(selectors.made_by(owner).count() + 1)
    _set(connection, values)
    _propose_prices(connection)
    key = _normal_key(key)
    _check(connection, has_key=bool(key or key_variable))
    connection.save()
    _note(connection, by, "Made")
    if key or key_variable:
        _put_key(connection, by, key, key_variable)
    return connection


@transaction.atomic
def change(*, connection_id: int, by: User | None, key: str = "", **values: Any) -> bool:
    """Change these fields, and the key if one is given. Returns True if the stored key was deleted.

    A key goes to no address but the one that it was entered for, so a new address deletes it.

    Raises
    ------
    SpecError
        A value cannot be used; ``path`` names its field.
    """
    connection = _locked(connection_id)
    if connection.retired_at is not None:
        raise SpecError("This connection is retired. Take it back first.")
    before = {name: getattr(connection, name) for name in EDITABLE}
    of_the_table = _prices_of(connection) == _list_prices(connection)
    _set(connection, values)
    if of_the_table and _prices_of(connection) == tuple(before[name] for name in _PRICES):
        # They were of the model before this change.
        connection.price_prompt = connection.price_cached = connection.price_completion = None
    _propose_prices(connection)
    changed = [name for name in EDITABLE if getattr(connection, name) != before[name]]
    for name in _FIXED:
        used = selectors.is_written_with(connection)
        if name in changed and (name == "name" or used):
            raise SpecError(
                "Levels name it, so it stays. Retire this connection and make another one."
                if name == "name"
                else "Responses were written with it, so it stays. Make another connection.",
                (name,),
            )
    key = _normal_key(key)
    lost = bool({"address", "provider"} & set(changed)) and keys.has_key(connection) and not key
    _check(connection, has_key=bool(key) or (keys.has_key(connection) and not lost))
    _begin_anew(connection)
    if key or not set(changed) <= _BESIDE_A_TEST:
        connection.test, connection.test_asked_at = {}, None
    connection.save()
    if changed:
        _note(connection, by, "Changed", changed)
    if key or lost:
        _put_key(connection, by, key)
    return lost


@transaction.atomic
def remove_key(*, connection_id: int, by: User | None) -> None:
    """Delete the key. Without one, most servers refuse the next request."""
    connection = _locked(connection_id)
    if keys.has_key(connection):
        _put_key(connection, by, "")


@transaction.atomic
def retire(*, connection_id: int, by: User | None) -> None:
    """Retire it and delete its key. Its name and its responses stay."""
    connection = _locked(connection_id)
    if connection.retired_at is None:
        connection.retired_at = clock.now()
        connection.save(update_fields=["retired_at"])
        _note(connection, by, "Retired")
    if connection.sealed_key:
        _put_key(connection, by, "")


@transaction.atomic
def take_back(*, connection_id: int, by: User | None) -> None:
    """Let a retired connection be used again."""
    connection = _locked(connection_id)
    if connection.retired_at is not None:
        connection.retired_at = None
        _begin_anew(connection)
        connection.save()
        _note(connection, by, "Took back")


@transaction.atomic
def accept_rules(*, connection_id: int, by: User) -> None:
    """Take over what the last test proposed about the settings that the model takes.

    Raises
    ------
    SpecError
        The last test proposed nothing.
    """
    connection = _locked(connection_id)
    if not (proposed := connection.test.get("proposed")):
        raise SpecError("The last test proposed nothing. Test it again.")
    change(connection_id=connection_id, by=by, takes=connection.takes | proposed)
    Connection.objects.filter(pk=connection_id).update(test=connection.test | {"proposed": {}})


def leave(*, owner: User, by: User | None) -> None:
    """Retire the connections of a person who is forgotten, delete the keys and end the loans."""
    for connection in Connection.objects.filter(owner=owner):
        retire(connection_id=connection.pk, by=by)
    connection_loans.end_loans_of(owner=owner, by=by)


# ---------------------------------------------------------------- those that make themselves


def from_environment() -> None:
    """Make the connection that ``OPENAI_MODEL`` and ``OPENAI_BASE_URL`` describe, or bring it up to date.

    One of this name that somebody made, or gave another key, stays as it is.
    """
    if not settings.OPENAI_MODEL:
        return
    address = settings.OPENAI_BASE_URL.rstrip("/")
    usual = address == VENDORS[Provider.OPENAI].address
    ours = {
        "provider": Provider.OPENAI if usual else Provider.COMPATIBLE,
        "address": address,
        # Together with the address: it goes to no other.
        "key_variable": _ENVIRONMENT_KEY if _ENVIRONMENT_KEY in os.environ else "",
    }
    connection, made = Connection.objects.get_or_create(
        name=settings.OPENAI_MODEL, defaults=ours | {"model_id": settings.OPENAI_MODEL, "everybody": True}
    )
    if made:
        _note(connection, None, "Made")
    elif connection.owner_id is None and not connection.sealed_key and connection.retired_at is None:
        Connection.objects.filter(pk=connection.pk, sealed_key="").update(**ours)
    else:
        logger.warning("The connection %s differs from OPENAI_MODEL and stays as it is", connection.pk)


# ---------------------------------------------------------------- parts


def _begin_anew(connection: Connection) -> None:
    for name, value in WORKS.items():
        setattr(connection, name, value)


def _locked(connection_id: int) -> Connection:
    return Connection.objects.select_for_update(no_key=True).get(pk=connection_id)


def _set(connection: Connection, values: dict[str, Any]) -> None:
    if unknown := values.keys() - set(EDITABLE):
        raise TypeError(f"No fields of a connection: {', '.join(sorted(unknown))}.")
    fields = {field.name: field for field in Connection._meta.fields}
    for name, value in values.items():
        field = fields[name]
        # No value is the usual one: Django checks none where a form may leave the field empty.
        unset = value is None and field.blank and not field.null
        setattr(connection, name, field.get_default() if unset else value)
    usual = {str(provider): vendor.address for provider, vendor in VENDORS.items()}
    connection.address = connection.address.strip().rstrip("/") or usual.get(connection.provider, "")


def _propose_prices(connection: Connection) -> None:
    """Fill in the list prices of a model that the table of prices knows, unless somebody gave one."""
    if connection.price_prompt is None and connection.price_completion is None:
        for name, price in zip(_PRICES, _list_prices(connection), strict=True):
            setattr(connection, name, price)


def _list_prices(connection: Connection) -> tuple[float | None, ...]:
    """The prices that the table of prices knows of its model, as `_PRICES` names them."""
    if connection.provider in set(Provider) and connection.currency == CURRENCY:
        provider = Provider(connection.provider)
        if found := propose(provider, connection.model_id, connection.address, now=clock.now()):
            return found.prompt, found.cached, found.completion
    return None, None, None


def _prices_of(connection: Connection) -> tuple[float | None, ...]:
    return tuple(getattr(connection, name) for name in _PRICES)


def _check(connection: Connection, *, has_key: bool) -> None:
    try:
        connection.full_clean(exclude=["owner"])
    except ValidationError as invalid:
        name, [message, *_] = next(iter(invalid.message_dict.items()))
        if (
            name == "name"
            and Connection.objects.filter(name=connection.name).exclude(pk=connection.pk).exists()
        ):
            message = "Another connection has this name."
        raise SpecError(message, () if name == "__all__" else (name,)) from None
    if connection.everybody and connection.owner_id is not None:
        raise SpecError("Only a connection of the site can be for everybody.", ("everybody",))
    if connection.provider == Provider.WORKER:
        stored = Connection.objects.filter(pk=connection.pk).values_list("provider", flat=True)
        if stored.first() != Provider.WORKER:
            raise SpecError("A worker makes its own connection. Choose another provider.", ("provider",))
        return
    try:
        check_connection(connection.address, has_key=has_key)
    except ValueError as error:
        raise SpecError(str(error), ("address",)) from error
    if connection.daily_limit is not None and None in {connection.price_prompt, connection.price_completion}:
        raise SpecError("A limit of money needs both prices. Enter them, or remove it.", ("daily_limit",))
    for name in ("name", "model_id", "api_version", "headers", "extra_body", "takes"):
        if fault := _fault_of_text(getattr(connection, name)):
            raise SpecError(fault, (name,))
    for name, fault in (
        ("headers", fault_of_headers(connection.headers)),
        ("extra_body", fault_of_fields(connection.extra_body)),
        ("takes", _fault_of_rules(connection)),
    ):
        if fault:
            raise SpecError(fault, (name,))


def _fault_of_text(value: Any) -> str:
    """The reason why a text, or a JSON value, cannot be stored; empty if it can."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return "A number in it is not finite."
    return text_fault(written.replace("\\u0000", "\0"), "It")


def _fault_of_rules(connection: Connection) -> str:
    try:
        takes_of(Provider(connection.provider), connection.model_id, connection.takes)
    except (ValueError, AttributeError) as error:
        return str(error)
    # The names of fields, into which texts of levels go.
    return fault_of_fields({value: None for value in connection.takes.values() if isinstance(value, str)})


def _normal_key(key: str) -> str:
    key = key.strip()
    if key and (len(key) > _LONGEST_KEY or not _KEY.fullmatch(key)):
        raise SpecError("A key has no spaces and no letters with accents. Copy it again.", ("key",))
    if key and (len(key) < _SHORTEST_KEY or (len(key) < _SHORTEST_WORD and key.isalpha())):
        raise SpecError(
            "This is too short for a key: answers that hold it would lose it. Leave it empty if the server "
            "wants none, or give the server a longer one.",
            ("key",),
        )
    return key


def _put_key(connection: Connection, by: User | None, key: str, variable: str = "") -> None:
    had = keys.has_key(connection)
    before = connection.key_hint
    keys.seal(connection, key)
    connection.key_variable = variable
    _begin_anew(connection)
    connection.save()
    what = "Removed" if not (key or variable) else "Replaced" if had else "Set"
    hint = f", from the variable {variable}" if variable else f" …{connection.key_hint or before or '?'}"
    record(
        experiment=None,
        by=by,
        action=AuditEntry.Action.KEY,
        details={"what": what, "hint": hint, "name": connection.name, "connection": connection.pk},
    )


def _note(connection: Connection, by: User | None, what: str, changed: Iterable[str] = ()) -> None:
    fields = ", ".join(changed)
    record(
        experiment=None,
        by=by,
        action=AuditEntry.Action.CONNECTION,
        about=connection.owner,
        details={
            "what": what,
            "name": connection.name,
            "connection": connection.pk,
            "changed": f": {fields}" if fields else "",
        },
    )
