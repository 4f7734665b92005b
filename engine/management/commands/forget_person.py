"""Forget a person whose judgments are kept."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.domain.errors import PersonError
from engine.management.lookups import find_user
from engine.services.forgetting import forget_person


class Command(BaseCommand):
    help = (
        "Make an account unrecognisable: it is renamed to former-annotator-N, cannot log in, and loses "
        "its e-mail address, roles, tokens and sessions. Its judgments are kept. See docs/privacy.md."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the user name, or a guest's identifier elsewhere")
        parser.add_argument(
            "--delete",
            action="store_true",
            help="delete the account completely if no judgment or log entry refers to it",
        )
        parser.add_argument(
            "--blank-comments", action="store_true", help="empty the comments that they wrote"
        )

    def handle(self, *args: Any, name: str, delete: bool, blank_comments: bool, **options: Any) -> None:
        user = find_user(name)
        try:
            left = forget_person(user_id=user.pk, by=None, delete=delete, blank_comments=blank_comments)
        except PersonError as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write("The account is deleted." if left is None else f"The account is now {left}.")
