"""The page Models in a browser: a model is connected with its key, tested, and given its rules."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from engine.generation.remote.connection_test import try_connection
from engine.models import Connection, User
from engine.services import keys
from tests.browser.conftest import log_in
from tests.servers import BEHAVIOURS, refusing, serving

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

KEY = "sk-browser-0123456789abcdefgh-WXYZ"


def work(connection_id: int) -> None:
    """A worker's task, outside of the loop on which Playwright runs."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(try_connection, connection_id).result()


def test_a_model_is_connected_tested_and_given_its_rules(page: Page, admin: User, settings, monkeypatch):
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    monkeypatch.setitem(BEHAVIOURS, "newest", refusing("temperature", "top_p", "max_tokens"))
    log_in(page, admin)
    page.goto(reverse("home"))
    page.get_by_role("link", name="Models").click()
    page.get_by_role("link", name="New model").click()
    with serving() as server:
        page.get_by_label("Provider").select_option("compatible")
        page.get_by_label("Model", exact=True).fill("newest")
        page.get_by_label("Address").fill(server.url)
        page.get_by_label("Key").fill(KEY)
        page.get_by_role("button", name="Save and test").click()
        expect(page.get_by_text("Being tested")).to_be_visible()
        made = Connection.objects.get()
        work(made.pk)
        # The page asks by itself.
        page.get_by_role("button", name="Use these rules").click()
        expect(page.get_by_role("button", name="Use these rules")).to_have_count(0)
        made.refresh_from_db()
        assert made.takes == {"temperature": "", "top_p": "", "max_tokens": "max_completion_tokens"}
        page.get_by_role("button", name="Test again").click()
        asked = len(server.asked)
        work(made.pk)
        expect(page.get_by_text("It works.")).to_be_visible()
        assert len(server.asked) == asked + 1, "by its rules it is asked once"
    assert keys.target_of(made).key == KEY
    assert KEY not in page.content()
    page.get_by_role("link", name="Change").click()
    expect(page.get_by_label("New key")).to_have_value("")
