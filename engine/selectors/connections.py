"""Connections that a person may see and change."""

from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.models import Connection, Experiment, Loan, Response, User


def of_the_environment() -> Connection | None:
    """The connection that ``OPENAI_MODEL`` made, if it is for everybody; it serves what names no model."""
    if not settings.OPENAI_MODEL:
        return None
    made = Connection.objects.remote().filter(owner=None, everybody=True, retired_at=None)
    return made.filter(name=settings.OPENAI_MODEL).first()


def made_by(owner: User | None) -> QuerySet[Connection]:
    """The connections of this person, or of the site: retired ones keep their names."""
    return Connection.objects.remote().filter(owner=owner)


def numbered(connection_id: int) -> Connection:
    """The connection of this number, as it is stored now."""
    return Connection.objects.get(pk=connection_id)


def every_connection() -> QuerySet[Connection]:
    """All of them, by name, for those who run the site."""
    return Connection.objects.order_by("name")


def may_make(user: User) -> bool:
    """True for those who may make connections: of their own, or with ``is_staff`` the site's."""
    return user.is_active and (user.is_staff or user.has_perm("engine.add_experiment"))


def seen_by(user: User) -> QuerySet[Connection]:
    """The connections on this person's page, by name. Superusers see all, as they answer for the site."""
    found = Connection.objects.select_related("owner")
    if user.is_superuser:
        return found
    lent = Loan.objects.filter(connection=OuterRef("pk"), experiment__in=Experiment.objects.run_by(user))
    seen: Any = Q(owner=user) | Exists(lent)
    if may_make(user):
        seen |= Q(everybody=True)
    if user.is_staff:
        seen |= Q(owner=None)
    return found.filter(seen)


def may_change(user: User, connection: Connection) -> bool:
    """True for its owner; for staff, where it is the site's."""
    return user.is_active and (
        user.is_staff if connection.owner_id is None else connection.owner_id == user.pk
    )


def may_retire(user: User, connection: Connection) -> bool:
    """Superusers may also stop the connection of somebody else, and never use or read it."""
    return may_change(user, connection) or (user.is_active and user.is_superuser)


def loans_of(connection: Connection) -> QuerySet[Loan]:
    """The experiments that it is lent to, by name."""
    return connection.loans.select_related("experiment", "by").order_by("experiment__name", "pk")


def is_written_with(connection: Connection) -> bool:
    """True if some response was written with it: then its name and its model stay."""
    return Response.objects.filter(connection=connection).exists()
