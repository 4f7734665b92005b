"""An editor looks through what was judged, voids one answer, restores it, and takes the rows home."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import log_in
from tests.factories import add_member, click_on, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_phone_shows_a_whole_row(page: Page, annotator):
    viewer = make_user("viewer")
    experiment = make_experiment(ready=True, annotators=(annotator,))
    add_member(experiment, viewer, "viewer")
    click_on(experiment, annotator, 1)
    page.set_viewport_size({"width": 390, "height": 844})
    log_in(page, viewer)
    page.goto(f"/experiments/{experiment.pk}/comparisons/")
    row = page.get_by_role("row").filter(has_text="Judged")
    for cell in row.get_by_role("cell").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.querySelector('.scroll').scrollWidth") <= 390
    expect(row.get_by_text("Planned")).to_be_visible()
    expect(page.get_by_text("–", exact=True).first).to_be_hidden()
    row.get_by_role("link").first.click()
    for side in ("A, left", "B, right"):
        heading = page.get_by_role("heading", name=f"Response {side}")
        # Not only for screen readers.
        assert heading.bounding_box()["height"] > 10
