"""Consequences of logging out, of an account's loss of rights, and of a round of planning."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save
from django.dispatch import receiver
from django.http import HttpRequest

from engine.models import User
from engine.selectors.accounts import stored_rights
from engine.services import assignments, dashboard_pages, people, tokens
from engine.tasks import planned
from labeling.dashboard.figures import result_figures

# The columns of an account that rights rest on.
_RIGHTS = ("is_active", "is_staff", "is_superuser")


@receiver(planned)
def show_result(experiment_id: int, **_: Any) -> None:
    """Compute the result again if somebody watches it."""
    dashboard_pages.refresh(experiment_id=experiment_id, page="result", make=result_figures)


@receiver(user_logged_in)
def end_session(request: HttpRequest, **_: Any) -> None:
    """Set the end of the session: after it somebody logs in anew, and a provider's groups are read again."""
    request.session.set_expiry(settings.SESSION_COOKIE_AGE)


@receiver(user_logged_out)
def leave(user: User | None, **_: Any) -> None:
    """Note that a user who logs out has left their pairs."""
    if user is not None:
        assignments.leave(annotator=user)


@receiver(pre_save, sender=User)
def note_rights(instance: User, update_fields: frozenset[str] | None, **_: Any) -> None:
    """Remember the rights that the stored account has. A login saves another column, and costs no query."""
    instance.rights_before = None
    if instance.pk is not None and (update_fields is None or not update_fields.isdisjoint(_RIGHTS)):
        instance.rights_before = stored_rights(instance.pk, _RIGHTS)


@receiver(post_save, sender=User)
def settle_lost_rights(instance: User, **_: Any) -> None:
    """End the links, tokens and sessions of an account that was closed or lost a site-wide right."""
    before = instance.rights_before
    if before is not None and any(
        had and not getattr(instance, right) for had, right in zip(before, _RIGHTS, strict=True)
    ):
        people.settle_account(user=instance)


@receiver(m2m_changed, sender=User.user_permissions.through)
@receiver(m2m_changed, sender=User.groups.through)
@receiver(m2m_changed, sender=Group.permissions.through)
def settle_lost_permissions(action: str, **_: Any) -> None:
    """End tokens that rested on a lost permission, such as the one to make experiments."""
    if action in {"post_remove", "post_clear"}:
        tokens.settle_permissions()


@receiver(post_delete, sender=Group)
def settle_a_deleted_group(**_: Any) -> None:
    tokens.settle_permissions()
