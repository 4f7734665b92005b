"""An editor looks through what was judged, voids one answer, restores it, and takes the rows home."""

import json
import zipfile

import pytest
from playwright.sync_api import Page, expect

from engine.models import Judgment
from engine.selectors import counts
from tests.browser.conftest import log_in
from tests.factories import add_member, click_on, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_find_void_restore_and_export(page: Page, annotator):
    editor = make_user("editor")
    experiment = make_experiment(name="Which is best?", ready=True, annotators=(annotator,))
    add_member(experiment, editor, "editor")
    click_on(experiment, annotator, 4)
    judgment = Judgment.objects.order_by("pk").first()
    log_in(page, editor)
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="Comparisons").click()

    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("State").select_option("Judged")
    page.get_by_role("button", name="Show").click()
    rows = page.get_by_role("table").get_by_role("link")
    expect(rows).to_have_count(4)
    page.get_by_role("link", name=str(judgment.comparison.number), exact=True).click()

    expect(page.get_by_role("heading", name="Why this pair")).to_be_visible()
    page.get_by_role("link", name=f"Void no. {judgment.pk}").click()
    page.get_by_label(f"Reason to void no. {judgment.pk}").fill("Clicked without reading.")
    page.get_by_role("button", name="Void").click()
    expect(page.get_by_role("status")).to_contain_text("Voided.")
    assert counts.comparison_count(experiment.pk) == 3
    page.get_by_role("button", name=f"Restore no. {judgment.pk}").click()
    expect(page.get_by_role("status")).to_contain_text("Restored")
    assert counts.comparison_count(experiment.pk) == 4

    page.goto(f"/experiments/{experiment.pk}/export/")
    page.get_by_text("Filter and options", exact=True).click()
    page.get_by_label("With its manifest").check()
    page.get_by_label("Judgment", exact=True).select_option("Any")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#judgments")).to_have_text("5")
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON lines").click()
    archive = zipfile.ZipFile(download.value.path())
    name, manifest = archive.namelist()
    assert name == "which-is-best-judgments.jsonl"
    assert json.loads(archive.read(manifest))["rows"] == len(archive.read(name).splitlines()) == 5


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
