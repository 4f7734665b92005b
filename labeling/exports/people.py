"""The names of people in an export: pseudonyms, unless an owner asks for user names."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q
from django.utils.crypto import salted_hmac

from engine.models import Experiment, Judgment, JudgmentVoid, Membership, User


def pseudonym(experiment: Experiment, user_id: int) -> str:
    """The name of a person in exports: one in all exports of an experiment, another one in each other
    experiment.

    Keyed with ``SECRET_KEY``: somebody who has the file and a list of all accounts cannot tell who is who.
    """
    keyed = salted_hmac("llmpo.exports.people", f"{experiment.pk} {user_id}", algorithm="sha256")
    return f"annotator-{keyed.hexdigest()[:12]}"


def names_of_people(experiment: Experiment, *, usernames: bool) -> dict[int, str]:
    """By id: everybody whose name may stand in an export of this experiment."""
    members = Membership.objects.filter(experiment=experiment, user=OuterRef("pk"))
    judgments = Judgment.objects.filter(comparison__experiment=experiment, annotator=OuterRef("pk"))
    voids = JudgmentVoid.objects.filter(judgment__comparison__experiment=experiment, by=OuterRef("pk"))
    # Superusers may void everywhere, and members may judge while the export is being written.
    people = User.objects.filter(
        Q(is_superuser=True) | Exists(members) | Exists(judgments) | Exists(voids)
    ).values_list("pk", "username")
    return {pk: name if usernames else pseudonym(experiment, pk) for pk, name in people}
