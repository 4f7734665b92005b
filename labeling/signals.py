"""What follows from logging out."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver

from engine.models import User
from engine.services import showing


@receiver(user_logged_out)
def return_leases(user: User | None, **_: Any) -> None:
    """Whoever logs out looks at nothing any more."""
    if user is not None:
        showing.hand_back(annotator=user)
