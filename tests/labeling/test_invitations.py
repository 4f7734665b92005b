"""The way in: making a link, following it, signing up, the guidelines."""

import importlib
import io
import logging
import re

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core import mail
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from engine.models import AuditEntry, Invitation, Notification, User
from engine.notifying.delivery import deliver_due
from engine.selectors.person_data import person_data
from engine.services import invitations
from engine.services.forgetting import forget_person
from llmpo_site.logs import WithoutSecretLinks
from tests.factories import add_member, invited, make_experiment, make_user
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db

SIGN_UP = {"username": "newcomer", "password1": "a very long phrase", "password2": "a very long phrase"}


def link(invitation: Invitation) -> str:
    return reverse("join", args=[invitation.token])


def follow(client: Client, invitation: Invitation) -> HttpResponse:
    """Open the link, and look at the page to which it leads."""
    return client.get(link(invitation), follow=True)


def accept(client: Client, invitation: Invitation, form: dict[str, str] | None = None) -> HttpResponse:
    """Open the link, and send the form without looking at it:
    a refusal would be shown with the page already.
    """
    client.get(link(invitation))
    return client.post(reverse("accept_invitation"), form or {})


class TestJoin:
    def test_a_newcomer_signs_up_is_logged_in_and_finds_the_guidelines(self, experiment, client):
        page = follow(client, invited(experiment))
        assert page.status_code == 200
        assert experiment.name in words(page)
        response = client.post(reverse("accept_invitation"), SIGN_UP, follow=True)
        assert response.redirect_chain == [(reverse("welcome", args=[experiment.pk]), 302)]
        user = User.objects.get(username="newcomer")
        assert (user.is_staff, user.is_superuser) == (False, False)
        assert [str(member) for member in user.memberships.all()] == [
            f"newcomer is annotator of {experiment.name}"
        ]
        assert client.get(reverse("pair", args=[experiment.pk])).status_code == 200

    def test_who_is_logged_in_joins_with_one_press(self, experiment, stranger, client_for):
        client, invitation = client_for(stranger), invited(experiment)
        page = Markup(follow(client, invitation).content.decode())
        assert "You are logged in as stranger." in page.text
        assert not [e for e in page.elements if e.attributes.get("type") == "password"]
        assert not stranger.memberships.exists(), "looking is not joining"
        response = client.post(reverse("accept_invitation"))
        assert response["Location"] == reverse("welcome", args=[experiment.pk])
        assert stranger.memberships.get().role == "annotator"

    @pytest.mark.parametrize("role", ["viewer", "editor", "owner"])
    def test_who_is_to_watch_is_led_to_the_dashboard(self, role, experiment, client):
        follow(client, invited(experiment, role=role))
        response = client.post(reverse("accept_invitation"), SIGN_UP, follow=True)
        assert response.redirect_chain == [(reverse("dashboard", args=[experiment.pk]), 302)]
        assert response.status_code == 200

    def test_a_link_that_is_used_up_says_so_and_makes_no_account(self, experiment, client):
        invitation = invited(experiment)
        accept(client, invitation, SIGN_UP)
        for response in (
            follow(Client(), invitation),
            accept(Client(), invitation, SIGN_UP | {"username": "second"}),
        ):
            assert response.status_code == 410
            assert "This invitation has been used up." in words(response)
        assert not User.objects.filter(username="second").exists()

    def test_who_follows_a_used_link_again_is_not_turned_away_as_a_stranger(self, experiment, client):
        """The link kept as a bookmark."""
        invitation = invited(experiment)
        accept(client, invitation, SIGN_UP)
        assert follow(client, invitation).redirect_chain[-1] == (
            reverse("welcome", args=[experiment.pk]),
            302,
        )
        assert Invitation.objects.get().uses == 1

    @pytest.mark.parametrize("token", ["x", "0" * 43, "00000000-0000-4000-8000-000000000000", "ä"])
    def test_a_made_up_link_tells_nothing_about_any_experiment(self, token, experiment, client):
        """Not even of the one whose link was followed before."""
        follow(client, invited(experiment))
        response = client.get(reverse("join", args=[token]), follow=True)
        assert response.status_code == 410
        assert "There is no such invitation." in words(response)
        assert experiment.name not in words(response)

    @pytest.mark.parametrize(
        "change",
        [
            {"username": ""},
            {"username": "taken"},
            {"password2": "something else"},
            {"password1": "short", "password2": "short"},
            {"password1": "", "password2": ""},
        ],
        ids=str,
    )
    def test_a_bad_form_says_what_is_wrong_and_uses_nothing_up(self, change, experiment, client):
        make_user("taken")
        response = accept(client, invited(experiment), SIGN_UP | change)
        assert response.status_code == 400
        elements = Markup(response.content.decode()).elements
        assert [each for each in elements if each.attributes.get("role") == "alert"]
        assert Invitation.objects.get().uses == 0
        assert not User.objects.filter(username="newcomer").exists()

    def test_no_field_of_the_form_makes_a_superuser(self, experiment, client):
        accept(
            client, invited(experiment), SIGN_UP | {"is_superuser": "on", "is_staff": "on", "role": "owner"}
        )
        user = User.objects.get(username="newcomer")
        assert (user.is_staff, user.is_superuser, user.memberships.get().role) == (False, False, "annotator")


