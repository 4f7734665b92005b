"""Accounts and counts that every import of votes stores with the votes."""

import itertools
import re
import uuid
from collections.abc import Iterable, Sequence

from django.contrib.auth.hashers import make_password
from django.db import connection

from engine.domain.judgment_uuids import exchanged, mark
from engine.domain.texts import digest
from engine.models import Experiment, Judgment, PairCount, User
from engine.selectors.counts import tallied

# The record of a comparison whose pair no sampler chose.
PAST_PLAN = {"past": True}

NO_TEXT = "The file of past votes has no text of this response."

BATCH = 1000
# A user name has 150 characters; a number and the experiment's number take the rest.
_LONGEST_STEM = 110


def person_of(name: str) -> str:
    """The user name here of an annotator whom a file of votes names, in one form of Unicode.

    Cut a long name and add its digest: other names may begin alike.
    """
    normal = User.normalize_username(name)
    if len(normal) <= _LONGEST_STEM:
        return normal
    end = f"-{digest(normal)[:12]}"
    return normal[: _LONGEST_STEM - len(end)] + end


def name_in_file(username: str, experiment_id: int) -> str:
    """The name that a file of the experiment's votes has for the person of this account; the account's own
    name if no import made it.
    """
    return re.sub(rf"{suffix_of(experiment_id)}(-[0-9]+)?\Z", "", username)


def made_people(experiment: Experiment, names: Sequence[str]) -> dict[str, User]:
    """New accounts, one for each of these names, which `person_of` gave; nobody can log in to them.

    If an account of the name exists already, in any case, a number stands at the end, where `name_in_file`
    ignores it.
    """
    suffix = suffix_of(experiment.pk)
    existing = User.objects.filter(username__contains=suffix).values_list("username", flat=True)
    taken = {username.lower() for username in existing}
    accounts: dict[str, User] = {}
    for name in names:
        ends = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
        username = next(u for end in ends if (u := f"{name}{suffix}{end}").lower() not in taken)
        taken.add(username.lower())
        accounts[name] = User(username=username, password=make_password(None), is_active=False)
    User.objects.bulk_create(accounts.values(), batch_size=BATCH)
    return accounts


def suffix_of(experiment_id: int) -> str:
    """The end of the names of accounts that imports of votes make."""
    return f"@import-{experiment_id}"


def tokens_of(experiment: Experiment, uuids: Sequence[uuid.UUID | None]) -> list[uuid.UUID]:
    """A token for each new judgment, made from its UUID in the file.

    A judgment gets a random token if it has no UUID. It also gets one if a judgment with that UUID exists
    already because somebody imports votes a second time.
    """
    own = mark(experiment.pk)
    wanted = [each and exchanged(each, own) for each in uuids]
    given = [token for token in wanted if token]
    taken: set[uuid.UUID] = set()
    for start in range(0, len(given), BATCH):
        there = Judgment.objects.filter(token__in=given[start : start + BATCH])
        taken.update(there.values_list("token", flat=True))
    tokens = []
    for token in wanted:
        tokens.append(uuid.uuid4() if token is None or token in taken else token)
        taken.add(tokens[-1])
    return tokens


def add_to_counts(experiment: Experiment, outcomes: Iterable[tuple[int, int, float]]) -> None:
    """Add outcomes ``(i, j, D)`` to the counts of their pairs, in the caller's transaction."""
    added = tallied(outcomes)
    rows = PairCount.objects.filter(experiment=experiment).order_by("pk")
    table = connection.ops.quote_name(PairCount._meta.db_table)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {table} SET wins_i = wins_i + %s, comparisons = comparisons + %s WHERE id = %s",  # noqa: S608
            [
                (*added[i, j], pk)
                for pk, i, j in rows.values_list("pk", "policy_i__index", "policy_j__index")
                if (i, j) in added
            ],
        )
