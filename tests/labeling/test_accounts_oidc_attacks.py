"""Attacks on the login by OpenID Connect, by hostile people and broken providers."""

import time
from typing import Any
from urllib.parse import quote

import jwt
import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from environs import EnvError

from engine.models import Token, User
from labeling.accounts import oidc
from tests.accounts import is_logged_in, log_in_recently
from tests.factories import invited, make_user
from tests.labeling.test_accounts_oidc import LOGIN, go_through, verified, way_back
from tests.oidc_provider import a_provider, settings_for, signed
from tests.starting import settings_with

pytestmark = pytest.mark.django_db

NEW = {"sub": "99", "email": "new@example.org", "email_verified": True, "preferred_username": "newcomer"}


def join(client: Client, experiment) -> Any:
    """Follow an invitation and take the provider's account."""
    client.get(reverse("join", args=[invited(experiment).token]))
    return go_through(client, f"?next={reverse('accept_invitation')}")


def failures(caplog) -> list[str]:
    """The lines that the site itself wrote about logins, each to be one line."""
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("labeling.accounts")]
    assert not [line for line in lines if "\n" in line]
    return lines


def assert_failed(response, client: Client, caplog) -> None:
    assert response.status_code == 401
    assert "The login failed" in response.content.decode()
    assert not is_logged_in(client)
    assert len(failures(caplog)) == 1


class TestWhoseAccount:
    def test_an_address_opens_an_account_once(self, annotator, client, provider, caplog):
        verified(annotator)
        go_through(Client())
        provider.claims |= {"sub": "666"}
        page = go_through(client)
        assert page.status_code == 403
        assert "Ask an administrator." in page.content.decode()
        assert not is_logged_in(client)
        assert SocialAccount.objects.get().extra_data["sub"] == "1234"
        assert len(failures(caplog)) == 1

    def test_it_is_no_new_account_for_an_invitation_either(self, annotator, client, experiment, provider):
        verified(annotator)
        go_through(Client())
        provider.claims |= {"sub": "666"}
        assert join(client, experiment).status_code == 403
        assert not is_logged_in(client)

    def test_a_link_belongs_to_its_issuer(self, annotator, client, provider, settings):
        verified(annotator)
        go_through(Client())
        with a_provider() as another:
            for name, value in settings_for(another).items():
                setattr(settings, name, value)
            another.claims = {"sub": provider.claims["sub"]}
            assert go_through(client).status_code == 403
        assert not is_logged_in(client)
        assert SocialAccount.objects.get().extra_data == {"iss": provider.url, "sub": "1234"}

    def test_an_address_that_somebody_claims_does_not_lock_its_owner_out(
        self, annotator, client, experiment, provider
    ):
        EmailAddress.objects.create(user=annotator, email=NEW["email"], verified=False, primary=True)
        provider.claims = NEW
        assert join(client, experiment)["Location"] == reverse("welcome", args=[experiment.pk])
        assert User.objects.get(username="newcomer") == SocialAccount.objects.get().user

    @pytest.mark.parametrize("email_verified", [False, "true", None, 1])
    def test_an_address_that_the_provider_has_not_verified_is_not_kept(
        self, email_verified, client, experiment, provider
    ):
        provider.claims = NEW | {"email_verified": email_verified}
        join(client, experiment)
        assert User.objects.get(username="newcomer").email == ""
        assert not EmailAddress.objects.exists()

    def test_of_all_claims_two_are_kept(self, client, experiment, provider):
        provider.claims = NEW | {"groups": ["g" * 1000] * 1000, "name": "New Comer", "phone_number": "1"}
        join(client, experiment)
        assert SocialAccount.objects.get().extra_data == {"iss": provider.url, "sub": "99"}
        assert User.objects.get(username="newcomer").get_full_name() == ""

    def test_a_second_answer_about_one_new_person_at_once_is_no_error_of_ours(
        self, client, experiment, provider, monkeypatch
    ):
        provider.claims = NEW
        monkeypatch.setattr(
            "allauth.account.adapter.DefaultAccountAdapter.clean_username",
            lambda _, name, **how: make_user(name).username,
        )
        page = join(client, experiment)
        assert (page.status_code, is_logged_in(client)) == (503, False)
        assert "The login failed" in page.content.decode()