class TestSecrecy:
    """The secret of a link is in the link and nowhere else."""

    def test_it_is_kept_by_no_cache_and_told_to_nobody(self, experiment, client):
        response = client.get(link(invited(experiment)))
        assert "no-store" in response["Cache-Control"]
        assert response["Referrer-Policy"] == "no-referrer"
        assert response["Location"] == reverse("accept_invitation")
        assert "no-store" in client.get(response["Location"])["Cache-Control"]

    def test_no_page_after_it_holds_it(self, experiment, client):
        invitation = invited(experiment)
        page = follow(client, invitation)
        assert invitation.token not in page.content.decode()
        assert f"next={reverse('accept_invitation')}" in page.content.decode()
        stored = [session.get_decoded() for session in Session.objects.all()]
        assert stored
        assert invitation.token not in str(stored), "a copy of the database opens no link"

    @pytest.mark.parametrize("fate", ["joined", "member already", "refused"])
    def test_a_session_follows_a_link_until_it_is_used_or_refused(
        self, fate, experiment, stranger, client_for
    ):
        """It lets in nobody who comes to this browser next."""
        client, invitation = client_for(stranger), invited(experiment, most_uses=5)
        if fate == "member already":
            add_member(experiment, stranger)
        client.get(link(invitation))
        assert "following-invitation" in client.session
        if fate == "refused":
            invitations.end_invitation(invitation_id=invitation.pk, by=None)
        client.post(reverse("accept_invitation"))
        assert "following-invitation" not in client.session

    @pytest.mark.parametrize("address", ["/join/{}/", "/accounts/login/?next=/join/{}/", "/join%2F{}"])
    def test_our_own_logs_do_not_hold_it(self, address, experiment):
        """Django logs the address of a request that it refuses, such as a POST without its CSRF token."""
        invitation = invited(experiment)
        [name] = settings.LOGGING["root"]["handlers"]
        handler = next(h for h in logging.getLogger().handlers if h.get_name() == name)
        stream = io.StringIO()
        before = handler.setStream(stream)
        try:
            Client(enforce_csrf_checks=True).post(address.format(invitation.token))
            logging.getLogger("x").warning("Seen: %s", address.format(invitation.token))
        finally:
            handler.setStream(before)
        assert "Seen: " in stream.getvalue()
        assert invitation.token not in stream.getvalue()

    def test_the_access_log_of_gunicorn_does_not_hold_it(self, experiment):
        invitation = invited(experiment)
        log, stream = logging.getLogger("gunicorn.access"), io.StringIO()
        importlib.import_module("llmpo_site.wsgi")
        handler = logging.StreamHandler(stream)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            log.info("%(h)s %(r)s", {"h": "10.0.0.1", "r": f"GET {link(invitation)} HTTP/1.1"})
        finally:
            log.removeHandler(handler)
        assert stream.getvalue() == "10.0.0.1 GET /join/…/ HTTP/1.1\n"

    @pytest.mark.parametrize(
        ("address", "seen"),
        [
            ("/accounts/password/reset/1-abc-0123456789abcdef/", "/accounts/password/reset/1-…/"),
            ("/accounts/login/?next=%2Faccounts%2Fpassword%2Freset%2F1-abc-01%2F", "reset%2F1-…%2F"),
            ("/accounts/email/confirm/MQ:1abc:2def/", "/accounts/email/confirm/…/"),
            ("/accounts/email/confirm/MQ%3A1abc%3A2def/", "/accounts/email/confirm/…/"),
            ("/report/abcdefABCDEF0123456789-_/", "/report/…/"),
            ("/%72eport/abcdefABCDEF0123456789-_/", "/%72eport/…/"),
            ("/r%65p%6frt/%61bcdefABCDEF0123456789-_/", "/r%65p%6frt/…/"),
            ("/j%6Fin/abcdefabcdef/", "/j%6Fin/…/"),
            ("/join/0123456789/?PROLIFIC_PID=abcdef", '"GET /join/…/"'),
            ("/accounts/passwor%64/reset/%31%2Dabc-0123456789abcdef/", "passwor%64/reset/%31%2D…/"),
            *(
                (address, address)
                for address in ("/accounts/password/reset/sent/", "/joins/x/", "/experiments/7/report/share/")
            ),
        ],
    )
    def test_nor_the_links_that_open_an_account_and_other_addresses_stay(self, address, seen):
        record = logging.LogRecord("gunicorn.access", logging.INFO, "", 0, '"GET %s"', (address,), None)
        WithoutSecretLinks().filter(record)
        assert seen in record.getMessage()
        assert not {"abc", "def"} & set(re.findall(r"[a-f]{3}", record.getMessage()))


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
    FORM = {"role": "annotator", "most_uses": 5, "valid_days": 7, "addresses": ""}  # noqa: RUF012 - never changed

    def test_the_link_is_shown_once_and_works(self, experiment, editor, client_for, client):
        mine = client_for(editor)
        response = mine.post(reverse("invite", args=[experiment.pk]), self.FORM)
        invitation = Invitation.objects.get()
        assert (invitation.experiment, invitation.created_by) == (experiment, editor)
        assert (invitation.role, invitation.most_uses, invitation.uses) == ("annotator", 5, 0)
        [field] = [e for e in Markup(response.content.decode()).elements if e.attributes.get("id") == "link"]
        assert "readonly" in field.attributes
        made = field.attributes["value"]
        assert made.startswith("http://testserver/join/")
        assert "no-store" in response["Cache-Control"]
        assert client.get(made, follow=True).status_code == 200
        later = mine.get(reverse("people", args=[experiment.pk])).content.decode()
        secret = made.removeprefix("http://testserver/join/").rstrip("/")
        assert invitation.hint in later
        assert secret not in later

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"role": "superuser"}, "Select a valid choice."),
            ({"most_uses": 0}, "Write a number that is at least 1, or leave it empty."),
            ({"most_uses": "many"}, "Enter a whole number."),
            ({"valid_days": 0}, "Select a valid choice."),
            ({"role": "editor", "valid_days": 365}, "At most 90 days for the role editor."),
            ({"role": "owner"}, "At most 1 people for the role owner."),
        ],
        ids=str,
    )
    def test_a_bad_form_is_told_so_and_makes_no_link(self, change, said, experiment, owner, client_for):
        response = client_for(owner).post(reverse("invite", args=[experiment.pk]), self.FORM | change)
        assert response.status_code == 400
        assert said in words(response)
        assert not Invitation.objects.exists()

    def test_without_a_script_the_form_is_a_page(self, experiment, editor, client_for):
        client = client_for(editor)
        for name, is_open in (("people", False), ("invite", True)):
            page = Markup(client.get(reverse(name, args=[experiment.pk])).content.decode())
            [dialog] = [e for e in page.elements if e.tag == "dialog"]
            assert ("open" in dialog.attributes) is is_open


