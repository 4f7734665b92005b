"""Makes, lists, tests and retires connections to models. A key never stands on a command line."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.domain.errors import SpecError
from engine.domain.profiles import VENDORS
from engine.generation.remote.connection_test import try_connection
from engine.management.owners import add_owner, owner_of
from engine.models import Connection
from engine.selectors.connections import every_connection
from engine.services import connections, keys


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="names, models, addresses, and where the keys are")
        make = actions.add_parser("make", help="a new connection")
        make.add_argument("name", help="the name by which experiments choose it")
        make.add_argument("--provider", required=True, choices=[str(each) for each in VENDORS])
        make.add_argument("--model", default="", help="the model as the provider calls it; default: the name")
        make.add_argument("--address", default="", help="default: the provider's usual one")
        make.add_argument("--api-version", default="", help="for Azure's classic addresses")
        make.add_argument("--everybody", action="store_true", help="every experiment may use it")
        make.add_argument("--key", action="store_true", help="read its key from the standard input")
        make.add_argument("--key-variable", default="", help="the workers' variable with its key")
        add_owner(make)
        for name, told in (
            ("key", "store the key that comes on the standard input; nothing removes it"),
            ("test", "send one small task from here"),
            ("retire", "let nothing use it any more, and delete its key"),
        ):
            actions.add_parser(name, help=told).add_argument("name")
        actions.add_parser("rotate", help="encrypt all keys with the newest of CONNECTION_KEYS")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            getattr(self, f"_{action}")(**options)
        except SpecError as refused:
            raise CommandError(f"{'.'.join(map(str, refused.path))}: {refused}".removeprefix(": ")) from None

    def _list(self, **_: Any) -> None:
        for each in every_connection():
            where = each.key_variable or (f"…{each.key_hint}" if each.sealed_key else "no key")
            state = " (retired)" if each.retired_at else ""
            self.stdout.write(
                f"{each.name}: {each.provider}, {each.model_id}, {each.address}, {where}{state}"
            )

    def _make(self, *, name: str, model: str, key: bool, owner: str | None, **options: Any) -> None:
        fields = ("provider", "address", "api_version", "everybody")
        connections.make(
            by=None,
            owner=owner_of(owner),
            key=_from_stdin() if key else "",
            key_variable=options["key_variable"],
            name=name,
            model_id=model or name,
            **{field: options[field] for field in fields},
        )
        self.stdout.write(f"Made {name}.")

    def _key(self, *, name: str, **_: Any) -> None:
        found = _named(name)
        if key := _from_stdin():
            connections.change(connection_id=found.pk, by=None, key=key)
            self.stdout.write(f"Stored the key of {name}.")
        else:
            connections.remove_key(connection_id=found.pk, by=None)
            self.stdout.write(f"Removed the key of {name}.")

    def _test(self, *, name: str, **_: Any) -> None:
        found = _named(name)
        try_connection(found.pk)
        found.refresh_from_db()
        self.stdout.write(found.test["sentence"])
        if proposed := found.test.get("proposed"):
            self.stdout.write(f"It refuses: {', '.join(proposed)}. Accept these rules on the page Models.")
        if not found.test["works"]:
            raise CommandError(found.test.get("said") or "The connection does not work.")

    def _retire(self, *, name: str, **_: Any) -> None:
        connections.retire(connection_id=_named(name).pk, by=None)
        self.stdout.write(f"Retired {name}.")

    def _rotate(self, **_: Any) -> None:
        done, unreadable = keys.seal_anew()
        self.stdout.write(f"Encrypted anew: {done}.")
        if unreadable:
            names = ", ".join(each.name for each in unreadable)
            raise CommandError(f"These cannot be read and stay as they are: {names}. Enter them again.")


def _from_stdin() -> str:
    return sys.stdin.readline().strip()


def _named(name: str) -> Connection:
    found = every_connection().filter(name=name).first()
    if found is None:
        raise CommandError(f"There is no connection {name!r}. “connection list” lists them.")
    return found
