"""The page of members: who sees it, who changes it."""

from __future__ import annotations

import pytest
from django.urls import reverse

from engine.models import Invitation, Membership
from tests.factories import add_member, make_experiment, make_user
from tests.labeling.ladder import invited
from tests.markup import words

pytestmark = pytest.mark.django_db


def member_of(experiment, user) -> Membership:
    return experiment.memberships.get(user=user)


def post(client, name, experiment, pk, **form):
    return client.post(reverse(name, args=[experiment.pk, pk]), form)


def test_members_are_listed_with_their_roles(experiment, owner, editor, viewer, client_for):
    text = words(client_for(editor).get(reverse("people", args=[experiment.pk])))
    for line in ("ann annotator", "editor editor", "owner owner", "viewer viewer"):
        assert line in text
    assert "Remove" not in text, "which is an owner's to do"


def test_an_owner_makes_a_viewer_an_editor(experiment, owner, viewer, client_for):
    response = post(
        client_for(owner), "change_role", experiment, member_of(experiment, viewer).pk, role="editor"
    )
    assert response["Location"] == reverse("people", args=[experiment.pk])
    assert member_of(experiment, viewer).role == "editor"
    assert client_for(viewer).get(reverse("people", args=[experiment.pk])).status_code == 200


@pytest.mark.parametrize("role", ["", "superuser", "OWNER"])
def test_a_role_that_there_is_not_is_a_bad_request(role, experiment, owner, viewer, client_for):
    response = post(client_for(owner), "change_role", experiment, member_of(experiment, viewer).pk, role=role)
    assert response.status_code == 400
    assert member_of(experiment, viewer).role == "viewer"


def test_an_editor_makes_nobody_an_owner(experiment, editor, client_for):
    response = post(
        client_for(editor), "change_role", experiment, member_of(experiment, editor).pk, role="owner"
    )
    assert response.status_code == 404
    assert member_of(experiment, editor).role == "editor"


def test_who_is_removed_is_out_at_once(experiment, owner, viewer, client_for):
    client = client_for(viewer)
    post(client_for(owner), "remove_member", experiment, member_of(experiment, viewer).pk)
    assert client.get(reverse("dashboard", args=[experiment.pk])).status_code == 404


def test_the_only_owner_cannot_go_and_is_told_why(experiment, owner, client_for):
    client = client_for(owner)
    post(client, "remove_member", experiment, member_of(experiment, owner).pk)
    assert "owner is the only owner" in words(client.get(reverse("people", args=[experiment.pk])))
    assert member_of(experiment, owner).role == "owner"


def test_an_owner_who_leaves_is_led_home(experiment, owner, client_for):
    add_member(experiment, make_user(), "owner")
    response = post(client_for(owner), "remove_member", experiment, member_of(experiment, owner).pk)
    assert response["Location"] == reverse("home")


def test_a_member_of_another_experiment_is_not_reached_through_ones_own(experiment, owner, client_for):
    elsewhere = add_member(make_experiment(), make_user(), "viewer")
    assert post(client_for(owner), "remove_member", experiment, elsewhere.pk).status_code == 404
    assert Membership.objects.filter(pk=elsewhere.pk).exists()


def test_an_invitation_is_made_and_ended_here(experiment, editor, client_for, client):
    mine = client_for(editor)
    form = {"role": "viewer", "most_uses": 3, "valid_days": 2}
    response = mine.post(reverse("invite", args=[experiment.pk]), form)
    assert response["Location"] == reverse("people", args=[experiment.pk])
    invitation = Invitation.objects.get()
    link = reverse("join", args=[invitation.token])
    assert link in words(mine.get(response["Location"]))
    post(mine, "end_invitation", experiment, invitation.pk)
    assert link not in words(mine.get(response["Location"]))
    assert client.get(link).status_code == 410


def test_an_editor_does_not_end_an_owners_invitation(experiment, editor, client_for):
    invitation = invited(experiment, role="owner")
    assert post(client_for(editor), "end_invitation", experiment, invitation.pk).status_code == 404
