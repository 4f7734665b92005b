"""Django's own admin site: accounts can be edited, the log only read, and all else is not there."""

import re

import pytest
from django.contrib import admin as admin_site
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from engine.models import AuditEntry, User
from engine.services.invitations import create_invitation
from engine.services.tokens import make_token, token_of
from tests.accounts import PASSWORD, log_in_recently
from tests.factories import make_user

pytestmark = pytest.mark.django_db

TOKEN = r'name="csrfmiddlewaretoken" value="([^"]+)"'
LOG = "admin:engine_auditentry"


def test_staff_without_permissions_sees_no_rows(experiment, client_for):
    client = client_for(make_user(is_staff=True))
    assert client.get(reverse("admin:index")).status_code == 200
    assert client.get(reverse(f"{LOG}_changelist")).status_code == 403


def test_the_log_is_shown_and_neither_added_to_nor_changed_nor_deleted(experiment, admin, client_for):
    make_token(user=admin, name="export", valid_days=1)
    client = client_for(admin)
    assert client.get(reverse(f"{LOG}_changelist")).status_code == 200
    assert client.post(reverse(f"{LOG}_add"), {}).status_code == 403
    entry = AuditEntry.objects.get(action="token_made")
    change = reverse(f"{LOG}_change", args=[entry.pk])
    assert 'name="_save"' not in client.get(change).content.decode()
    assert client.post(change, {"sentence": "Another one"}).status_code == 403
    assert client.post(reverse(f"{LOG}_delete", args=[entry.pk]), {"post": "yes"}).status_code == 403
    dozen = {"action": "delete_selected", "_selected_action": entry.pk, "post": "yes"}
    client.post(reverse(f"{LOG}_changelist"), dozen)
    assert AuditEntry.objects.filter(pk=entry.pk, sentence=entry.sentence).exists()


def test_a_deactivation_here_ends_links_and_tokens(experiment, owner, admin, client_for):
    _, secret = make_token(user=owner, name="export", valid_days=1)
    invitation, _ = create_invitation(
        experiment=experiment, by=owner, role="owner", most_uses=1, valid_days=1
    )
    client = client_for(admin)
    form = client.get(reverse("admin:engine_user_change", args=[owner.pk])).context["adminform"].form
    values = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    kept = {name: value for name, value in values.items() if value not in (None, False, "password")}
    joined = owner.date_joined
    kept |= {"date_joined_0": joined.date(), "date_joined_1": joined.time(), "is_active": ""}
    kept = {name: value for name, value in kept.items() if name not in {"date_joined", "is_active"}}
    changed = client.post(reverse("admin:engine_user_change", args=[owner.pk]), kept)
    assert changed.status_code == 302, changed.content.decode()
    owner.refresh_from_db()
    assert not owner.is_active
    invitation.refresh_from_db()
    assert invitation.ended_at is not None
    assert token_of(secret=secret) is None


class TestLeftOpen:
    """At the browser of a superuser who logged in an hour ago."""

    @pytest.fixture
    def left_open(self, admin) -> Client:
        client = Client(enforce_csrf_checks=True)
        client.force_login(admin)
        log_in_recently(client, admin, seconds_ago=3600)
        return client

    @staticmethod
    def post(client: Client, path: str, **form: object) -> HttpResponse:
        page = client.get(path).content.decode()
        return client.post(path, form | {"csrfmiddlewaretoken": re.search(TOKEN, page)[1]})

    def test_nobodys_password_is_set(self, owner, left_open):
        path = reverse("admin:auth_user_password_change", args=[owner.pk])
        form = {"usable_password": "true", "password1": "another long one", "password2": "another long one"}
        self.post(left_open, path, **form)
        owner.refresh_from_db()
        assert owner.check_password(PASSWORD)

    def test_the_own_password_is_changed_where_guesses_are_limited(self, left_open):
        path = reverse("admin:password_change")
        assert left_open.get(path)["Location"] == reverse("account_change_password")

    def test_logging_out_asks_nothing(self, left_open):
        page = left_open.get(reverse("admin:index")).content.decode()
        form = {"csrfmiddlewaretoken": re.search(TOKEN, page)[1]}
        left_open.post(reverse("admin:logout"), form)
        assert "_auth_user_id" not in left_open.session


def test_no_row_that_an_estimate_rests_on_is_there():
    ours = {model for model in admin_site.site._registry if model._meta.app_label == "engine"}
    assert ours == {User, AuditEntry}