class TestConfirming:
    @pytest.fixture
    def left_open(self, experiment, client, provider) -> User:
        join(client, experiment)
        user = SocialAccount.objects.get().user
        log_in_recently(client, user, seconds_ago=3600)
        provider.logged_in_at = time.time() - 3600
        return user

    def may_make_tokens(self, client: Client) -> bool:
        client.post(reverse("tokens"), {"name": "script", "valid_days": 5, "scopes": ["read"]})
        return Token.objects.exists()

    @pytest.mark.parametrize("query", ["", "?auth_params=prompt%3Dnone", "?auth_params=max_age%3D99999"])
    def test_the_provider_is_always_asked_to_ask(self, query, client, left_open, provider):
        go_through(client, query)
        assert (provider.asked[-1]["prompt"], provider.asked[-1]["max_age"]) == ("login", "0")
        assert self.may_make_tokens(client)

    @pytest.mark.parametrize("auth_time", [1_700_000_000, None, 0])
    def test_a_provider_that_did_not_ask_has_confirmed_nothing(self, auth_time, client, left_open, provider):
        provider.instead = {"auth_time": auth_time}
        go_through(client)
        assert is_logged_in(client)
        assert not self.may_make_tokens(client)

    def test_a_login_is_as_recent_as_the_one_at_the_provider(self, left_open, provider):
        late, early = Client(), Client()
        go_through(late)
        assert not self.may_make_tokens(late)
        provider.logged_in_at = time.time()
        go_through(early)
        assert self.may_make_tokens(early)


@pytest.mark.parametrize(
    "query",
    [
        "?auth_params=" + quote("redirect_uri=https://evil.example&client_id=evil&state=evil&nonce=evil"),
        "?auth_params=" + quote("prompt=none&response_mode=fragment"),
        "?scope=admin,offline_access",
        "?action=reauthenticate&claims=everything",
    ],
)
def test_nothing_of_the_address_is_passed_on(query, annotator, client, provider):
    verified(annotator)
    go_through(Client())
    go_through(client, query)
    usual, asked = provider.asked
    once = {"state", "nonce", "code_challenge"}
    assert {name for name in usual.keys() | asked.keys() if usual.get(name) != asked.get(name)} == once
    assert is_logged_in(client)


_OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_NO_TOKENS = {
    "none": lambda claims: None,
    "empty": lambda claims: "",
    "no text": lambda claims: {"sub": "1234"},
    "no token": lambda claims: "a.b.c",
    "alg=none": lambda claims: jwt.encode(claims, "", algorithm="none", headers={"kid": "one"}),
    "alg=HS256": lambda claims: jwt.encode(claims, "s" * 32, algorithm="HS256", headers={"kid": "one"}),
    "wrong key": lambda claims: jwt.encode(claims, _OTHER_KEY, algorithm="RS256", headers={"kid": "one"}),
    "unknown key": lambda claims: jwt.encode(claims, _OTHER_KEY, algorithm="RS256", headers={"kid": "two"}),
    "no name of a key": lambda claims: jwt.encode(claims, _OTHER_KEY, algorithm="RS256"),
}


@pytest.mark.parametrize("id_token", _NO_TOKENS.values(), ids=_NO_TOKENS)
def test_an_answer_without_a_signed_id_token_is_refused(id_token, annotator, client, provider, caplog):
    verified(annotator)
    provider.id_token = id_token
    assert_failed(go_through(client), client, caplog)


@pytest.mark.parametrize(
    "instead",
    [
        {"aud": "somebody-else"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": 1},
        {"exp": None},
        {"iat": None},
        {"nonce": None},
        {"nonce": "of another attempt"},
        {"nonce": 5},
        {"sub": "somebody else"},
        {"sub": None},
        {"auth_time": "yesterday"},
    ],
    ids=str,
)
def test_an_id_token_about_something_else_is_refused(instead, annotator, client, provider, caplog):
    verified(annotator)
    provider.instead = instead
    assert_failed(go_through(client), client, caplog)


def test_an_id_token_of_another_attempt_is_refused(annotator, client, provider, caplog):
    verified(annotator)
    seen: list[str] = []
    provider.id_token = lambda claims: seen.append(signed(claims)) or seen[0]
    go_through(Client())
    assert_failed(go_through(client), client, caplog)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": ["1234"]},
        {"sub": "s" * 300},
        {"sub": "a\0b"},
        {"sub": "a\ud800b"},
        {"sub": "99", "preferred_username": 5},
        {"sub": "99", "preferred_username": "a\0b"},
        {"sub": "99", "preferred_username": "a\ud800b"},
        {"sub": "99", "email": {"a": 1}, "email_verified": True},
        {"sub": "99", "email": "a\0b@example.org", "email_verified": True},
    ],
    ids=repr,
)
def test_claims_that_cannot_be_kept_are_refused(claims, client, experiment, provider, caplog):
    provider.claims = claims
    before = User.objects.count()
    assert_failed(join(client, experiment), client, caplog)
    assert User.objects.count() - before == 1, "the person who invites"


def test_a_long_sub_and_name_are_no_trouble(client, experiment, provider):
    provider.claims = {"sub": "s" * 255, "preferred_username": "n" * 300}
    assert join(client, experiment).status_code == 302


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"token_endpoint": "http://sso.example.org/token"},
        {"jwks_uri": "http://sso.example.org/keys"},
        {"userinfo_endpoint": 5},
        {"authorization_endpoint": None},
    ],
    ids=str,
)
def test_a_configuration_of_another_or_without_https_is_refused(document, client, provider, caplog):
    provider.document = document
    response = client.post(LOGIN)
    assert response.status_code == 503
    assert "The login failed" in response.content.decode()
    assert len(failures(caplog)) == 1


