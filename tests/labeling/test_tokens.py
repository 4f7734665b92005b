"""The page of one's own API tokens."""

import re

import pytest
from django.urls import reverse

from engine.models import Token
from engine.services.tokens import make_token, token_of
from tests.factories import make_user
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db

FORM = {"name": "nightly export", "valid_days": 30, "scopes": ["read"]}


def secret_on(page) -> str:
    """The field with a new token, which can be selected without any script."""
    [field] = [e for e in Markup(page.content.decode()).elements if e.attributes.get("id") == "secret"]
    assert "readonly" in field.attributes
    return field.attributes["value"]


def test_a_token_is_made_shown_once_and_works(annotator, client_for):
    client = client_for(annotator)
    page = client.post(reverse("tokens"), FORM)
    secret = secret_on(page)
    assert re.fullmatch(r"llmpo_[\w-]{43}", secret)
    assert token_of(secret=secret).user == annotator
    assert "no-store" in page["Cache-Control"]
    later = client.get(reverse("tokens"))
    assert "nightly export" in words(later)
    assert secret not in later.content.decode()


def test_scopes_and_experiment_are_chosen_and_listed(experiment, annotator, client_for):
    client = client_for(annotator)
    blank = Markup(client.get(reverse("tokens")).content.decode())
    ticked = [e.attributes["value"] for e in blank.elements if "checked" in e.attributes]
    assert ticked == ["read"], "the least is the default"
    form = FORM | {"scopes": ["annotate", "read"], "experiment": experiment.pk}
    page = words(client.post(reverse("tokens"), form))
    token = Token.objects.get()
    assert (token.scopes, token.experiment) == (["read", "annotate"], experiment)
    assert f"May: read, annotate; only in {experiment.name}" in page


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"valid_days": 0},
        {"valid_days": 366},
        {"valid_days": "x"},
        {"scopes": []},
        {"scopes": ["all"]},
        {"experiment": "x"},
    ],
)
def test_a_form_that_is_wrong_makes_none(wrong, annotator, client_for):
    assert client_for(annotator).post(reverse("tokens"), FORM | wrong).status_code == 400
    assert not Token.objects.exists()


def test_a_revoked_one_is_gone_from_the_list(annotator, client_for):
    token, secret = make_token(user=annotator, name="old", valid_days=1)
    client = client_for(annotator)
    client.post(reverse("revoke_token", args=[token.pk]))
    assert token_of(secret=secret) is None
    client.get(reverse("tokens"))  # reads the message
    assert "No tokens yet." in words(client.get(reverse("tokens")))


def test_other_peoples_tokens_are_neither_seen_nor_revoked(annotator, admin, client_for):
    token, secret = make_token(user=make_user(), name="theirs", valid_days=1)
    for client in (client_for(annotator), client_for(admin)):
        assert "theirs" not in words(client.get(reverse("tokens")))
        assert client.post(reverse("revoke_token", args=[token.pk])).status_code == 404
    assert token_of(secret=secret) is not None
