"""The option that says who is to own an experiment."""

from __future__ import annotations

from argparse import ArgumentParser

from django.core.management.base import CommandError

from engine.models import User


def add_owner(parser: ArgumentParser) -> None:
    """Add `--owner`; `owner_of` reads it."""
    parser.add_argument("--owner", metavar="USER", help="the user who is to own a new experiment")


def owner_of(said: str | None) -> User | None:
    """The user who was named; ``None`` where nobody was.

    Raises
    ------
    CommandError
        There is no such user.
    """
    if said is None:
        return None
    if (user := User.objects.filter(username=said).first()) is None:
        raise CommandError(f"There is no user {said!r}; manage.py createsuperuser makes one.")
    return user
