"""Shared helpers of the tests of signing in."""

from __future__ import annotations

import time

from django.test import Client

from engine.models import User

PASSWORD = "a long password"


def sign_in_recently(client: Client, user: User, seconds_ago: float = 0) -> None:
    """Write into the session of a forced login what a real one writes: who signed in, and when."""
    session = client.session
    session["account_authentication_methods_user"] = str(user.pk)
    session["account_authentication_methods"] = [
        {"method": "sign-in", "at": time.time() - seconds_ago, "reauthenticated": True}
    ]
    session.save()
