"""Logging in with the organisation's accounts, against a real provider on this machine."""

import re
from datetime import timedelta
from html import unescape

import pytest
import requests
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.models import AuditEntry, Membership, Token, User
from engine.services.people import add_group, change_role, remove_group
from tests.accounts import log_in_recently
from tests.factories import invited, make_user
from tests.labeling.test_accounts import code_of, is_logged_in, log_in, turn_on_two_steps
from tests.starting import settings_with

pytestmark = pytest.mark.django_db

LOGIN = "/accounts/oidc/sso/login/"


def go_through(client: Client, query: str = ""):
    """Press the button, follow the redirect to the provider and back."""
    return client.get(way_back(client, query))


def way_back(client: Client, query: str = "") -> str:
    """The address to which the provider sends back a browser that started here."""
    page = client.post(LOGIN + query).content.decode()
    to_provider = unescape(re.search(r'<meta http-equiv="refresh" content="0; url=([^"]+)">', page)[1])
    back = requests.get(to_provider, allow_redirects=False, timeout=120).headers["Location"]
    return back.removeprefix("http://testserver")


def verified(user: User, email: str = "ann@example.org") -> EmailAddress:
    return EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)


def test_the_button_is_there_only_where_a_provider_is_set(client, db):
    assert "oidc" not in client.get(reverse("login")).content.decode()
    assert client.post(LOGIN).status_code == 404


def test_the_login_offers_it_and_leads_on_to_where_one_wanted_to_go(annotator, client, provider):
    verified(annotator)
    page = client.get(reverse("login"), {"next": "/label/7/"}).content.decode()
    assert "Log in with Example SSO" in page
    assert f'action="{LOGIN}?process=login&amp;next=%2Flabel%2F7%2F"' in page
    assert go_through(client, "?next=/label/7/")["Location"] == "/label/7/"
    assert go_through(Client(), "?next=https://evil.example/")["Location"] == "/"


def test_an_address_that_both_sides_verified_opens_the_account_and_links_it(annotator, client, provider):
    verified(annotator)
    go_through(client)
    assert client.session["_auth_user_id"] == str(annotator.pk)
    # From now on the number at the provider counts, not the address.
    provider.claims |= {"email": "ann.married@example.org"}
    again = Client()
    go_through(again)
    assert again.session["_auth_user_id"] == str(annotator.pk)
    assert is_logged_in(log_in(annotator)), "the password works too"


@pytest.mark.parametrize("email_verified", [False, "false", None])
def test_an_address_that_the_provider_has_not_verified_opens_nothing(
    email_verified, annotator, client, provider
):
    verified(annotator)
    provider.claims |= {"email_verified": email_verified}
    assert go_through(client).status_code == 403
    assert not is_logged_in(client)


def test_an_address_that_the_account_only_claims_opens_nothing(annotator, client, provider):
    """A person with another's address in their account must not get that person's visit."""
    EmailAddress.objects.create(user=annotator, email="ann@example.org", verified=False, primary=True)
    assert go_through(client).status_code == 403
    assert not is_logged_in(client)
    assert is_logged_in(log_in(annotator))


def test_a_stranger_gets_no_account(client, provider):
    page = go_through(client)
    assert page.status_code == 403
    assert "No account here is linked to this login." in page.content.decode()
    assert not User.objects.exists()


def test_a_stranger_with_an_invitation_gets_an_account_and_uses_it(experiment, client, provider):
    invitation = invited(experiment)
    provider.claims = {"sub": "99", "email": "new@example.org", "email_verified": True}
    provider.claims |= {"preferred_username": "newcomer"}
    page = client.get(reverse("join", args=[invitation.token]), follow=True)
    assert "Join with Example SSO" in page.content.decode()
    response = go_through(client, f"?next={reverse('accept_invitation')}")
    assert response["Location"] == reverse("welcome", args=[experiment.pk])
    assert "following-invitation" not in client.session, "used, so the next person here needs the link again"
    new = User.objects.get(username="newcomer")
    assert not new.has_usable_password()
    assert new.memberships.get().role == "annotator"
    invitation.refresh_from_db()
    assert invitation.uses == 1
    assert EmailAddress.objects.get(user=new).verified


@pytest.mark.parametrize("spoil", ["expired", "used up"])
def test_an_invitation_that_ended_meanwhile_makes_no_account(spoil, experiment, client, provider):
    invitation = invited(experiment)
    path = reverse("join", args=[invitation.token])
    client.get(path)
    if spoil == "expired":
        invitation.expires_at = timezone.now() - timedelta(days=1)
    else:
        invitation.uses = invitation.most_uses
    invitation.save()
    before = User.objects.count()
    assert go_through(client, f"?next={path}").status_code == 403
    assert User.objects.count() == before
    assert "following-invitation" not in client.session


