"""The way in: making a link, following it, signing up, the guidelines."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.models import Experiment, Invitation, User
from tests.factories import add_member, make_experiment, make_user
from tests.labeling.ladder import invited
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db

SIGN_UP = {"username": "newcomer", "password1": "a very long phrase", "password2": "a very long phrase"}


def link(invitation: Invitation) -> str:
    return reverse("join", args=[invitation.token])


class TestJoin:
    def test_a_newcomer_signs_up_is_logged_in_and_finds_the_guidelines(self, experiment, client):
        url = link(invited(experiment))
        page = client.get(url)
        assert page.status_code == 200
        assert experiment.name in words(page)
        response = client.post(url, SIGN_UP, follow=True)
        assert response.redirect_chain == [(reverse("welcome", args=[experiment.pk]), 302)]
        user = User.objects.get(username="newcomer")
        assert (user.is_staff, user.is_superuser) == (False, False)
        assert [str(member) for member in user.memberships.all()] == [
            f"newcomer is annotator of {experiment.name}"
        ]
        assert client.get(reverse("pair", args=[experiment.pk])).status_code == 200

    def test_who_is_logged_in_joins_with_one_press(self, experiment, stranger, client_for):
        client, url = client_for(stranger), link(invited(experiment))
        page = Markup(client.get(url).content.decode())
        assert "You are logged in as stranger." in page.text
        assert not [e for e in page.elements if e.attributes.get("type") == "password"]
        assert not stranger.memberships.exists()  # looking is not joining
        assert client.post(url)["Location"] == reverse("welcome", args=[experiment.pk])
        assert stranger.memberships.get().role == "annotator"

    @pytest.mark.parametrize("role", ["viewer", "editor", "owner"])
    def test_who_is_to_watch_is_led_to_the_dashboard(self, role, experiment, client):
        response = client.post(link(invited(experiment, role=role)), SIGN_UP, follow=True)
        assert response.redirect_chain == [(reverse("dashboard", args=[experiment.pk]), 302)]
        assert response.status_code == 200

    def test_a_link_that_is_used_up_says_so_and_makes_no_account(self, experiment, client):
        url = link(invited(experiment))
        client.post(url, SIGN_UP)
        for response in (
            Client().get(url),
            Client().post(url, SIGN_UP | {"username": "second"}),
        ):
            assert response.status_code == 410
            assert "This invitation has been used up." in words(response)
        assert not User.objects.filter(username="second").exists()

    def test_who_follows_a_used_link_again_is_not_turned_away_as_a_stranger(self, experiment, client):
        """The back button, or the link kept as a bookmark."""
        url = link(invited(experiment))
        client.post(url, SIGN_UP)
        response = client.post(url)
        assert response.status_code == 302
        assert Invitation.objects.get().uses == 1

    def test_an_expired_link_says_so(self, experiment, client):
        url = link(invited(experiment, expires_at=timezone.now() - timedelta(seconds=1)))
        for response in (client.get(url), client.post(url, SIGN_UP)):
            assert response.status_code == 410
            assert "This invitation has expired." in words(response)
        assert not User.objects.filter(username="newcomer").exists()

    def test_a_made_up_link_tells_nothing_about_any_experiment(self, experiment, client):
        response = client.get(reverse("join", args=[uuid.uuid4()]))
        assert response.status_code == 410
        assert experiment.name not in words(response)

    @pytest.mark.parametrize("token", ["x", "1", "0" * 35])
    def test_what_is_no_token_is_not_found(self, token, client):
        assert client.get(f"/join/{token}/").status_code == 404

    @pytest.mark.parametrize(
        "change",
        [
            {"username": ""},
            {"username": "taken"},
            {"username": "no spaces, please"},
            {"password2": "something else"},
            {"password1": "short", "password2": "short"},
            {"password1": "password", "password2": "password"},
            {"password1": "", "password2": ""},
        ],
        ids=str,
    )
    def test_a_bad_form_says_what_is_wrong_and_uses_nothing_up(self, change, experiment, client):
        make_user("taken")
        url = link(invited(experiment))
        response = client.post(url, SIGN_UP | change)
        assert response.status_code == 400
        alerts = [
            e for e in Markup(response.content.decode()).elements if e.attributes.get("role") == "alert"
        ]
        assert alerts
        assert Invitation.objects.get().uses == 0
        assert not User.objects.filter(username="newcomer").exists()

    def test_no_field_of_the_form_makes_a_superuser(self, experiment, client):
        client.post(
            link(invited(experiment)), SIGN_UP | {"is_superuser": "on", "is_staff": "on", "role": "owner"}
        )
        user = User.objects.get(username="newcomer")
        assert (user.is_staff, user.is_superuser, user.memberships.get().role) == (False, False, "annotator")

    def test_it_is_never_kept_by_a_cache(self, experiment, client):
        assert "no-store" in client.get(link(invited(experiment)))["Cache-Control"]


class TestWelcome:
    def test_it_shows_the_question_the_guidelines_and_where_to_start(self, annotator, client_for):
        experiment = make_experiment(
            annotators=(annotator,), guidelines="Prefer **short**.\n\n<b>raw</b>", practice=2, n_gold=2
        )
        response = client_for(annotator).get(reverse("welcome", args=[experiment.pk]))
        assert experiment.question in words(response)
        assert "<strong>short</strong>" in response.content.decode()
        assert "<b>raw</b>" not in response.content.decode()
        assert "The first 2 pairs are for practice" in words(response)
        assert f'href="{reverse("pair", args=[experiment.pk])}"' in response.content.decode()


class TestInvite:
    FORM = {"role": "annotator", "most_uses": 5, "valid_days": 7}  # noqa: RUF012 - never changed

    def test_the_link_is_on_the_dashboard_and_works(self, experiment, editor, client_for, client):
        response = client_for(editor).post(reverse("invite", args=[experiment.pk]), self.FORM, follow=True)
        invitation = Invitation.objects.get()
        assert (invitation.experiment, invitation.created_by) == (experiment, editor)
        assert (invitation.role, invitation.most_uses, invitation.uses) == ("annotator", 5, 0)
        assert f"http://testserver{link(invitation)}" in words(response)
        assert client.get(link(invitation)).status_code == 200

    @pytest.mark.parametrize(
        "change",
        [
            {"role": "superuser"},
            {"role": ""},
            {"most_uses": 0},
            {"most_uses": 1001},
            {"most_uses": "many"},
            {"valid_days": 0},
            {"valid_days": 366},
        ],
        ids=str,
    )
    def test_a_bad_form_is_told_so_and_makes_no_link(self, change, experiment, owner, client_for):
        response = client_for(owner).post(
            reverse("invite", args=[experiment.pk]), self.FORM | change, follow=True
        )
        assert "Give a role, a number of uses and of days, each at least one." in words(response)
        assert not Invitation.objects.exists()

    def test_an_editor_cannot_make_owners(self, experiment, editor, client_for):
        """Or an invitation would be a way to more rights than one has."""
        client_for(editor).post(reverse("invite", args=[experiment.pk]), self.FORM | {"role": "owner"})
        assert not Invitation.objects.exists()

    def test_only_who_runs_the_experiment_sees_the_links(self, experiment, viewer, client_for):
        invitation = invited(experiment)
        page = client_for(viewer).get(reverse("dashboard", args=[experiment.pk]))
        assert str(invitation.token) not in page.content.decode()

    def test_links_of_another_experiment_are_not_shown(self, experiment, owner, client_for):
        theirs = invited(make_experiment(name="Elsewhere"))
        page = client_for(owner).get(reverse("dashboard", args=[experiment.pk]))
        assert str(theirs.token) not in page.content.decode()


def test_one_link_makes_each_of_several_people_a_member(experiment):
    url = link(invited(experiment, most_uses=3))
    for number in range(3):
        assert Client().post(url, SIGN_UP | {"username": f"new{number}"}).status_code == 302
    assert Experiment.objects.get(pk=experiment.pk).memberships.filter(role="annotator").count() == 4


def test_a_member_by_other_means_follows_the_link_without_using_it(experiment, stranger, client_for):
    add_member(experiment, stranger)
    client_for(stranger).post(link(invited(experiment)))
    assert Invitation.objects.get().uses == 0
