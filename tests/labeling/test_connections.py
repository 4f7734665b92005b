"""The page Models: a key goes in, and comes out nowhere."""

from importlib import import_module

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.urls import reverse

from engine.models import AuditEntry, Charge, Connection, Loan, Membership, User
from engine.services import connection_loans, connection_pauses, connections, keys
from engine.tasks import try_connection
from labeling.views import connections as views
from tests.accounts import log_in_recently
from tests.factories import add_member, make_experiment, make_user
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db

KEY = "sk-proj-0123456789abcdefghijklmnop-WXYZ"
FORM = {
    "whose": "site", "provider": "openai", "model_id": "gpt-5", "name": "", "key": KEY, "everybody": "on",
    "currency": "USD", "at_once": 16, "answer_seconds": 600,
}  # fmt: skip


@pytest.fixture
def maker() -> User:
    user = make_user("maker")
    user.user_permissions.add(Permission.objects.get(codename="add_experiment"))
    return user


@pytest.fixture(autouse=True)
def sent(monkeypatch) -> list:
    """The messages to workers."""
    messages: list = []
    monkeypatch.setattr(views, "wake", lambda task, *args: messages.append((task, args)))
    return messages


def make(owner: User | None = None, **values) -> Connection:
    values = {"name": "gpt", "provider": "openai", "model_id": "gpt-5", "key": KEY} | values
    return connections.make(by=owner, owner=owner, **values)


def test_it_is_made_with_its_key_and_tested_by_a_worker_that_gets_its_number(admin, client_for, sent):
    client = client_for(admin)
    answer = client.post(reverse("new_connection"), FORM)
    made = Connection.objects.get()
    assert answer["Location"] == reverse("connection", args=[made.pk])
    assert (made.name, made.owner, made.everybody, keys.target_of(made).key) == ("gpt-5", None, True, KEY)
    assert sent == [(try_connection, (made.pk,))]
    page = client.get(answer["Location"])
    assert "Being tested" in words(page)
    assert "…WXYZ" in words(page)
    assert KEY not in page.content.decode()
    assert "hx-get" in page.content.decode()


def test_one_who_makes_experiments_makes_their_own_alone(maker, client_for):
    client = client_for(maker)
    page = Markup(client.get(reverse("new_connection")).content.decode())
    assert not {"whose", "everybody"} & {e.attributes.get("name") for e in page.elements}
    client.post(reverse("new_connection"), FORM)
    made = Connection.objects.get()
    assert (made.owner, made.everybody) == (maker, False)


@pytest.mark.parametrize(
    "wrong",
    [{"model_id": ""}, {"at_once": 0}, {"address": "http://10.0.0.1"}, {"headers": "{"},
     {"price_prompt": "x"}, {"key": "two words of a key"}, {"takes": '{"x": 1}'}],
)  # fmt: skip
def test_a_key_is_never_in_the_form_again(wrong, admin, client_for):
    page = client_for(admin).post(reverse("new_connection"), FORM | wrong)
    assert page.status_code == 400
    assert KEY not in page.content.decode()
    assert "two words" not in page.content.decode()
    [field] = [e for e in Markup(page.content.decode()).elements if e.attributes.get("name") == "key"]
    assert field.attributes["type"] == "password"
    assert field.attributes["autocomplete"] == "off"
    assert "value" not in field.attributes
    assert not Connection.objects.exists()


class TestLateLogins:
    """Confirming a login keeps the request that waits for it in the session."""

    def late(self, client, user):
        log_in_recently(client, user, seconds_ago=10**6)

    def test_the_form_is_shown_after_the_password(self, admin, client_for):
        client = client_for(admin)
        self.late(client, admin)
        for path in (reverse("new_connection"), reverse("change_connection", args=[make().pk])):
            assert client.get(path)["Location"].startswith(reverse("account_reauthenticate"))

    @pytest.mark.parametrize("known", [False, True])
    def test_a_late_form_with_a_key_is_refused_and_not_suspended(self, known, admin, client_for):
        client = client_for(admin)
        path = reverse("change_connection", args=[make(key="").pk]) if known else reverse("new_connection")
        self.late(client, admin)
        page = client.post(path, FORM)
        assert page.status_code == 403
        assert "nothing was saved" in words(page)
        assert "gpt-5" in page.content.decode()
        assert KEY not in page.content.decode()
        assert not Connection.objects.exclude(sealed_key="").exists()
        store = import_module(django_settings.SESSION_ENGINE).SessionStore
        for session in Session.objects.all():
            assert KEY not in str(store(session.session_key).load())

    def test_lending_needs_a_recent_login(self, maker, client_for):
        client = client_for(maker)
        connection = make(maker)
        self.late(client, maker)
        answer = client.post(reverse("lend_connection", args=[connection.pk]), {"experiment": 1})
        assert answer["Location"].startswith(reverse("account_reauthenticate"))


