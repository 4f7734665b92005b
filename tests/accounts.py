"""Shared helpers of the tests of logging in."""

from __future__ import annotations

import time

from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from engine.models import User

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
