"""An owner makes a link, and somebody joins by it: by clicking."""

import pytest
from playwright.sync_api import Page, expect

from engine.models import Experiment
from tests.browser.conftest import log_in
from tests.factories import add_member, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def owner(transactional_db):
    return make_user("olga")


@pytest.fixture
def experiment(owner) -> Experiment:
    experiment = make_experiment(name="Which prompt answers best?")
    add_member(experiment, owner, "owner")
    return experiment


def test_a_link_is_made_copied_and_followed(page: Page, owner, experiment):
    """The button copies what the field shows, and the page to join on sends its form."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    log_in(page, owner)
    page.goto(f"/experiments/{experiment.pk}/people/")
    page.get_by_role("link", name="Invite…").click()
    page.get_by_label("Viewer: sees the results").check()
    page.get_by_role("button", name="Invite", exact=True).click()
    link = page.get_by_label("Link", exact=True).input_value()
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == link
    page.get_by_role("button", name="Copy the message").click()
    expect(page.locator("#message-said")).to_have_text("Copied.")
    assert link in page.evaluate("navigator.clipboard.readText()")
    page.context.clear_cookies()
    page.goto(link)
    assert page.url.endswith("/join/")
    page.get_by_label("Name", exact=True).fill("newcomer")
    page.get_by_label("Password", exact=True).fill("a very long phrase")
    page.get_by_label("Password again").fill("a very long phrase")
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("heading", name=experiment.name)).to_be_visible()
    assert experiment.memberships.get(user__username="newcomer").invited_by == owner
