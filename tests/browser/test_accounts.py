"""The account in a real browser: the second step, confirming, and the way to a provider and back."""

import pytest
from allauth.account.models import EmailAddress
from playwright.sync_api import Page, expect

from tests.accounts import PASSWORD
from tests.browser.conftest import log_in, log_in_by_form
from tests.factories import make_user
from tests.labeling.test_accounts import code_of
from tests.oidc_provider import a_provider, settings_for

pytestmark = pytest.mark.browser


def fits(page: Page) -> None:
    """Nothing sticks out on a phone."""
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 800})


def test_the_second_step_is_turned_on_and_asked_for(page: Page, transactional_db):
    user = make_user("ann")
    page.goto("/accounts/login/")
    log_in_by_form(page, user)
    page.get_by_role("link", name="ann").click()
    expect(page.get_by_role("heading", name="Your account")).to_be_visible()
    fits(page)
    page.get_by_role("link", name="Turn on").click()
    fits(page)
    secret = page.locator("code.secret").inner_text()
    assert page.locator(".qr svg path").bounding_box()["width"] > 100
    page.get_by_role("textbox", name="Code").fill(code_of(secret))
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_text("Two-step login is on.")).to_be_visible()
    recovery = page.locator(".codes code").first.inner_text()
    page.get_by_role("link", name="I have written them down").click()
    page.get_by_role("button", name="Log out", exact=True).click()
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.get_by_role("textbox", name="Code").fill(recovery)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url("**/")


def test_the_policy_lets_one_out_to_the_provider_and_back(page: Page, transactional_db, settings, problems):
    """A redirect after a form to another site is what ``form-action 'self'`` forbids; Chromium obeys."""
    user = make_user("ann")
    EmailAddress.objects.create(user=user, email="ann@example.org", verified=True, primary=True)
    with a_provider() as provider:
        for name, value in settings_for(provider).items():
            setattr(settings, name, value)
        page.goto("/accounts/login/")
        page.get_by_role("button", name="Log in with Example SSO").click()
        page.wait_for_url("**/")
        expect(page.get_by_role("link", name="ann")).to_be_visible()
        assert [problem for problem in problems if provider.url not in problem] == []
        assert provider.asked
        problems.clear()
        page.goto("/accounts/linked/")


def test_the_theme_that_was_chosen_holds_against_the_systems(page: Page, transactional_db):
    log_in(page, make_user("ann"))
    page.goto("/accounts/")
    page.emulate_media(color_scheme="light")

    def is_dark() -> bool:
        return page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 28)"

    assert not is_dark()
    page.get_by_label("Dark").check()
    assert is_dark()
    page.goto("/")
    assert is_dark()
    page.emulate_media(color_scheme="light", media="print")
    assert not is_dark()
    page.emulate_media(color_scheme="dark", media="screen")
    page.goto("/accounts/")
    expect(page.get_by_label("Dark")).to_be_checked()
    page.get_by_label("Light").check()
    assert not is_dark()
    page.get_by_label("As your system").check()
    assert is_dark()