def test_a_name_that_is_taken_is_given_to_nobody_twice(experiment, annotator, client, provider):
    provider.claims = {"sub": "99", "preferred_username": "ann"}
    path = reverse("join", args=[invited(experiment).token])
    client.get(path)
    go_through(client, f"?next={path}")
    assert SocialAccount.objects.get().user != annotator


def test_the_second_step_is_asked_for_after_the_provider_too(annotator, client, provider):
    verified(annotator)
    secret, _ = turn_on_two_steps(log_in(annotator))
    assert go_through(client)["Location"] == reverse("mfa_authenticate")
    assert not is_logged_in(client)
    client.post(reverse("mfa_authenticate"), {"code": code_of(secret, 1)})
    assert is_logged_in(client)


def test_who_is_deactivated_is_not_let_in_by_the_provider(client, provider):
    verified(make_user("gone", is_active=False))
    go_through(client)
    assert not is_logged_in(client)


def test_an_account_is_linked_and_unlinked_on_its_page(annotator, provider):
    client = log_in(annotator)
    assert "Link Example SSO" in client.get(reverse("socialaccount_connections")).content.decode()
    assert go_through(client, "?process=connect")["Location"] == reverse("account")
    link = SocialAccount.objects.get(user=annotator)
    assert is_logged_in(client)
    other = Client()
    go_through(other)
    assert is_logged_in(other)
    client.post(reverse("socialaccount_connections"), {"account": link.pk})
    assert not SocialAccount.objects.exists()


def test_the_last_way_in_cannot_be_unlinked(experiment, client, provider):
    path = reverse("join", args=[invited(experiment).token])
    client.get(path)
    go_through(client, f"?next={path}")
    client.post(reverse("socialaccount_connections"), {"account": SocialAccount.objects.get().pk})
    assert SocialAccount.objects.exists()


def test_a_login_that_is_linked_elsewhere_is_not_taken_over(annotator, provider):
    go_through(log_in(annotator), "?process=connect")
    bob = make_user("bob")
    go_through(log_in(bob), "?process=connect")
    assert SocialAccount.objects.get().user == annotator


def test_linking_asks_who_it_is(annotator, provider):
    client = log_in(annotator)
    log_in_recently(client, annotator, seconds_ago=3600)
    assert go_through(client, "?process=connect")["Location"] == reverse("account_reauthenticate")
    assert not SocialAccount.objects.exists()


def test_who_has_no_password_confirms_at_the_provider(experiment, client, provider):
    """Without this such an account was never asked: a browser left open made tokens."""
    path = reverse("join", args=[invited(experiment).token])
    client.get(path)
    go_through(client, f"?next={path}")
    user = SocialAccount.objects.get().user
    form = {"name": "script", "valid_days": 5, "scopes": ["read"]}
    log_in_recently(client, user, seconds_ago=3600)
    asked = client.post(reverse("tokens"), form)
    assert asked["Location"].startswith(reverse("confirm_by_oidc"))
    assert not Token.objects.exists()
    page = client.get(asked["Location"], headers={"Referer": "http://testserver/tokens/"}).content.decode()
    assert f"{LOGIN}?next=http%3A//testserver/tokens/" in page
    back = go_through(client, "?next=/tokens/")
    assert (provider.asked[-1]["prompt"], provider.asked[-1]["max_age"]) == ("login", "0")
    assert back["Location"] == "/tokens/"
    client.post(reverse("tokens"), form)
    assert Token.objects.get().user == user


class TestLeftOpenWithoutAPassword:
    """A browser that was left open, of an account whose only way in is the provider: allauth asked nothing of
    it, and somebody else could add a way in of their own and keep the account.
    """

    @pytest.fixture
    def user(self, experiment, client, provider) -> User:
        client.get(reverse("join", args=[invited(experiment).token]))
        go_through(client)
        user = SocialAccount.objects.get().user
        log_in_recently(client, user, seconds_ago=3600)
        return user

    def test_no_other_login_is_linked(self, user, client, provider):
        provider.claims = {"sub": "666", "preferred_username": "somebody-else"}
        go_through(client, "?process=connect")
        assert SocialAccount.objects.get().user == user

    def test_no_address_is_added(self, user, client):
        form = {"email": "somebody.else@example.org", "action_add": ""}
        asked = client.post(reverse("account_email"), form)
        assert asked["Location"].startswith(reverse("confirm_by_oidc"))
        assert not EmailAddress.objects.filter(email=form["email"]).exists()

    def test_no_second_step_is_turned_on(self, user, client):
        asked = client.get(reverse("mfa_activate_totp"))
        assert asked["Location"].startswith(reverse("confirm_by_oidc"))


def test_saying_no_at_the_provider_leads_back(client, provider):
    provider.refuse = True
    response = go_through(client)
    page = client.get(response["Location"], follow=True).content.decode()
    assert "The login was cancelled." in page


def test_opening_the_address_alone_starts_nothing(annotator, client, provider):
    verified(annotator)
    assert client.get(LOGIN).status_code == 200
    assert not provider.asked


