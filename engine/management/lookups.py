"""Finds the experiments and accounts that are named on the command line."""

from collections.abc import Sequence

from django.core.management.base import CommandError
from django.db.models import QuerySet

from engine.models import Experiment, Membership, User
from engine.selectors.accounts import account
from engine.selectors.experiments import every_experiment, numbered, of_name
from engine.selectors.guests import guest_called

_SHOWN = 20


def find_experiment(name: str) -> Experiment:
    """An experiment by name, by `owner/name`, or by number.

    Raises
    ------
    CommandError
        None or several match; the message lists them.
    """
    if (found := named(name)) is not None:
        return found
    if name.isascii() and name.isdigit() and (by_number := numbered(int(name))):
        return by_number
    raise CommandError(
        f"There is no experiment {name}. There are: {_listed(every_experiment()) or 'none yet'}."
    )


def find_experiments(name: Sequence[str]) -> list[Experiment]:
    """The experiments with these names, found like :func:`find_experiment`; all of them if none is named."""
    return [find_experiment(each) for each in name] or list(every_experiment())


def find_user(name: str) -> User:
    """The account of this user name, or of the guest with this identifier elsewhere.

    Raises
    ------
    CommandError
        There is none.
    """
    if (user := account(name) or guest_called(name)) is None:
        raise CommandError(f"There is no account {name!r}. manage.py createsuperuser makes one.")
    return user


def named(name: str) -> Experiment | None:
    """The experiment of this name, or of this `owner/name`; ``None`` if it does not exist.

    Raises
    ------
    CommandError
        There are several.
    """
    owner, slash, of_owner = name.partition("/")
    for found in (of_name(name), *([of_name(of_owner, owner=owner)] if slash else [])):
        if found.count() > 1:
            raise CommandError(
                f"There are several experiments {name}: {_listed(found)}. Say which by owner/name or by "
                "number."
            )
        if (only := found.first()) is not None:
            return only
    return None


def _listed(experiments: QuerySet[Experiment]) -> str:
    """Numbers and names, with their owners, of the first ones."""
    some = list(experiments.prefetch_related("memberships__user")[: _SHOWN + 1])
    shown = [f"{each.pk} ({'/'.join([*_owners(each)[:1], each.name])})" for each in some[:_SHOWN]]
    return ", ".join(shown + ["…"] * (len(some) > _SHOWN))


def _owners(experiment: Experiment) -> list[str]:
    memberships = experiment.memberships.all()
    return [each.user.get_username() for each in memberships if each.role == Membership.Role.OWNER]