@pytest.mark.parametrize("issuer", ["http://sso.example.org", "http://localhost.example.org", "ftp://sso"])
def test_an_issuer_without_https_stops_the_start(issuer):
    with pytest.raises(EnvError, match="OIDC_ISSUER"):
        settings_with(OIDC_ISSUER=issuer, OIDC_CLIENT_ID="me", OIDC_CLIENT_SECRET="s")


def test_an_issuer_on_this_machine_needs_no_https():
    asked = settings_with(OIDC_ISSUER="http://localhost:1", OIDC_CLIENT_ID="me", OIDC_CLIENT_SECRET="s")
    assert asked["OIDC_ISSUER"] == "http://localhost:1"


def test_a_provider_that_wants_the_secret_in_a_header_gets_it_there(annotator, client, provider):
    verified(annotator)
    provider.document = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    go_through(client)
    assert is_logged_in(client)


class TestASlowProvider:
    @pytest.mark.parametrize("path", ["/token", "/keys", "/userinfo"])
    def test_one_that_drips_is_left(self, path, annotator, client, provider, caplog, monkeypatch):
        verified(annotator)
        provider.slow = {path}
        back = way_back(client)
        monkeypatch.setattr(oidc, "_SECONDS", 0.5)
        assert_failed(client.get(back), client, caplog)

    def test_one_whose_configuration_drips_is_left(self, client, provider, caplog, monkeypatch):
        provider.slow = {"/.well-known/openid-configuration"}
        monkeypatch.setattr(oidc, "_SECONDS", 0.5)
        assert client.post(LOGIN).status_code == 503
        assert len(failures(caplog)) == 1

    def test_it_holds_three_threads_at_most(self, client, provider, monkeypatch):
        monkeypatch.setattr(oidc, "_PLACE_SECONDS", 0)
        for _ in range(3):
            oidc._PLACES.acquire()
        try:
            assert client.post(LOGIN).status_code == 503
            assert provider.answered == []
        finally:
            oidc._PLACES.release(3)
        assert client.post(LOGIN).status_code == 200

    def test_attempts_that_fail_are_limited_and_others_are_not(self, annotator, client, provider, settings):
        settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"provider_failed": "4/15m/ip"}
        verified(annotator)
        for _ in range(6):
            go_through(Client())
        provider.instead = {"nonce": "wrong"}
        assert [go_through(Client()).status_code for _ in range(4)] == [401] * 4
        assert go_through(client).status_code == 429


def test_the_configuration_and_the_keys_are_kept(annotator, provider):
    verified(annotator)
    for _ in range(3):
        go_through(Client())
    assert provider.answered.count("/.well-known/openid-configuration") == 1
    assert provider.answered.count("/keys") == 1


def test_a_new_key_of_the_provider_is_fetched(annotator, client, provider, monkeypatch):
    verified(annotator)
    go_through(Client())
    monkeypatch.setattr("tests.oidc_provider._KEY", _OTHER_KEY)
    monkeypatch.setattr(provider, "keys", lambda: {"keys": [_key_named("two")]})
    provider.id_token = lambda claims: jwt.encode(claims, _OTHER_KEY, "RS256", headers={"kid": "two"})
    go_through(client)
    assert is_logged_in(client)


def _key_named(name: str) -> dict[str, Any]:
    return jwt.algorithms.RSAAlgorithm.to_jwk(_OTHER_KEY.public_key(), as_dict=True) | {"kid": name}


class TestSessions:
    def test_a_press_of_nobody_makes_no_session(self, provider):
        strange = Client()
        strange.cookies["sessionid"] = "x" * 32
        for client in (Client(), strange):
            assert client.post(LOGIN).status_code == 200
        assert not Session.objects.exists()

    def test_a_login_that_fails_leaves_none(self, client, provider):
        assert go_through(client).status_code == 403
        assert not Session.objects.exists()

    def test_the_state_of_another_browser_counts_for_nothing(self, annotator, client, provider):
        verified(annotator)
        client.post(LOGIN)
        assert client.get(way_back(Client())).status_code == 401
        assert not is_logged_in(client)
        assert not Session.objects.exists()

    def test_a_forged_state_counts_for_nothing(self, client, provider):
        back = way_back(client)
        client.cookies["provider_login"] = client.cookies["provider_login"].value + "x"
        assert client.get(back).status_code == 401

    def test_nobody_elses_state_links_a_login_to_an_account(self, annotator, client_for, provider):
        """A cookie planted in the browser of somebody who is logged in."""
        attacker, victim = Client(), client_for(annotator)
        back = way_back(attacker, "?process=connect")
        victim.cookies["provider_login"] = attacker.cookies["provider_login"].value
        assert victim.get(back).status_code == 401
        assert not SocialAccount.objects.exists()
