"""Lockouts after wrong passwords, and client addresses."""

import logging
import time
from ipaddress import ip_network
from types import SimpleNamespace

import pytest
from allauth.core.internal import ratelimit
from django.test import Client
from django.urls import reverse

from tests.accounts import PASSWORD
from tests.factories import make_user

pytestmark = pytest.mark.django_db

HOME, STRANGER, ELSEWHERE = "192.0.2.1", "198.51.100.66", "203.0.113.5"


@pytest.fixture(autouse=True)
def few_attempts(settings) -> None:
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {
        "login_failed": "3/15m/key",
        "login_failed_address": "6/15m/ip",
        "login_failed_name": "6/15m/key",
    }


def attempt(password: str, *, name: str = "ann", address: str = HOME, client: Client | None = None) -> int:
    form = {"username": name, "password": password}
    return (client or Client()).post(reverse("login"), form, REMOTE_ADDR=address).status_code


def attack_from_everywhere(name: str = "ann") -> None:
    """Wrong passwords from more addresses than any of the limits per address would notice."""
    statuses = [attempt("wrong", name=name, address=f"198.51.100.{k}") for k in range(1, 9)]
    assert statuses == [200] * 6 + [429] * 2


def test_wrong_passwords_from_one_address_close_the_name_there_and_nowhere_else(annotator):
    """A stranger must not lock the owner of a name out everywhere."""
    assert [attempt("wrong", address=STRANGER) for _ in range(4)] == [200, 200, 200, 429]
    assert attempt(PASSWORD, address=STRANGER) == 429
    assert attempt(PASSWORD, address=HOME) == 302


def test_an_address_that_tries_many_names_is_closed_for_all(annotator):
    """A few common passwords under very many names stay below every limit per name."""
    statuses = [attempt("wrong", name=f"name{k}", address=STRANGER) for k in range(7)]
    assert statuses == [200] * 6 + [429]
    assert attempt(PASSWORD, address=STRANGER) == 429
    assert attempt(PASSWORD, address=HOME) == 302


def test_right_passwords_of_an_office_do_not_close_its_address(annotator):
    for _ in range(10):
        assert attempt(PASSWORD) == 302


def test_a_right_password_does_not_wipe_out_the_wrong_ones_before_it(annotator):
    make_user("mallory")
    for k in range(6):
        attempt("wrong", name=f"name{k}", address=STRANGER)
        if k < 5:
            assert attempt(PASSWORD, name="mallory", address=STRANGER) == 302
    assert attempt("wrong", address=STRANGER) == 429


def test_guessing_from_everywhere_is_closed_to_unknown_browsers(annotator):
    attack_from_everywhere()
    assert attempt("wrong", address=ELSEWHERE) == 429


def test_a_browser_that_logged_in_before_is_not_closed_by_such_an_attack(annotator):
    known = Client()
    attempt(PASSWORD, client=known)
    known.post(reverse("logout"))
    attack_from_everywhere()
    assert attempt(PASSWORD, address=ELSEWHERE) == 429
    assert attempt(PASSWORD, client=known, address=ELSEWHERE) == 302


def test_an_address_from_which_the_name_is_logged_in_is_not_closed_either(annotator):
    """Its cookies may be gone: a private window, another browser."""
    attempt(PASSWORD, address=HOME)
    attack_from_everywhere()
    assert attempt(PASSWORD, address=HOME) == 302


def test_a_known_browser_has_a_limit_of_its_own(annotator):
    """A stolen cookie is worth three guesses, not a free pass."""
    known = Client()
    attempt(PASSWORD, client=known)
    known.post(reverse("logout"))
    assert [attempt("wrong", client=known, address=f"203.0.113.{k}") for k in range(4)] == [200] * 3 + [429]


def test_a_browser_is_known_under_its_own_names_only(annotator):
    """An account gives no advantage against the accounts of others."""
    make_user("mallory")
    mallorys = Client()
    attempt(PASSWORD, name="mallory", client=mallorys, address=ELSEWHERE)
    mallorys.post(reverse("logout"))
    attack_from_everywhere()
    assert attempt(PASSWORD, client=mallorys, address=ELSEWHERE) == 429


def test_a_forged_cookie_makes_no_browser_known(annotator):
    attack_from_everywhere()
    forger = Client()
    forger.cookies["known_browser"] = "eyJhIjoiYiJ9:1abcde:forged"
    assert attempt(PASSWORD, client=forger, address=ELSEWHERE) == 429


def test_whether_a_name_exists_shows_in_none_of_the_limits(annotator):
    attack_from_everywhere("ann")
    attack_from_everywhere("nobody")
    assert [attempt("wrong", name=name, address=ELSEWHERE) for name in ("ann", "nobody")] == [429, 429]


def test_capital_letters_open_no_second_count(annotator):
    statuses = [attempt("wrong", name=name) for name in ("ann", "Ann", "aNN", "ANN")]
    assert statuses == [200, 200, 200, 429]


