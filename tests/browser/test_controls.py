"""An admin changes the settings of a running experiment, gives somebody a role, and makes a token: by
clicking.
"""

import re

import pytest
from playwright.sync_api import Page, expect

from engine.models import Experiment
from engine.services.tokens import token_of
from tests.browser.conftest import log_in
from tests.factories import add_member, click_on, invited, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def owner(transactional_db):
    return make_user("olga")


@pytest.fixture
def experiment(owner) -> Experiment:
    annotator = make_user("ann")
    experiment = make_experiment(
        name="Which prompt answers best?", ready=True, annotators=(annotator,), delta=0.01
    )
    add_member(experiment, owner, "owner")
    add_member(experiment, make_user("vera"), "viewer")
    invited(experiment)
    click_on(experiment, annotator, 8)
    return experiment


def test_a_larger_delta_is_explained_confirmed_and_marked(page: Page, owner, experiment):
    log_in(page, owner)
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Accepted risk").fill("0.1")
    page.get_by_role("button", name="Change…").click()
    expect(page.get_by_text("breaks the guarantee")).to_be_visible()
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("the risk is not guaranteed")
    page.get_by_role("link", name="Method").click()
    page.get_by_role("link", name="The whole log").click()
    expect(page.locator(".log li").first).to_contain_text("Changed the accepted risk δ from 0.01 to 0.1")


def test_a_viewer_becomes_an_editor_and_an_invitation_ends(page: Page, owner, experiment):
    log_in(page, owner)
    page.goto(f"/experiments/{experiment.pk}/people/")
    page.get_by_label("Role of vera", exact=True).select_option("editor")
    page.get_by_role("button", name="Change the role of vera").click()
    expect(page.get_by_label("Role of vera", exact=True)).to_have_value("editor")
    page.get_by_role("button", name="End the invitation 1, annotator").click()
    expect(page.get_by_role("button", name="End the invitation")).to_have_count(0)
    assert experiment.memberships.get(user__username="vera").role == "editor"


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


def test_a_webhook_is_added_and_its_secret_shown_once(page: Page, owner, experiment):
    log_in(page, owner)
    page.goto(f"/experiments/{experiment.pk}/settings/")
    page.get_by_label("By").select_option("webhook")
    page.get_by_label("To", exact=True).fill("https://example.org/hook")
    page.get_by_label("It becomes unhealthy").uncheck()
    page.get_by_role("button", name="Add").click()
    secret = page.locator("code.secret").inner_text()
    subscription = experiment.subscriptions.get()
    assert subscription.secret == secret
    assert {"concluded", "stalled"} == {*subscription.events} - {"policies", "improved", "proposed"}
    page.get_by_role("button", name="Send a test to example.org").click()
    expect(page.get_by_text("A test is on its way")).to_be_visible()
    expect(page.locator("code.secret")).to_have_count(0)


def test_a_token_is_made_and_the_api_explained(page: Page, owner, experiment):
    log_in(page, owner)
    page.goto("/tokens/")
    page.get_by_label("Name").fill("nightly export")
    page.get_by_label("Annotate: ").check()
    page.get_by_label("Experiment", exact=True).select_option(label=str(experiment))
    page.get_by_role("button", name="Make a token").click()
    secret = page.get_by_label("Token", exact=True).input_value()
    assert re.fullmatch(r"llmpo_[\w-]{43}", secret)
    token = token_of(secret=secret)
    assert (token.user, token.scopes, token.experiment) == (owner, ["read", "annotate"], experiment)
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_role("heading", name="API", exact=True)).to_be_visible()
