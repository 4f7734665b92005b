"""A shared report on paper."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from engine.services.reports import share_report
from tests.factories import add_member, certify, click_on, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_a_report_is_printed_by_its_reader(page: Page):
    annotator, owner = make_user("ann"), make_user("owner")
    experiment = make_experiment(n_policies=8, ready=True, annotators=(annotator,))
    add_member(experiment, owner, "owner")
    click_on(experiment, annotator, 12)
    certify(experiment, winner=7)
    _, secret = share_report(experiment=experiment, by=owner, valid_days=7)
    page.goto(reverse("shared_report", args=[secret]))
    expect(page.locator(".bar-chart")).to_have_count(7)
    pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 1 <= pages <= 2
    page.emulate_media(media="print")
    expect(page.locator("header.bar")).to_be_hidden()
    # A4 within its margins is narrower than a phone's breakpoint, and is no phone.
    page.set_viewport_size({"width": 717, "height": 1000})
    [direction] = {
        cell.evaluate("(cell) => getComputedStyle(cell).flexDirection")
        for cell in page.locator(".bar-cell").all()
    }
    assert direction == "row"
