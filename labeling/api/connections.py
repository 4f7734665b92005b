"""Connections to models, as on the page “Models”. No token sets a key, removes one or lends."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import PermissionDenied
from ninja import Router, Status

from engine.domain.errors import SpecError
from engine.models import Connection
from engine.selectors import connections as selectors
from engine.services import connection_pauses, keys
from engine.services import connections as services
from engine.tasks import try_connection, wake
from labeling import access
from labeling.api.auth import MANAGE, READ
from labeling.api.experiments import PROBLEMS, WRITE_PROBLEMS, Id
from labeling.api.schemas import ConnectionChangesIn, ConnectionIn, ConnectionOut
from labeling.dashboard.connections import is_being_tested, standing_of
from labeling.requests import AuthenticatedRequest

router = Router()


@router.get("", auth=READ, response={200: list[ConnectionOut]} | PROBLEMS)
def list_connections(request: AuthenticatedRequest) -> list[dict[str, Any]]:
    """List the connections that you may see, by name. Keys are never included."""
    _refuse_bound(request)
    return [_connection_out(request, each) for each in selectors.seen_by(request.user)]


@router.post("", auth=MANAGE, response={201: ConnectionOut} | WRITE_PROBLEMS)
def make(request: AuthenticatedRequest, payload: ConnectionIn) -> Status[dict[str, Any]]:
    """Make a connection, without its key: enter that on the page “Models”."""
    _refuse_bound(request)
    if not selectors.may_make(request.user):
        raise PermissionDenied("You may not make connections. Ask an administrator for the permission.")
    if payload.site and not request.user.is_staff:
        raise PermissionDenied("Only staff make connections of the site. Leave out `site`.")
    values = payload.model_dump(exclude_unset=True, exclude={"site"})
    with _fields_named():
        made = services.make(by=request.user, owner=None if payload.site else request.user, **values)
    return Status(201, _connection_out(request, made))


@router.get("/{connection_id}", auth=READ, response={200: ConnectionOut} | PROBLEMS)
def show(request: AuthenticatedRequest, connection_id: Id) -> dict[str, Any]:
    """Show a connection with the result of its last test."""
    _refuse_bound(request)
    return _connection_out(request, access.connection_to_see(request, connection_id))


@router.patch("/{connection_id}", auth=MANAGE, response={200: ConnectionOut} | WRITE_PROBLEMS)
def change(request: AuthenticatedRequest, connection_id: Id, payload: ConnectionChangesIn) -> dict[str, Any]:
    """Change a connection. A new address or provider deletes its key."""
    _refuse_bound(request)
    found = access.connection_to_change(request, connection_id)
    values = payload.model_dump(exclude_unset=True)
    if values.get("everybody") and not found.everybody and keys.has_key(found):
        raise PermissionDenied("A token lends no key. Open the connection to everybody on the page Models.")
    with _fields_named():
        services.change(connection_id=found.pk, by=request.user, **values)
    found.refresh_from_db()
    return _connection_out(request, found)


@router.post("/{connection_id}/test", auth=MANAGE, response={202: ConnectionOut} | WRITE_PROBLEMS)
def test(request: AuthenticatedRequest, connection_id: Id) -> Status[dict[str, Any]]:
    """Have a worker send one small task. Read the connection until `testing` is false."""
    _refuse_bound(request)
    found = access.connection_to_change(request, connection_id)
    if connection_pauses.ask_test(connection_id=found.pk):
        wake(try_connection, found.pk)
    found.refresh_from_db()
    return Status(202, _connection_out(request, found))


@router.delete("/{connection_id}", auth=MANAGE, response={204: None} | WRITE_PROBLEMS)
def retire(request: AuthenticatedRequest, connection_id: Id) -> Status[None]:
    """Retire it and delete its key. Its responses stay."""
    _refuse_bound(request)
    found = access.connection_to_change(request, connection_id)
    services.retire(connection_id=found.pk, by=request.user)
    return Status(204, None)


@contextmanager
def _fields_named() -> Iterator[None]:
    """Name the field in the words about a value that cannot be used."""
    try:
        yield
    except SpecError as refused:
        place = "".join(f"{each}: " for each in refused.path)
        raise SpecError(f"{place}{refused}", refused.path) from None


def _refuse_bound(request: AuthenticatedRequest) -> None:
    if access.bound_to(request) is not None:
        raise PermissionDenied("This token is limited to one experiment, so it reaches no connections.")


def _connection_out(request: AuthenticatedRequest, found: Connection) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: getattr(found, name)
        for name in ("id", "trouble", "waits_until", "retired_at", *services.EDITABLE)
    }
    fields |= {
        "yours": found.owner_id == request.user.pk,
        "state": standing_of(found)[1],
        "testing": is_being_tested(found),
        "key_set_at": None,
        "test": {},
    }
    if selectors.may_change(request.user, found):
        return fields | {"key_set_at": found.key_set_at, "test": found.test}
    return fields | {"address": "", "headers": {}, "extra_body": {}}
