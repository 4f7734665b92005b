"""Shared helpers of the tests of logging in."""

import time
from collections.abc import Sequence

from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Token, User
from engine.services.tokens import make_token

# Of every account that `tests.factories.make_user` makes.
PASSWORD = "a long password"


def logged_in(user: User) -> Client:
    """A browser in which this user has just logged in."""
    client = Client()
    client.force_login(user)
    log_in_recently(client, user)
    return client


def is_logged_in(client: Client) -> bool:
    return client.get(reverse("home")).status_code == 200


def bearer(
    user: User, scopes: Sequence[str] = Token.Scope.values, experiment: Experiment | None = None
) -> dict[str, str]:
    """The header of a request by a new token of this user."""
    _, secret = make_token(user=user, name="test", valid_days=1, scopes=scopes, experiment=experiment)
    return {"Authorization": f"Bearer {secret}"}


def let_create(user: User) -> None:
    """Give this user the right to make experiments, and no other."""
    user.user_permissions.add(Permission.objects.get(codename="add_experiment"))


def log_in_recently(client: Client, user: User, seconds_ago: float = 0) -> None:
    """Write into the session of a forced login what a real one writes: who logged in, and when."""
    session = client.session
    session["account_authentication_methods_user"] = str(user.pk)
    session["account_authentication_methods"] = [
        {"method": "login", "at": time.time() - seconds_ago, "reauthenticated": True}
    ]
    session.save()