def test_a_change_keeps_the_key_and_a_new_address_deletes_it(admin, client_for):
    connection = make()
    client = client_for(admin)
    path = reverse("change_connection", args=[connection.pk])
    form = {name: FORM[name] for name in ("provider", "model_id", "currency", "answer_seconds")} | {
        "at_once": 4
    }
    client.post(path, form | {"address": "https://api.openai.com/v1"})
    connection.refresh_from_db()
    assert (connection.at_once, keys.target_of(connection).key) == (4, KEY)
    page = client.post(path, form | {"address": "https://attacker.example.org"}, follow=True)
    assert "the stored key is deleted" in words(page)
    connection.refresh_from_db()
    assert keys.target_of(connection).key == ""


def test_staff_do_not_reach_the_one_of_somebody_else(admin, maker, client_for):
    """Superusers see it, and may retire it; they neither test nor change nor lend it."""
    connection = make(maker)
    client = client_for(admin)
    assert "Of maker" in words(client.get(reverse("connections")))
    page = client.get(reverse("connection", args=[connection.pk]))
    assert "WXYZ" not in page.content.decode()
    for name in ("change_connection", "test_connection", "accept_rules", "remove_key", "lend_connection"):
        assert client.post(reverse(name, args=[connection.pk]), FORM).status_code == 404
    client.post(reverse("retire_connection", args=[connection.pk]))
    connection.refresh_from_db()
    assert (connection.retired_at is None, connection.sealed_key) == (False, "")
    client.post(reverse("retire_connection", args=[connection.pk]))
    connection.refresh_from_db()
    assert connection.retired_at is not None, "only its owner takes it back"


def test_its_owner_lends_it_and_ends_the_loan(maker, client_for):
    connection, experiment = make(maker), make_experiment(running=False, name="Mine")
    other = make_experiment(running=False, name="Not mine")
    add_member(experiment, maker, Membership.Role.OWNER)
    client = client_for(maker)
    lend = reverse("lend_connection", args=[connection.pk])
    assert client.post(lend, {"experiment": other.pk}).status_code == 400
    assert "may use it now" in words(client.post(lend, {"experiment": experiment.pk}, follow=True))
    loan = Loan.objects.get()
    client.post(reverse("end_loan", args=[connection.pk, loan.pk]))
    assert not Loan.objects.exists()


def test_an_editor_sees_what_is_lent_and_neither_key_nor_words_of_the_server(maker, client_for):
    connection, experiment = make(maker), make_experiment(running=False)
    add_member(experiment, maker, Membership.Role.OWNER)
    connection_loans.lend(connection_id=connection.pk, experiment=experiment, by=maker)
    Connection.objects.update(waits_until=connection.created_at, trouble="It answered 401.", said="its words")
    editor = make_user()
    add_member(experiment, editor, Membership.Role.EDITOR)
    page = client_for(editor).get(reverse("connection", args=[connection.pk]))
    assert "It answered 401." in words(page)
    assert not [each for each in ("its words", "WXYZ", "api.openai.com") if each in page.content.decode()]
    assert client_for(editor).post(reverse("test_connection", args=[connection.pk])).status_code == 404
    own = client_for(maker).get(reverse("connection", args=[connection.pk]))
    assert "its words" in words(own)


def test_the_result_of_a_test_is_shown_and_its_rules_are_used(admin, client_for):
    connection = make()
    client = client_for(admin)
    found = {
        "works": True, "sentence": "It works.", "said": "", "proposed": {"temperature": ""}, "remarks": [],
        "left_out": [], "request": {"url": "https://x/v1", "headers": {}}, "body": "{}",
        "at": "2026-11-29T08:00",
        "reply": {"text": "<b>Hello</b>", "thinking": "Hm", "prompt_tokens": 3, "seconds": 1.0},
    }  # fmt: skip
    connection_pauses.note_test(connection_id=connection.pk, test=found)
    page = client.get(reverse("connection_tested", args=[connection.pk]))
    assert "hx-get" not in page.content.decode()
    assert "&lt;b&gt;Hello" in page.content.decode()
    client.post(reverse("accept_rules", args=[connection.pk]))
    connection.refresh_from_db()
    assert connection.takes == {"temperature": ""}


def test_only_who_may_change_a_model_reads_what_it_has_cost(admin, maker, client_for):
    made = make(everybody=True)
    Charge.objects.create(model=made.name, connection=made, purpose="test", cost=1.25, currency="CHF")
    for address in (reverse("connections"), reverse("connection", args=[made.pk])):
        assert "1.25 CHF" in client_for(admin).get(address).content.decode()
        assert "CHF" not in client_for(maker).get(address).content.decode()


def test_messages_uploads_and_the_log_hold_no_key(admin, client_for):
    client = client_for(admin)
    page = client.post(reverse("new_connection"), FORM, follow=True)
    pages = [page] + [client.get(reverse(name)) for name in ("connections", "home", "account")]
    data = client.post(reverse("own_data"))
    for answer in [*pages, data]:
        assert KEY[3:20] not in answer.content.decode()
    assert not [each for each in AuditEntry.objects.values() if KEY[3:20] in str(each)]
