"""Guests of an experiment: the link by which somebody came, and how far each has got."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Q

from engine.models import Allowance, Experiment, Invitation, InvitationUse, Judgment, User
from engine.selectors.admission import failed
from engine.selectors.missing import is_capped


def link_of(experiment: Experiment, user: User) -> Invitation | None:
    """The link for guests by which this person came here."""
    return Invitation.objects.filter(experiment=experiment, guests=True, used_by__user=user).first()


def guests_link(invitation_id: int | None) -> Invitation | None:
    """The invitation, if it is a link for guests."""
    return Invitation.objects.filter(pk__in=[invitation_id], guests=True).first()


def guest_called(outside_id: str) -> User | None:
    """A guest with this identifier elsewhere."""
    return User.objects.filter(invitation_uses__outside_id=outside_id).first()


def has_links(experiment: Experiment) -> bool:
    """True if there was a link for guests."""
    return experiment.invitations.filter(guests=True).exists()


@dataclass(frozen=True)
class Guest:
    """A guest. ``state``: working, done, screened out (they failed the gold items) or capped (they left too
    many pairs). ``parameters``: of the link each time that they came, as JSON.
    """

    id: str
    name: str
    joined_at: datetime
    last_answer_at: datetime | None
    answers: int
    state: str
    parameters: str


def guests(experiment: Experiment) -> Iterator[Guest]:
    """The guests, in the order in which they came."""
    uses = InvitationUse.objects.filter(invitation__experiment=experiment, invitation__guests=True)
    people = uses.values("user")
    given = Q(comparison__experiment=experiment) | Q(assignment__experiment=experiment)
    answers = {
        user: (n, last)
        for user, n, last in Judgment.objects.filter(given, annotator__in=people, standing=True)
        .order_by()
        .values_list("annotator")
        .annotate(n=Count("pk"), last=Max("created_at"))
    }
    allowances = {
        each.annotator_id: each
        for each in Allowance.objects.filter(experiment=experiment, annotator__in=people)
    }
    screened_out = failed(experiment)
    for use in uses.select_related("user").order_by("pk"):
        n, last = answers.get(use.user_id, (0, None))
        allowance = allowances.get(use.user_id)
        name = use.user.get_username()
        state = "working"
        if name in screened_out:
            state = "screened out"
        elif allowance is not None and is_capped(allowance.skipped, allowance.shown):
            state = "capped"
        elif allowance is not None and allowance.most_answers is not None and n >= allowance.most_answers:
            state = "done"
        yield Guest(use.outside_id, name, use.at, last, n, state, json.dumps(use.parameters))
