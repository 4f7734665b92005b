"""What follows from logging out, and from an account's losing its rights."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_out
from django.db.models.signals import post_save, pre_save
from django.dispatch import receiver

from engine.models import User
from engine.services import people, serving

# The columns of an account that rights rest on.
_RIGHTS = ("is_active", "is_superuser")


@receiver(user_logged_out)
def return_leases(user: User | None, **_: Any) -> None:
    """Whoever logs out looks at nothing any more."""
    if user is not None:
        serving.hand_back(annotator=user)


@receiver(pre_save, sender=User)
def note_rights(instance: User, update_fields: frozenset[str] | None, **_: Any) -> None:
    """Remember the rights that the stored account has. Logging in saves another column and asks nothing."""
    instance.rights_before = None
    if instance.pk is not None and (update_fields is None or not update_fields.isdisjoint(_RIGHTS)):
        instance.rights_before = User.objects.filter(pk=instance.pk).values_list(*_RIGHTS).first()


@receiver(post_save, sender=User)
def settle_lost_rights(instance: User, **_: Any) -> None:
    """End the links and tokens of a deactivated account or a former superuser, whoever changed it and wherever."""
    before = instance.rights_before
    if before is not None and any(
        had and not getattr(instance, right) for had, right in zip(before, _RIGHTS, strict=True)
    ):
        people.settle_account(user=instance)
