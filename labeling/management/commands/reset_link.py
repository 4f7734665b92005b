"""``manage.py reset_link NAME``: a link with which somebody who cannot log in sets a new password."""

from typing import Any

from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from engine.management.lookups import find_user
from engine.services.accounts import allow_reset


class Command(BaseCommand):
    help = "Print a link with which an account sets a new password: good for one day, and once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the account's name")
        parser.add_argument(
            "--without-second-step",
            action="store_true",
            help="turn off its two-step login, for somebody who lost the phone and the recovery codes",
        )

    def handle(self, *, name: str, without_second_step: bool, **_: Any) -> None:
        user = find_user(name)
        if not user.is_active:
            raise CommandError(f"The account “{name}” is closed. Open it at /admin/ first.")
        key = {"uidb36": user_pk_to_url_str(user), "key": default_token_generator.make_token(user)}
        link = settings.SITE_URL + reverse("account_reset_password_from_key", kwargs=key)
        allow_reset(user=user, without_second_step=without_second_step)
        self.stdout.write(link)
