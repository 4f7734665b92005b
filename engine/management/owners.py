"""The command-line option that names the owner of an experiment."""

from argparse import ArgumentParser

from engine.management.lookups import find_user
from engine.models import User


def add_owner(parser: ArgumentParser) -> None:
    """Add `--owner`; `owner_of` reads it."""
    parser.add_argument("--owner", metavar="USER", help="the user who is to own a new experiment")


def owner_of(name: str | None) -> User | None:
    """The user named by `--owner`; ``None`` without it.

    Raises
    ------
    CommandError
        There is no such user.
    """
    return None if name is None else find_user(name)