def test_the_providers_tokens_are_not_kept(annotator, client, provider):
    verified(annotator)
    go_through(client)
    assert not SocialToken.objects.exists()


def roles_after_login(experiment, *groups: str, provider) -> list[str]:
    """The roles of the person who logs in, who is in these groups."""
    provider.claims |= {"groups": list(groups)}
    client = Client()
    go_through(client)
    held = experiment.memberships.filter(user=client.session["_auth_user_id"])
    return sorted(held.values_list("role", flat=True))


def test_a_group_gives_its_role_until_the_login_after_it_is_left(experiment, owner, provider):
    for group, role in (("labellers", "annotator"), ("leads", "editor")):
        add_group(experiment=experiment, group=group, role=role, by=owner)
    assert roles_after_login(experiment, "labellers", "others", provider=provider) == ["annotator"]
    member = Membership.objects.get(experiment=experiment, origin="group")
    assert not member.user.has_usable_password(), "a new account"
    assert roles_after_login(experiment, "labellers", "leads", provider=provider) == ["editor"], (
        "the stronger"
    )
    remove_group(group_role=experiment.group_roles.get(group="leads"), by=owner)
    assert roles_after_login(experiment, "labellers", "leads", provider=provider) == ["annotator"]
    assert roles_after_login(experiment, provider=provider) == []
    lost = AuditEntry.objects.filter(experiment=experiment, action="remove", about=member.user)
    assert [entry.details["role"] for entry in lost] == ["annotator", "editor", "annotator"]


def test_a_role_that_was_given_otherwise_stays_alone(experiment, owner, annotator, provider):
    verified(annotator)
    add_group(experiment=experiment, group="leads", role="editor", by=owner)
    assert roles_after_login(experiment, "leads", provider=provider) == ["annotator"]
    Membership.objects.filter(user=annotator).delete()
    assert roles_after_login(experiment, "leads", provider=provider) == ["editor"]
    change_role(membership_id=annotator.memberships.get().pk, by=owner, role="viewer")
    assert roles_after_login(experiment, provider=provider) == ["viewer"], (
        "by hand: the group is left, it stays"
    )


@pytest.mark.parametrize("groups", [[], ["others"], None, "others"])
def test_who_is_in_no_group_with_a_role_gets_no_account(groups, experiment, owner, client, provider):
    add_group(experiment=experiment, group="leads", role="editor", by=owner)
    provider.claims |= {"groups": groups}
    assert go_through(client).status_code == 403
    assert not is_logged_in(client)


@pytest.mark.parametrize("groups", [7, ["leads", 7]])
def test_groups_that_are_no_texts_are_a_failed_login(groups, experiment, owner, client, provider):
    add_group(experiment=experiment, group="leads", role="editor", by=owner)
    provider.claims |= {"groups": groups}
    go_through(client)
    assert not is_logged_in(client)


@pytest.mark.parametrize("groups", ["leads", ["others", "leads"], {"leads": {"12": "example.org"}}])
def test_groups_may_be_in_another_claim_of_the_id_token(
    groups, experiment, owner, settings, client, provider
):
    settings.OIDC_GROUPS_CLAIM = "roles"
    add_group(experiment=experiment, group="leads", role="editor", by=owner)
    provider.instead = {"roles": groups}
    go_through(client)
    assert experiment.memberships.get(origin="group").role == "editor"


def test_owners_name_groups_on_the_page_of_people(experiment, owner, client, provider):
    client.force_login(owner)
    log_in_recently(client, owner)
    url = reverse("add_group", args=[experiment.pk])
    client.post(url, {"group": "leads", "role": "editor"})
    assert client.post(url, {"group": "leads", "role": "owner"}).status_code == 400
    assert client.post(url, {"group": "", "role": "viewer"}).status_code == 400
    client.post(url, {"group": "leads", "role": "editor"})
    group = experiment.group_roles.get()
    assert "leads" in client.get(reverse("people", args=[experiment.pk])).content.decode()
    client.post(reverse("remove_group", args=[experiment.pk, group.pk]))
    assert not experiment.group_roles.exists()


def test_a_provider_that_is_away_is_no_error_of_ours(client, provider):
    provider.stop()
    response = client.post(LOGIN)
    assert response.status_code == 503
    assert "The login failed" in response.content.decode()


def test_it_is_set_by_environment_variables():
    read = settings_with(
        OIDC_ISSUER="https://sso.example.org/",
        OIDC_CLIENT_ID="me",
        OIDC_CLIENT_SECRET="s",
        OIDC_NAME="Example",
    )
    [app] = read["SOCIALACCOUNT_PROVIDERS"]["openid_connect"]["APPS"]
    assert (app["provider_id"], app["name"], app["client_id"]) == ("sso", "Example", "me")
    assert app["settings"]["server_url"] == "https://sso.example.org"


def test_some_of_its_variables_stop_the_start():
    with pytest.raises(ImproperlyConfigured, match="Set OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET"):
        settings_with(OIDC_ISSUER="https://sso.example.org")
