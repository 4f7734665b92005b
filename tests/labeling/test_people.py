"""The page of members: who sees it, who changes it."""

import pytest
from django.urls import reverse

from engine.models import Membership
from engine.services import invitations
from tests.factories import invited
from tests.markup import words

pytestmark = pytest.mark.django_db


def member_of(experiment, user) -> Membership:
    return experiment.memberships.get(user=user)


def post(client, name, experiment, pk, **form):
    return client.post(reverse(name, args=[experiment.pk, pk]), form)


def test_an_owner_makes_a_viewer_an_editor(experiment, owner, viewer, client_for):
    response = post(
        client_for(owner), "change_role", experiment, member_of(experiment, viewer).pk, role="editor"
    )
    assert response["Location"] == reverse("people", args=[experiment.pk])
    assert member_of(experiment, viewer).role == "editor"
    assert client_for(viewer).get(reverse("people", args=[experiment.pk])).status_code == 200


def test_who_is_removed_is_out_at_once(experiment, owner, viewer, client_for):
    client = client_for(viewer)
    post(client_for(owner), "remove_member", experiment, member_of(experiment, viewer).pk)
    assert client.get(reverse("dashboard", args=[experiment.pk])).status_code == 404


def test_the_only_owner_cannot_go_and_is_told_why(experiment, owner, client_for):
    client = client_for(owner)
    post(client, "remove_member", experiment, member_of(experiment, owner).pk)
    assert "owner is the only owner" in words(client.get(reverse("people", args=[experiment.pk])))
    assert member_of(experiment, owner).role == "owner"


def test_an_invitation_is_made_and_ended_here(experiment, editor, client_for, client):
    mine = client_for(editor)
    page = reverse("people", args=[experiment.pk])
    invitation = invited(experiment, role="viewer", most_uses=3)
    assert f"{invitation.hint}… 0 of 3 used" in words(mine.get(page))
    response = post(mine, "end_invitation", experiment, invitation.pk)
    assert response["Location"] == page
    assert invitation.hint not in words(mine.get(page))
    assert client.get(reverse("join", args=[invitation.token]), follow=True).status_code == 410


class TestOwnerInvitations:
    """An editor read an owner's link on this page and became owner."""

    def test_an_editor_sees_none(self, experiment, editor, owner, client_for):
        invitation = invited(experiment, role="owner")
        seen = client_for(editor).get(reverse("people", args=[experiment.pk]))
        assert invitation.hint not in seen.content.decode()
        assert invitation.hint in words(client_for(owner).get(reverse("people", args=[experiment.pk])))
        log = client_for(editor).get(reverse("log", args=[experiment.pk])).content.decode()
        assert "Made an invitation: owner" in log
        assert invitation.token[:6] not in log

    def test_nobody_reads_any_link_again(self, experiment, owner, admin, client_for):
        invitation = invited(experiment, role="owner")
        for user in (owner, admin):
            seen = client_for(user).get(reverse("people", args=[experiment.pk]))
            assert invitation.token not in seen.content.decode()
            assert invitation.hash not in seen.content.decode()


def test_a_removal_says_how_many_links_ended_with_it(experiment, owner, editor, client_for):
    invitations.create_invitation(experiment=experiment, by=editor, role="viewer", most_uses=2, valid_days=2)
    client = client_for(owner)
    post(client, "remove_member", experiment, member_of(experiment, editor).pk)
    assert "1 open invitation that editor had made or used also ended." in words(
        client.get(reverse("people", args=[experiment.pk]))
    )