def test_guessing_the_current_password_is_limited_and_looking_at_the_form_is_not(
    annotator, settings, client, monkeypatch
):
    """Five guesses a minute were allowed, which are 7,200 a day, to anybody with a session."""
    client.force_login(annotator)
    url = reverse("account_change_password")
    assert {client.get(url).status_code for _ in range(3 * settings.LOGIN_FAILURE_LIMIT)} == {200}
    form = {"oldpassword": "wrong", "password1": "another long one", "password2": "another long one"}
    answers = [client.post(url, form).status_code for _ in range(settings.LOGIN_FAILURE_LIMIT + 1)]
    assert answers == [200] * settings.LOGIN_FAILURE_LIMIT + [429]
    in_five_minutes = SimpleNamespace(time=lambda: time.time() + 300, monotonic=time.monotonic)
    monkeypatch.setattr(ratelimit, "time", in_five_minutes)
    assert client.post(url, form).status_code == 429


def test_the_confirmation_counts_as_the_login_does(annotator):
    client = Client()
    attempt(PASSWORD, client=client)
    for _ in range(3):
        client.post(reverse("account_reauthenticate"), {"password": "wrong"})
    assert client.post(reverse("account_reauthenticate"), {"password": PASSWORD}).status_code == 429


# ---------------------------------------------------------------- the client's address


def address_seen(*, peer: str, forwarded: str | None = None) -> str:
    """The address that the site took a request to be from."""
    headers = {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    return Client().get(reverse("login"), REMOTE_ADDR=peer, **headers).wsgi_request.META["REMOTE_ADDR"]


@pytest.fixture
def behind_proxies(settings) -> None:
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8:1::/48")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "192.0.2.1, 10.0.0.2", "192.0.2.1"),
        # The client's own entry stands on the left.
        ("10.0.0.1", "203.0.113.9, 192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "203.0.113.9, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", "192.0.2.1:4711", "192.0.2.1"),
        ("10.0.0.1", "[2001:db8:2::1]:4711", "2001:db8:2::1"),
        ("2001:db8:1::5", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "10.0.0.7, 10.0.0.2", "10.0.0.7"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.1, nonsense", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("::ffff:10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "203.0.113.9", "192.0.2.1"),
        # Not from a proxy of ours: nothing of it counts.
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
    ],
)
def test_the_first_address_from_the_right_that_is_no_proxy_of_ours(peer, forwarded, seen, behind_proxies):
    assert address_seen(peer=peer, forwarded=forwarded) == seen


@pytest.mark.parametrize("proxies", [None, []], ids=["unset", "none"])
def test_without_trusted_proxies_no_header_is_believed(proxies, settings):
    settings.TRUSTED_PROXIES = proxies
    assert address_seen(peer="192.0.2.1", forwarded="203.0.113.9") == "192.0.2.1"


def test_a_stranger_cannot_claim_https_either(behind_proxies, settings):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    path, claim = reverse("login"), {"HTTP_X_FORWARDED_PROTO": "https"}
    assert not Client().get(path, REMOTE_ADDR="192.0.2.1", **claim).wsgi_request.is_secure()
    assert Client().get(path, REMOTE_ADDR="10.0.0.1", **claim).wsgi_request.is_secure()


def test_a_server_behind_a_unix_socket_is_at_this_machine(settings):
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.1")]
    assert address_seen(peer="", forwarded="192.0.2.1") == "192.0.2.1"


def test_behind_a_proxy_clients_are_told_apart(annotator, behind_proxies):
    """Without it ten wrong passwords of one person closed the name to everybody."""

    def through_proxy(password: str, client_address: str) -> int:
        return (
            Client()
            .post(
                reverse("login"),
                {"username": "ann", "password": password},
                REMOTE_ADDR="10.0.0.1",
                HTTP_X_FORWARDED_FOR=client_address,
            )
            .status_code
        )

    assert [through_proxy("wrong", STRANGER) for _ in range(4)] == [200, 200, 200, 429]
    # A forged entry on the left opens no new count.
    assert through_proxy(PASSWORD, f"203.0.113.1, {STRANGER}") == 429
    assert through_proxy(PASSWORD, HOME) == 302


def test_the_addresses_of_one_household_are_one(annotator):
    assert [attempt("wrong", address=f"2001:db8::{k}") for k in range(1, 5)] == [200, 200, 200, 429]
    assert attempt("wrong", address="2001:db8:0:1::1") == 200


def test_ipv4_clients_are_told_apart_where_the_server_listens_on_ipv6_too(annotator):
    assert [attempt("wrong", address=f"::ffff:192.0.2.{k}") for k in range(1, 5)] == [200] * 4


def test_a_proxy_that_nobody_named_is_told_of_to_superusers(annotator, admin, client_for, settings, caplog):
    settings.TRUSTED_PROXIES = None
    words = "TRUSTED_PROXIES=10.0.0.1"
    assert words not in client_for(admin).get(reverse("home")).content.decode()
    with caplog.at_level(logging.WARNING, "labeling.accounts.client_address"):
        for _ in range(2):
            address_seen(peer="10.0.0.1", forwarded="192.0.2.1")
    assert [record for record in caplog.records if words in record.getMessage()] == caplog.records
    assert len(caplog.records) == 1
    assert words in client_for(admin).get(reverse("home")).content.decode()
    assert words not in client_for(annotator).get(reverse("home")).content.decode()
