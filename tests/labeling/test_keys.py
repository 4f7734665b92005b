"""The keys and the layout that each person chooses for judging."""

import json
import re

import pytest
from django.urls import reverse

from engine.selectors.person_data import person_data
from labeling.annotation.keys import USUAL, keys_of
from tests.factories import make_experiment, make_user
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db

MINE = USUAL | {"left": "j", "right": "k", "tie": "ö", "skip": "1"}


@pytest.fixture
def client(client_for, annotator):
    return client_for(annotator)


def keys_on(page) -> dict[str, str]:
    """The keys that a page tells its script."""
    return json.loads(Markup(page.content.decode()).by_id("page").attributes["data-keys"])


def test_keys_of_ones_own_follow_the_person_and_are_on_the_page(client, client_for, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), allow_tie=True)
    pair = reverse("pair", args=[experiment.pk])
    assert keys_on(client.get(pair)) == USUAL
    saved = client.post(reverse("account_keys"), MINE | {"tie": "Ö", "left_handed": "on"}, follow=True)
    assert "Saved." in words(saved)
    elsewhere = client_for(annotator)
    elsewhere.get(pair)
    page = elsewhere.get(pair)
    assert keys_on(page) == MINE
    assert 'class="pairing left-handed"' in page.content.decode()
    for key, action in (("j", "A is better"), ("ö", "Equally good"), ("1", "Skip: say why")):
        assert f"<kbd>{key}</kbd></dt><dd>{action}" in page.content.decode()
    again = elsewhere.get(pair, headers={"HX-Request": "true"})
    assert '<kbd aria-hidden="true">ö</kbd>' in again.content.decode()
    assert keys_of(make_user("somebody")) == USUAL

    client.post(reverse("account_keys"), {"reset": ""})
    page = elsewhere.get(pair)
    assert keys_on(page) == USUAL
    assert "left-handed" not in page.content.decode()


def test_the_way_back_leads_to_the_pairs_and_to_no_other_site(client, annotator):
    """After the keys were saved, only the first page led back to the pair."""
    experiment = make_experiment(ready=True, annotators=(annotator,))
    pair = reverse("pair", args=[experiment.pk])
    way = re.search(r'href="([^"]*keys/[^"]*)"', client.get(pair).content.decode())[1]
    saved = client.post(way, MINE, follow=True).content.decode()
    assert f'<a href="{pair}">Back to the pairs</a>' in saved
    elsewhere = client.get(reverse("account_keys"), {"next": "https://example.org/"}).content.decode()
    assert 'href="https://example.org' not in elsewhere


@pytest.mark.parametrize(("keys", "told"), [
    ({"right": "1"}, "“1” is the key of “A is better” already. Choose another one."),
    ({"tie": "S"}, "“s” is the key of “Equally good” already. Choose another one."),
    ({"undo": "?"}, "“?” is the key of “Guidelines and keys” already. Choose another one."),
    ({"skip": "ab"}, "Type one character: a letter, a digit or a sign."),
    ({"skip": "\u200b"}, "Type one character: a letter, a digit or a sign."),
    ({"skip": " "}, "Type one character: a letter, a digit or a sign."),
])  # fmt: skip
def test_keys_that_cannot_be_are_refused_with_the_reason(keys, told, client, annotator):
    refused = client.post(reverse("account_keys"), USUAL | keys)
    assert refused.status_code == 400
    assert told in words(refused)
    annotator.refresh_from_db()
    assert annotator.preferences == {}


def test_the_guidelines_stay_as_they_were_left(client, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), guidelines="Prefer *short*.")

    def is_open() -> bool:
        page = client.get(reverse("pair", args=[experiment.pk])).content.decode()
        return "open" in Markup(page).by_id("guide").attributes

    assert is_open()
    client.post(reverse("account_keys"), MINE)
    client.post(reverse("account_guidelines"), {})
    assert not is_open()
    client.post(reverse("account_guidelines"), {"open": "true"})
    assert is_open()
    annotator.refresh_from_db()
    assert annotator.preferences == {"keys": MINE, "guidelines": True}
    assert person_data(annotator, complete=False)["account"]["preferences"] == annotator.preferences
