"""Trying a draft before its start: from the setup to the responses, as they come."""

import pytest
from playwright.sync_api import Page, expect

from engine.models import Judgment, User
from tests.browser.annotating import press, shown_token
from tests.browser.conftest import log_in
from tests.browser.test_accessibility import violations
from tests.factories import add_member, make_experiment, make_user, write_responses

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def editor(transactional_db: None) -> User:
    return make_user("editor")


def test_a_draft_is_tried_before_its_start(page: Page, editor: User):
    draft = make_experiment(running=False, n_policies=2, allow_tie=True, claim="good_enough", epsilon=0.2)
    add_member(draft, editor, "editor")
    log_in(page, editor)
    page.goto(f"/experiments/{draft.pk}/setup/")
    page.get_by_role("button", name="Save and try").click()
    page.wait_for_url("**/try/")
    # The trial has begun by itself; others follow.
    expect(page.get_by_text("0 of 6 responses written.")).to_be_visible()
    page.get_by_label("Tasks, by number").fill("1, 3")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("0 of 4 responses written.")).to_be_visible()
    assert violations(page) == []
    write_responses()
    # The page finds them by itself.
    expect(page.get_by_text("4 of 4 responses written.")).to_be_visible()
    expect(page.get_by_text("It is ")).to_have_count(4)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.locator("summary", has_text="Prompt 1").click()
    expect(page.get_by_role("region", name="System prompt of Prompt 1, task 3")).to_have_text("quality 1")
    assert violations(page) == []

    page.get_by_role("link", name="See it as annotators will").click()
    for key in ("ArrowLeft", "t"):
        token = shown_token(page)
        press(page, key)
        expect(page.locator("#stage")).not_to_have_attribute("data-token", token)
        expect(page.locator("#said")).to_have_text("Rehearsal: nothing was saved.")
    assert violations(page) == []
    assert not Judgment.objects.exists()
