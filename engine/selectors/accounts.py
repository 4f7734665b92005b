"""Accounts by their names, their API tokens, and the people around an experiment."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.models import Experiment, Judgment, JudgmentVoid, Membership, Token, User


def account(username: str) -> User | None:
    """The account of this user name in any case, open or closed; ``None`` if there is none."""
    return User.objects.filter(username__iexact=username).first()


def any_account() -> bool:
    """False in a new installation."""
    return User.objects.exists()


def accounts_like(part: str) -> QuerySet[User]:
    """The accounts with this text in their user name, in capitals or not, by name; all for an empty text."""
    accounts = User.objects.filter(username__icontains=part) if part else User.objects.all()
    return accounts.order_by("username")


def stored_rights(user_id: int, columns: Sequence[str]) -> tuple[Any, ...] | None:
    """The stored values of these columns of an account; ``None`` if it is not stored."""
    return User.objects.filter(pk=user_id).values_list(*columns).first()


def tokens_of(user: User) -> QuerySet[Token]:
    """The user's API tokens that nobody has revoked, with their experiments; those that expired too."""
    return user.tokens.filter(revoked_at__isnull=True).select_related("experiment")


def makers_of(experiments: QuerySet[Experiment], *, but: User) -> list[tuple[int, str]]:
    """Number and user name of everybody who made one of these experiments, by name, without ``but``."""
    makers = User.objects.filter(pk__in=experiments.values("maker")).exclude(pk=but.pk)
    return list(makers.order_by("username").values_list("pk", "username"))


def people_around(experiment: Experiment) -> dict[int, str]:
    """User names by number of everybody who could be named in a list of the experiment's judgments."""
    members = Membership.objects.filter(experiment=experiment, user=OuterRef("pk"))
    judgments = Judgment.objects.filter(comparison__experiment=experiment, annotator=OuterRef("pk"))
    voids = JudgmentVoid.objects.filter(judgment__comparison__experiment=experiment, by=OuterRef("pk"))
    # Superusers may void everywhere, and members may judge while such a list is being written.
    people = User.objects.filter(Q(is_superuser=True) | Exists(members) | Exists(judgments) | Exists(voids))
    return dict(people.values_list("pk", "username"))
