"""An admin's dashboard in a real browser, moving while the experiment runs."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from engine.generation.worker import write_batch
from engine.judges.worker import judge_comparisons
from engine.models import Experiment, WorkerPulse
from engine.services.analysis import examine
from engine.services.planning import advance
from tests.backends import SkilledBackend
from tests.browser.conftest import log_in
from tests.factories import click_on, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def turn_the_loop(experiment: Experiment) -> None:
    """One turn of the workers."""
    for queue in ("control", "generation"):
        WorkerPulse.objects.update_or_create(queue=queue, worker="test")
    write_batch(worker="test", backend=SkilledBackend(n_policies=experiment.policies.count()))
    judge_comparisons(experiment.pk)
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()


# What a reader meets before scrolling, without tables, links to other pages and what is folded away.
WORDS = """() => {
  const words = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest("table, nav, progress, details > :not(summary)")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.height === 0 || box.top >= innerHeight) continue;
    words.push(...node.data.split(/\\s+/).filter((word) => /\\w/.test(word)));
  }
  return words;
}"""
HEIGHT = "document.documentElement.scrollHeight"


def test_the_result_follows_an_experiment_until_there_is_a_winner_to_copy(page: Page):
    admin = make_user("admin", is_superuser=True)
    experiment = make_experiment(n_policies=3, judge="rule")
    turn_the_loop(experiment)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 1440, "height": 900})
    log_in(page, admin)
    page.get_by_role("link", name=experiment.name).click()
    badge = page.locator("#badge")
    expect(badge).to_have_class("badge running")
    expect(page.get_by_role("heading", name="Too early to say")).to_be_visible()
    assert len(page.evaluate(WORDS)) <= 60

    page.get_by_role("link", name="Method").click()
    rows = page.locator("#race-table tbody tr")
    page.locator("#race-details summary").click()
    before = rows.count()
    turn_the_loop(experiment)
    expect(rows).not_to_have_count(before, timeout=15_000)
    expect(rows.last).to_be_visible()  # the table that was opened stays open while the page moves

    page.get_by_role("link", name="Result").click()
    while experiment.state == Experiment.State.RUNNING:
        turn_the_loop(experiment)
    expect(badge).to_have_text("Certified winner", timeout=15_000)
    expect(page.get_by_role("heading", name="Use Prompt 2")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("Preferred in")
    page.get_by_role("button", name="Copy prompt and settings").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    request = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert request["messages"][0] == {"role": "system", "content": "quality 2"}
    assert page.evaluate(HEIGHT) <= 2000
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(HEIGHT) <= 3500
    assert page.evaluate("document.documentElement.scrollWidth") == 390

    page.get_by_role("link", name="Method").click()
    page.wait_for_function("window.Chart?.getChart('allocation')")
    drawn = "(name) => Chart.getChart(name).data.datasets.map((line) => line.data.length)"
    assert page.evaluate(drawn, "allocation") == [3, 3]
    assert page.evaluate(drawn, "race") == [rows.count()] * 3 + [2]


def test_what_takes_long_is_computed_on_demand_and_shown_when_it_is_there(page: Page):
    admin, annotator = make_user("admin", is_superuser=True), make_user("ann")
    experiment = make_experiment(n_policies=3, ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 3)
    log_in(page, admin)
    page.goto(f"/experiments/{experiment.pk}/quality/")
    page.get_by_role("button", name="Compute").click()
    section = page.locator("#without")
    expect(section.get_by_role("status")).to_have_text("Computing: 0%.")
    while examine(experiment_id=experiment.pk):
        pass
    expect(section.get_by_role("row", name="ann")).to_contain_text("No judgments would remain")
    expect(section.get_by_role("button", name="Compute again")).to_be_visible()
