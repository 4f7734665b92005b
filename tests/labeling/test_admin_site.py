"""Django's own admin site: accounts can be edited, rows that an estimate rests on only read."""

import re

import pytest
from django.contrib import admin as admin_site
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from engine import models
from engine.models import Judgment, Membership
from engine.services.invitations import create_invitation
from engine.services.tokens import make_token, token_of
from tests.accounts import PASSWORD, log_in_recently
from tests.factories import click, make_user

pytestmark = pytest.mark.django_db

READ_ONLY = [
    models.Experiment,
    models.Factor,
    models.Level,
    models.Policy,
    models.Task,
    models.Response,
    models.Comparison,
    models.Judgment,
    models.JudgmentVoid,
]
TOKEN = r'name="csrfmiddlewaretoken" value="([^"]+)"'
each_read_only = pytest.mark.parametrize("model", READ_ONLY, ids=lambda model: model.__name__)


def address(model, action: str, *args: object) -> str:
    return reverse(f"admin:engine_{model._meta.model_name}_{action}", args=args)


def test_staff_without_permissions_sees_no_rows(experiment, client_for):
    client = client_for(make_user(is_staff=True))
    assert client.get(reverse("admin:index")).status_code == 200
    for model in READ_ONLY:
        assert client.get(address(model, "changelist")).status_code == 403


@each_read_only
def test_rows_are_shown_and_neither_added_nor_changed_nor_deleted(
    model, experiment, annotator, admin, client_for
):
    click(experiment, annotator)
    client = client_for(admin)
    assert client.get(address(model, "changelist")).status_code == 200
    assert client.get(address(model, "add")).status_code == 403
    assert client.post(address(model, "add"), {}).status_code == 403
    row = model.objects.first()
    if row is not None:
        before = model.objects.filter(pk=row.pk).values().get()
        assert 'name="_save"' not in client.get(address(model, "change", row.pk)).content.decode()
        assert client.post(address(model, "change", row.pk), {"state": "concluded"}).status_code == 403
        assert client.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403
        assert model.objects.filter(pk=row.pk).values().get() == before


def test_nothing_can_be_deleted_by_the_dozen(experiment, annotator, admin, client_for):
    judgment = click(experiment, annotator)
    client_for(admin).post(
        address(Judgment, "changelist"),
        {"action": "delete_selected", "_selected_action": judgment.pk, "post": "yes"},
    )
    assert Judgment.objects.filter(pk=judgment.pk).exists()


def test_members_are_added_and_accounts_edited(experiment, stranger, admin, client_for):
    client = client_for(admin)
    form = {"experiment": experiment.pk, "user": stranger.pk, "role": "annotator"}
    assert client.post(address(Membership, "add"), form).status_code == 302
    added = Membership.objects.get(user=stranger)
    assert (added.role, added.origin, added.invited_by) == ("annotator", "administrator", admin)
    assert experiment.audit_entries.first().text == "Added stranger as annotator."
    assert client.post(address(Membership, "add"), form).status_code == 200, "has that role already"
    assert client.get(reverse("admin:engine_user_change", args=[stranger.pk])).status_code == 200


def test_a_member_is_changed_and_removed_on_the_page_of_people_alone(experiment, viewer, admin, client_for):
    """Or the links and tokens that rest on the role would go on."""
    client = client_for(admin)
    member = experiment.memberships.get(user=viewer)
    assert client.post(address(Membership, "change", member.pk), {"role": "owner"}).status_code == 403
    assert client.post(address(Membership, "delete", member.pk), {"post": "yes"}).status_code == 403
    member.refresh_from_db()
    assert member.role == "viewer"


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

    def test_no_owner_is_made(self, experiment, stranger, left_open):
        form = {"experiment": experiment.pk, "user": stranger.pk, "role": "owner"}
        asked = self.post(left_open, address(Membership, "add"), **form)
        assert asked["Location"].startswith(reverse("account_reauthenticate"))
        assert not stranger.memberships.exists()
        self.post(left_open, asked["Location"], password=PASSWORD)
        assert stranger.memberships.get().role == "owner", "what was sent is done after confirming"

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


def test_every_row_that_an_estimate_rests_on_is_registered_for_reading_or_not_at_all(rf, admin):
    request = rf.get("/")
    request.user = admin
    editable = {
        model._meta.model_name
        for model, site in admin_site.site._registry.items()
        if model._meta.app_label == "engine" and site.has_change_permission(request)
    }
    assert editable == {"user"}
