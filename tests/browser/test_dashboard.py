"""An admin's dashboard in a real browser, moving while the experiment runs."""

from __future__ import annotations

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


def test_the_dashboard_follows_an_experiment_until_it_is_certified(page: Page):
    admin = make_user("admin", is_superuser=True)
    experiment = make_experiment(n_policies=3, judge="rule")
    turn_the_loop(experiment)
    log_in(page, admin)
    page.get_by_role("link", name=experiment.name).click()
    badge = page.locator("#badge")
    expect(badge).to_have_class("badge running")
    rows = page.locator("#race-table tbody tr")
    page.locator("#race-details summary").click()
    before = rows.count()

    while experiment.state == Experiment.State.RUNNING:
        turn_the_loop(experiment)

    expect(badge).to_have_text("Certified winner", timeout=10_000)
    expect(
        page.locator(
            ".sentence", has_text="it is P3 (Prompt 2); the risk of ever saying so wrongly is at most 5%"
        )
    ).to_be_visible()
    expect(rows).not_to_have_count(before, timeout=10_000)  # charts come a little later than the badge
    expect(rows.last).to_be_visible()  # the table that was opened stays open while the page moves
    for name, lines in (("allocation", [3, 3]), ("effects", [2, 2, 2])):
        drawn = f"() => Chart.getChart('{name}').data.datasets.map((line) => line.data.length)"
        assert page.evaluate(drawn) == lines
    chart = page.evaluate("() => Chart.getChart('race').data.datasets.map((line) => line.data.length)")
    assert chart == [rows.count()] * 3 + [2]
    heat = page.locator("table.heat")
    winner = [
        cell
        for cell in heat.locator("tbody tr")
        .filter(has=page.get_by_role("rowheader", name="P3"))
        .locator("td")
        .all_inner_texts()
        if cell
    ]
    assert len(winner) == 2
    assert all(int(cell.split("%")[0]) > 50 for cell in winner)


def test_what_takes_long_is_computed_on_demand_and_shown_when_it_is_there(page: Page):
    admin, annotator = make_user("admin", is_superuser=True), make_user("ann")
    experiment = make_experiment(n_policies=3, ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 3)
    log_in(page, admin)
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("button", name="Compute").click()
    section = page.locator("#without")
    expect(section.get_by_role("status")).to_have_text("Computing: 0%.")
    while examine(experiment_id=experiment.pk):
        pass
    expect(section.get_by_role("row", name="ann")).to_contain_text("No judgments would remain")
    expect(section.get_by_role("button", name="Compute again")).to_be_visible()