class TestByMail:
    """Through the outbox, and nothing that is stored opens the link."""

    FORM = TestInvite.FORM | {"most_uses": "", "addresses": " new@example.org \n\ntwo@example.org"}

    def send(self, client, experiment, **changes):
        return client.post(reverse("invite", args=[experiment.pk]), self.FORM | changes)

    def links(self) -> list[str]:
        """Of all messages so far, from the oldest on."""
        deliver_due()
        return [message.body.rsplit("http://localhost:8000", 1)[1].strip() for message in mail.outbox]

    def test_each_address_gets_a_link_of_its_own_that_works_once(self, experiment, editor, client_for):
        mine = client_for(editor)
        assert self.send(mine, experiment)["Location"] == reverse("people", args=[experiment.pk])
        assert "2 invitations are on the way." in words(mine.get(reverse("people", args=[experiment.pk])))
        links = self.links()
        assert [message.to for message in mail.outbox] == [["new@example.org"], ["two@example.org"]]
        assert mail.outbox[0].subject == f"editor invites you: {experiment.name}"
        for number, address in enumerate(links):
            client = Client()
            client.get(address)
            client.post(reverse("accept_invitation"), SIGN_UP | {"username": f"new{number}"})
        assert experiment.memberships.filter(role="annotator", origin="invitation").count() == 2
        assert [invitation.uses for invitation in Invitation.objects.all()] == [1, 1]

    def test_no_table_holds_the_link(self, experiment, editor, client_for):
        self.send(client_for(editor), experiment)
        secret = self.links()[0].split("/")[2]
        stored = [*Invitation.objects.values(), *Notification.objects.values(), *AuditEntry.objects.values()]
        assert len(stored) >= 4
        assert secret not in str(stored)
        assert "new@example.org" not in str(AuditEntry.objects.values())

    def test_it_is_sent_again_with_the_same_link_and_not_twice_at_once(self, experiment, editor, client_for):
        mine = client_for(editor)
        self.send(mine, experiment, addresses="new@example.org")
        invitation = Invitation.objects.get()
        again = reverse("resend_invitation", args=[experiment.pk, invitation.pk])
        assert "still on its way" in words(mine.post(again, follow=True))
        first = self.links()
        assert "Sent " in words(mine.get(reverse("people", args=[experiment.pk])))
        mine.post(again)
        assert self.links() == first * 2

    @pytest.mark.parametrize("fate", ["ended", "key"])
    def test_what_opens_nothing_is_not_sent(self, fate, experiment, editor, client_for, settings):
        self.send(client_for(editor), experiment, addresses="new@example.org")
        if fate == "ended":
            invitations.end_invitation(invitation_id=Invitation.objects.get().pk, by=editor)
        else:
            settings.SECRET_KEY = "another key, which is as long as one has to be"
        assert self.links() == []
        notification = Notification.objects.get()
        assert notification.state == "failed"
        assert {"ended": "has ended", "key": "SECRET_KEY has changed"}[fate] in notification.error

    @pytest.mark.parametrize(
        ("addresses", "said"),
        [
            ("nobody", "“nobody” is not an e-mail address."),
            ("new@example.org\nNew@example.org", "New@example.org is there twice."),
            ("\n".join(f"n{i}@example.org" for i in range(101)), "the limit is 100."),
        ],
    )
    def test_a_bad_list_sends_nothing(self, addresses, said, experiment, editor, client_for):
        response = self.send(client_for(editor), experiment, addresses=addresses)
        assert response.status_code == 400
        assert said in words(response)
        assert not Invitation.objects.exists()
        assert not Notification.objects.exists()

    def test_without_mail_there_is_no_field(self, experiment, editor, client_for, settings):
        settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
        mine = client_for(editor)
        assert "Mail is not configured here" in words(mine.get(reverse("invite", args=[experiment.pk])))
        self.send(mine, experiment)
        assert not Notification.objects.exists()

    def test_a_forgotten_person_leaves_no_address(self, experiment, editor, client_for):
        self.send(client_for(editor), experiment, addresses="New@example.org")
        person = make_user("new", email="new@example.org")
        assert person_data(person, complete=True)["invitations_received"][0]["address"] == "New@example.org"
        forget_person(user_id=person.pk, by=None)
        assert "example.org" not in str(Invitation.objects.values()).lower()
        assert self.links() == []
