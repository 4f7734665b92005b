"""One's own account: password, e-mail, second step, sessions."""

import re
from io import StringIO
from time import time

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.core import mail
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from engine.models import AuditEntry, Token, User
from engine.services.tokens import make_token
from tests.accounts import PASSWORD, is_logged_in, log_in_recently
from tests.factories import invited, make_user

pytestmark = pytest.mark.django_db

NEW = "another long password"
TWICE = {"password1": NEW, "password2": NEW}


def log_in(user: User, password: str = PASSWORD, **extra: str) -> Client:
    """A browser in which this user has typed name and password."""
    client = Client(**extra)
    client.post(reverse("login"), {"username": user.username, "password": password})
    return client


def code_of(secret: str, steps: int = 0) -> str:
    """The code of an authenticator app, ``steps`` half minutes from now."""
    return format_hotp_value(hotp_value(secret, int(time()) // 30 + steps))


def turn_on_two_steps(client: Client) -> tuple[str, list[str]]:
    """The secret and the recovery codes, read from the pages as a person would."""
    page = client.get(reverse("mfa_activate_totp")).content.decode()
    secret = re.search(r'<code class="secret">(\w+)</code>', page).group(1)
    response = client.post(reverse("mfa_activate_totp"), {"code": code_of(secret)}, follow=True)
    return secret, re.findall(r"<li><code>(\d+)</code></li>", response.content.decode())


@pytest.fixture
def mail_works(settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    settings.SITE_URL = "http://testserver"


@pytest.fixture
def no_mail(settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"


def link_in(message: mail.EmailMessage) -> str:
    return re.search(r"http://testserver(/\S+)", message.body).group(1)


# ---------------------------------------------------------------- password


def test_changing_the_password_ends_the_other_sessions_and_keeps_this_one(annotator):
    here, there = log_in(annotator), log_in(annotator)
    form = {"oldpassword": PASSWORD, **TWICE}
    assert here.post(reverse("account_change_password"), form)["Location"] == reverse("account")
    assert is_logged_in(here)
    assert not is_logged_in(there)
    assert not is_logged_in(log_in(annotator))
    assert is_logged_in(log_in(annotator, NEW))


def test_the_cookie_of_the_session_changes_with_the_login_and_again_with_the_password(annotator, client):
    """A cookie planted before the login opens nothing after it."""
    session = client.session
    session["planted"] = True
    session.save()
    planted = client.cookies["sessionid"].value
    client.post(reverse("login"), {"username": "ann", "password": PASSWORD})
    after_login = client.cookies["sessionid"].value
    assert after_login != planted
    client.post(reverse("account_change_password"), {"oldpassword": PASSWORD, **TWICE})
    assert client.cookies["sessionid"].value != after_login
    stale = Client()
    stale.cookies["sessionid"] = after_login
    assert not is_logged_in(stale)


def test_a_link_by_email_sets_a_new_password_once(annotator, mail_works):
    EmailAddress.objects.create(user=annotator, email="ann@example.org", verified=True, primary=True)
    elsewhere, client = log_in(annotator), Client()
    client.post(reverse("account_reset_password"), {"email": "ann@example.org"})
    (message,) = mail.outbox
    assert message.to == ["ann@example.org"]
    path = link_in(message)
    form_at = client.get(path)["Location"]
    assert client.post(form_at, TWICE).status_code == 302
    assert is_logged_in(client)
    assert not is_logged_in(elsewhere)
    assert is_logged_in(log_in(annotator, NEW))
    again = Client()
    assert "This link no longer works." in again.get(path).content.decode()


def test_a_link_by_email_leads_to_the_site_whatever_the_request_says(annotator, mail_works):
    """Anybody may ask for somebody's link, and ``ALLOWED_HOSTS`` looks at no port."""
    EmailAddress.objects.create(user=annotator, email="ann@example.org", verified=True, primary=True)
    elsewhere = {"Host": "testserver:6666"}
    Client().post(reverse("account_reset_password"), {"email": "ann@example.org"}, headers=elsewhere)
    form = {"email": "ann.married@example.org", "action_add": ""}
    log_in(annotator).post(reverse("account_email"), form, headers=elsewhere)
    assert len(mail.outbox) == 2
    for message in mail.outbox:
        assert "http://testserver/accounts/" in message.body
        assert "6666" not in message.body


def test_an_address_that_nobody_has_is_answered_alike(annotator, client, mail_works):
    known = client.post(reverse("account_reset_password"), {"email": "ann@example.org"}, follow=True)
    unknown = Client().post(reverse("account_reset_password"), {"email": "bob@example.org"}, follow=True)
    pages = [re.sub(r'value="\w{64}"|"X-CSRFToken": "\w+"', "", p.content.decode()) for p in (known, unknown)]
    assert pages[0] == pages[1]


def test_links_by_email_are_limited_per_address_of_the_mailbox(client, mail_works):
    form = {"email": "victim@example.org"}
    statuses = [client.post(reverse("account_reset_password"), form).status_code for _ in range(4)]
    assert statuses == [302, 302, 302, 429]


def test_a_mail_server_that_is_away_changes_no_answer(annotator, client, mail_works, monkeypatch):
    EmailAddress.objects.create(user=annotator, email="ann@example.org", verified=True, primary=True)
    monkeypatch.setattr(
        "django.core.mail.EmailMessage.send", lambda *_a, **_k: (_ for _ in ()).throw(OSError)
    )
    response = client.post(reverse("account_reset_password"), {"email": "ann@example.org"})
    assert response["Location"] == reverse("account_reset_password_done")


def test_where_no_mail_is_sent_the_page_says_whom_to_ask(client, no_mail, settings):
    settings.SITE_CONTACT = "Jo Doe, room 5"
    page = client.get(reverse("account_reset_password")).content.decode()
    assert "This site sends no e-mail." in page
    assert "Jo Doe, room 5" in page
    assert client.post(reverse("account_reset_password"), {"email": "a@example.org"}).status_code == 404
    assert "form" not in re.search(r"<main.*?</main>", page, re.DOTALL).group()


def test_the_command_makes_a_link_that_works_once_and_is_in_the_log(annotator, no_mail, settings):
    settings.SITE_URL = "https://label.example.org"
    out = StringIO()
    call_command("reset_link", "ann", stdout=out)
    path = out.getvalue().strip().removeprefix("https://label.example.org")
    client = Client()
    client.post(client.get(path)["Location"], TWICE)
    assert is_logged_in(client)
    assert "no longer works" in Client().get(path).content.decode()
    entry = AuditEntry.objects.get(action=AuditEntry.Action.RESET_LINK)
    assert entry.text == "Made a link with which ann may set a new password."


# ---------------------------------------------------------------- e-mail


def test_an_address_counts_once_its_link_was_opened(annotator, mail_works):
    client = log_in(annotator)
    client.post(reverse("account_email"), {"email": "ann@example.org", "action_add": ""})
    assert not EmailAddress.objects.get(user=annotator).verified
    path = link_in(mail.outbox[0])
    assert "ann@example.org" in client.get(path).content.decode()
    assert not EmailAddress.objects.get(user=annotator).verified, "a mail scanner that reads links confirms"
    client.post(path)
    annotator.refresh_from_db()
    assert EmailAddress.objects.get(user=annotator).verified
    assert annotator.email == "ann@example.org"


def test_who_joins_may_give_an_address_where_mail_is_sent(experiment, client, mail_works):
    page = client.get(reverse("join", args=[invited(experiment).token]), follow=True)
    assert 'name="email"' in page.content.decode()
    path = reverse("accept_invitation")
    client.post(path, {"username": "new", "email": "new@example.org", "password1": NEW, "password2": NEW})
    assert is_logged_in(client)
    assert EmailAddress.objects.get(user__username="new").email == "new@example.org"
    assert mail.outbox[0].to == ["new@example.org"]


# ---------------------------------------------------------------- sessions and tokens


@pytest.mark.parametrize("tokens", [False, True])
def test_logging_out_everywhere_ends_all_sessions_and_the_tokens_if_asked(tokens, annotator, client_for):
    here, there = log_in(annotator), log_in(annotator)
    # A session that was made past allauth is in no list, and ends all the same.
    unlisted, bobs = client_for(annotator), log_in(make_user("bob"))
    _, secret = make_token(user=annotator, name="script", valid_days=1)
    response = here.post(reverse("log_out_everywhere"), {"tokens": "on"} if tokens else {})
    assert response["Location"] == reverse("login")
    assert not any(is_logged_in(client) for client in (here, there, unlisted))
    assert is_logged_in(bobs)
    status = Client().get("/api/experiments", headers={"Authorization": f"Bearer {secret}"}).status_code
    assert status == (401 if tokens else 200)
    assert AuditEntry.objects.filter(action=AuditEntry.Action.LOG_OUT, by=annotator).count() == 1
    assert is_logged_in(log_in(annotator))


def test_a_session_does_not_come_back_with_the_account(annotator):
    """An account that is closed since somebody else is in it must not let them in again when it is opened."""
    client = log_in(annotator)
    for is_active in (False, True):
        annotator.is_active = is_active
        annotator.save()
    assert not is_logged_in(client)
    assert is_logged_in(log_in(annotator))


# ---------------------------------------------------------------- second step


def test_with_a_second_step_the_password_alone_opens_nothing(annotator):
    secret, codes = turn_on_two_steps(log_in(annotator))
    assert len(codes) == 10
    client = log_in(annotator)
    assert not is_logged_in(client)
    wrong = client.post(reverse("mfa_authenticate"), {"code": "000000"})
    assert "This code is not right." in wrong.content.decode()
    assert not is_logged_in(client)
    client.post(reverse("mfa_authenticate"), {"code": code_of(secret)})
    assert is_logged_in(client)


def test_a_code_works_once(annotator):
    """A code that was used once is refused, even if a stranger has read it."""
    secret, _ = turn_on_two_steps(log_in(annotator))
    code = code_of(secret, 1)
    first, second = log_in(annotator), log_in(annotator)
    first.post(reverse("mfa_authenticate"), {"code": code})
    second.post(reverse("mfa_authenticate"), {"code": code})
    assert is_logged_in(first)
    assert not is_logged_in(second)


def test_guessing_codes_is_limited(annotator, settings):
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"login_failed": "3/15m/key"}
    secret, _ = turn_on_two_steps(log_in(annotator))
    client = log_in(annotator)
    for _ in range(3):
        client.post(reverse("mfa_authenticate"), {"code": "000000"})
    page = client.post(reverse("mfa_authenticate"), {"code": code_of(secret)}).content.decode()
    assert "Too many attempts" in page
    assert not is_logged_in(client)


def test_the_secret_is_not_in_the_database_as_it_is(annotator):
    secret, _ = turn_on_two_steps(log_in(annotator))
    stored = Authenticator.objects.get(type=Authenticator.Type.TOTP).data
    assert secret not in str(stored)


def test_a_new_secret_key_keeps_second_steps_while_the_old_one_is_named(annotator, settings):
    secret, _ = turn_on_two_steps(log_in(annotator))
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key that is long enough to be one"
    client = log_in(annotator)
    client.post(reverse("mfa_authenticate"), {"code": code_of(secret, 1)})
    assert is_logged_in(client)


def test_a_link_for_a_new_password_does_not_go_round_the_second_step(annotator):
    turn_on_two_steps(log_in(annotator))
    out = StringIO()
    call_command("reset_link", "ann", stdout=out)
    client = Client()
    path = out.getvalue().strip().removeprefix("http://localhost:8000")
    assert client.post(client.get(path)["Location"], TWICE)["Location"] == reverse("mfa_authenticate")
    assert not is_logged_in(client)


def test_the_command_takes_the_second_step_away_from_who_lost_the_phone(annotator):
    turn_on_two_steps(log_in(annotator))
    call_command("reset_link", "ann", "--without-second-step", stdout=StringIO())
    assert is_logged_in(log_in(annotator))
    assert "Turned off its second step." in AuditEntry.objects.get(action="reset_link").sentence


def test_the_admin_site_has_no_way_round_the_second_step(admin):
    turn_on_two_steps(log_in(admin))
    client = Client()
    form = {"username": "admin", "password": PASSWORD, "next": "/admin/"}
    response = client.post(reverse("admin:login"), form)
    assert response["Location"].startswith(reverse("login"))
    assert client.get(reverse("admin:index"), follow=True).redirect_chain[-1][0].startswith(reverse("login"))
    client.post(reverse("login"), form)
    assert client.get(reverse("admin:index"), follow=True).wsgi_request.user.is_anonymous


def test_the_admin_site_shows_no_secret_of_a_second_step(admin):
    client = log_in(admin)
    turn_on_two_steps(client)
    row = Authenticator.objects.get(type=Authenticator.Type.TOTP)
    page = client.get(reverse("admin:mfa_authenticator_change", args=[row.pk])).content.decode()
    assert row.data["secret"] not in page


# ---------------------------------------------------------------- asked again


@pytest.fixture
def left_open(owner) -> Client:
    """An owner's browser, logged in an hour ago."""
    client = log_in(owner)
    log_in_recently(client, owner, seconds_ago=3600)
    return client


def confirm(client: Client, response: object, password: str = PASSWORD):
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("account_reauthenticate"))
    return client.post(response["Location"], {"password": password})


def test_a_token_is_made_only_after_confirming_and_then_without_typing_again(left_open):
    response = left_open.post(reverse("tokens"), {"name": "script", "valid_days": 5, "scopes": ["read"]})
    assert not Token.objects.exists()
    assert "This is not your password." in confirm(left_open, response, "wrong").content.decode()
    assert not Token.objects.exists()
    made = confirm(left_open, response)
    assert Token.objects.get().name == "script"
    assert "Copy it now" in made.content.decode()
