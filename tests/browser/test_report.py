"""The report that is shared: from the dashboard to a reader without an account, and onto paper."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import log_in, watch
from tests.factories import add_member, certify, click_on, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_a_report_is_shared_read_without_an_account_and_printed(
    browser: Browser, page: Page, live_server, problems
):
    annotator, owner = make_user("ann"), make_user("owner")
    experiment = make_experiment(n_policies=8, ready=True, annotators=(annotator,))
    add_member(experiment, owner, "owner")
    click_on(experiment, annotator, 12)
    certify(experiment, winner=7)
    log_in(page, owner)
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="Report to share").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_label("Link", exact=True).input_value()

    with watch(browser.new_context(base_url=live_server.url), live_server, problems) as anywhere:
        reader = anywhere.new_page()
        reader.goto(link)
        expect(reader.get_by_role("heading", name="Use Prompt 7")).to_be_visible()
        expect(reader.locator(".bar-chart")).to_have_count(7)
        pages = len(re.findall(rb"/Type\s*/Page\b", reader.pdf(format="A4")))
        assert 1 <= pages <= 2
        reader.emulate_media(media="print")
        expect(reader.locator("header.bar")).to_be_hidden()
        # A4 within its margins is narrower than a phone's breakpoint, and is no phone.
        reader.set_viewport_size({"width": 717, "height": 1000})
        [direction] = {
            cell.evaluate("(cell) => getComputedStyle(cell).flexDirection")
            for cell in reader.locator(".bar-cell").all()
        }
        assert direction == "row"
