"""Invitations: who they let in, how often, and for how long."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from engine.errors import InvitationError
from engine.models import Invitation, Membership
from engine.services.people import accept_invitation, create_invitation, open_invitation
from tests.engine.test_races import at_once, blocked
from tests.factories import add_member, make_experiment, make_user

pytestmark = pytest.mark.django_db


def invite(experiment, *, role="annotator", most_uses=1, valid_days=7) -> Invitation:
    return create_invitation(
        experiment=experiment, by=make_user(), role=role, most_uses=most_uses, valid_days=valid_days
    )


@pytest.fixture
def experiment(db):
    return make_experiment(running=False)


@pytest.mark.parametrize("role", Membership.Role.values)
def test_it_makes_a_member_in_its_role_of_its_experiment_alone(role, experiment):
    user = make_user()
    membership = accept_invitation(token=invite(experiment, role=role).token, user=user)
    assert (membership.experiment, membership.user, membership.role) == (experiment, user, role)
    assert list(Membership.objects.filter(user=user)) == [membership]


def test_a_single_use_link_lets_one_person_in(experiment):
    token = invite(experiment).token
    accept_invitation(token=token, user=make_user())
    with pytest.raises(InvitationError, match="used up"):
        open_invitation(token=token)
    late = make_user()
    with pytest.raises(InvitationError, match="used up"):
        accept_invitation(token=token, user=late)
    assert not late.memberships.exists()


def test_a_link_for_n_people_lets_exactly_n_in(experiment):
    token = invite(experiment, most_uses=3).token
    for _ in range(3):
        accept_invitation(token=token, user=make_user())
    with pytest.raises(InvitationError, match="used up"):
        accept_invitation(token=token, user=make_user())
    assert experiment.memberships.count() == 3


def test_following_it_twice_uses_it_once(experiment):
    invitation, user = invite(experiment, most_uses=2), make_user()
    first = accept_invitation(token=invitation.token, user=user)
    assert accept_invitation(token=invitation.token, user=user) == first
    invitation.refresh_from_db()
    assert invitation.uses == 1


def test_who_is_a_member_already_uses_nothing_up(experiment):
    invitation, user = invite(experiment), make_user()
    membership = add_member(experiment, user)
    assert accept_invitation(token=invitation.token, user=user) == membership
    invitation.refresh_from_db()
    assert invitation.uses == 0


def test_who_has_another_role_gets_this_one_too(experiment):
    user = make_user()
    add_member(experiment, user, "viewer")
    accept_invitation(token=invite(experiment).token, user=user)
    assert sorted(user.memberships.values_list("role", flat=True)) == ["annotator", "viewer"]


def test_after_its_last_day_it_lets_nobody_in(experiment):
    invitation = invite(experiment, most_uses=5, valid_days=1)
    assert timedelta(hours=23) < invitation.expires_at - timezone.now() <= timedelta(days=1)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    for call in (
        lambda: open_invitation(token=invitation.token),
        lambda: accept_invitation(token=invitation.token, user=make_user()),
    ):
        with pytest.raises(InvitationError, match="has expired"):
            call()
    assert not experiment.memberships.exists()


def test_a_made_up_link_is_no_invitation(experiment):
    for call in (
        lambda: open_invitation(token=uuid.uuid4()),
        lambda: accept_invitation(token=uuid.uuid4(), user=make_user()),
    ):
        with pytest.raises(InvitationError, match="no such invitation"):
            call()


def test_no_two_links_are_alike(experiment):
    assert invite(experiment).token != invite(experiment).token


def test_the_database_itself_refuses_one_use_too_many(experiment):
    invitation = invite(experiment)
    with pytest.raises(IntegrityError), transaction.atomic():
        Invitation.objects.filter(pk=invitation.pk).update(uses=2)


def accepted(token, user) -> bool:
    try:
        accept_invitation(token=token, user=user)
    except InvitationError:
        return False
    return True


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_as_many_get_in_as_it_is_for():
    experiment = make_experiment(running=False)
    token = invite(experiment, most_uses=2).token
    users = [make_user() for _ in range(5)]
    let_in = at_once([lambda user=user: accepted(token, user) for user in users])
    assert sum(let_in) == experiment.memberships.count() == Invitation.objects.get().uses == 2


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_who_comes_for_the_last_use_waits_for_who_was_first_and_is_refused():
    experiment = make_experiment(running=False)
    token = invite(experiment).token
    first, second = make_user(), make_user()
    with transaction.atomic():
        accept_invitation(token=token, user=first)
        late = blocked(lambda: accepted(token, second))
    assert late.result() is False
    assert [member.user for member in experiment.memberships.all()] == [first]
