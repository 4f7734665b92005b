"""An admin's dashboard in a real browser, moving while the experiment runs."""

import json

import pytest
from playwright.sync_api import Page, expect

from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.generation.worker import write_batch
from engine.judges.rule_worker import judge_comparisons
from engine.models import Experiment, Flag, User, WorkerPulse
from engine.selectors.rankings import ranking
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from labeling.dashboard import figures
from tests.analysis import examine
from tests.backends import ScriptedBackend, SkilledBackend
from tests.browser.conftest import log_in
from tests.factories import (
    add_member,
    certify,
    click_for,
    click_on,
    make_experiment,
    make_user,
    workers_alive,
    write_responses,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def turn_the_loop(experiment: Experiment) -> None:
    """One turn of the workers."""
    for queue in ("control", "generation"):
        WorkerPulse.objects.update_or_create(queue=queue, worker="test")
    write_batch(worker="test", backend=SkilledBackend(n_policies=experiment.policies.count()))
    judge_comparisons(experiment.pk)
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()


# Rows of the ranking that their box cuts off.
HIDDEN = """() => [...document.querySelectorAll(".standings tbody tr")].filter((row) => {
  const box = row.closest(".scroll").getBoundingClientRect();
  const at = row.getBoundingClientRect();
  return at.height === 0 || at.bottom > box.bottom + 1 || at.right > box.right + 1;
}).map((row) => row.innerText)"""
# Tabs that a reader has to scroll to, and figures of levels that stand under their bars.
CUT_TABS = """() => [...document.querySelectorAll(".tabs a")]
  .filter((tab) => tab.getBoundingClientRect().right > innerWidth).map((tab) => tab.innerText)"""
FIGURES_BELOW = """() => [...document.querySelectorAll(".effects .bar-cell")].filter((cell) =>
  cell.querySelector(".numbers").getBoundingClientRect().top
    >= cell.querySelector("svg").getBoundingClientRect().bottom).length"""
HEIGHT = "document.documentElement.scrollHeight"


def test_the_result_follows_an_experiment_until_there_is_a_winner_to_copy(page: Page):
    admin = make_user("admin", is_superuser=True)
    experiment = make_experiment(n_policies=3, judge="rule")
    turn_the_loop(experiment)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 1440, "height": 900})
    log_in(page, admin)
    page.goto("/")
    page.get_by_role("link", name=experiment.name).click()
    badge = page.locator("#badge")
    expect(badge).to_have_class("badge running")
    expect(page.locator("[data-standing][data-rivals='2']")).to_be_visible()

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
    expect(badge).to_have_text("Winner found", timeout=15_000)
    expect(page.get_by_role("heading", name="Use Prompt 2")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("Preferred to each other policy in")
    page.get_by_role("button", name="Copy prompt and settings").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    request = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert request["messages"][0] == {"role": "system", "content": "quality 2"}
    assert page.evaluate(HEIGHT) <= 2000
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(HEIGHT) <= 3500
    assert page.evaluate("document.documentElement.scrollWidth") == 390

    page.get_by_role("link", name="Method").click()
    page.wait_for_function("() => window.Chart?.getChart('allocation')")
    drawn = "(name) => Chart.getChart(name).data.datasets.map((line) => line.data.length)"
    assert page.evaluate(drawn, "allocation") == [3, 3]
    assert page.evaluate(drawn, "race") == [rows.count()] * 3 + [2]


def test_a_dashboard_that_was_logged_out_leads_to_the_login(page: Page):
    experiment = make_experiment()
    log_in(page, make_user("admin", is_superuser=True))
    page.goto(f"/experiments/{experiment.pk}/")
    page.context.clear_cookies()
    # A part that asks for itself was answered by the login page, and showed it in its place.
    page.wait_for_url(f"**/accounts/login/?next=/experiments/{experiment.pk}/")


def fifteen_long_names(annotator: User) -> Experiment:
    """A running experiment with everything that its result may show, most of it long."""
    openings = (
        "Answer in one short sentence, no greeting",
        "Warm with the next step named at the end",
        "A list of numbered steps, at most five",
        "Think aloud first, then answer",
        "Ask back when something is unclear",
    )
    endings = ("Never promise anything legal", "With a friendly closing line", "Plain words only, level B1")
    long = "Be careful with the facts, and say so where you do not know. " * 4
    spec = ExperimentSpec(
        name="Fifteen ways with rather long names for the support of the web shop",
        factors=[
            FactorSpec("System prompt", "prompt", {name: {"text": long + name} for name in openings}),
            FactorSpec("Strategy", "strategy", {name: {"instruction": name} for name in endings}),
        ],
        tasks=[
            TaskSpec(f"How do I get {n} stubborn coffee stains out of a white shirt?", tags=("laundry",))
            for n in range(2)
        ],
        settings={"claim": "good_enough", "seed": 0},
    )
    experiment = create_experiment(spec=spec)
    add_member(experiment, annotator)
    start(experiment_id=experiment.pk)
    backend = ScriptedBackend(lambda request: f"# Answer\n\n1. **Try** {request.seed}. " + "Rest. " * 60)
    for n in range(60):
        advance(experiment_id=experiment.pk)
        write_responses(backend)
        click_for(experiment, annotator, lambda i, j, n=n: (i > j) == (n % 5 > 0))
    Flag.objects.bulk_create(
        Flag(comparison=comparison, annotator=annotator, reason="broken", comment=long)
        for comparison in experiment.comparisons.filter(state="judged")[:5]
    )
    experiment.refresh_from_db()
    return experiment


def test_a_long_result_fits_and_hides_no_policy(page: Page):
    admin, annotator = make_user("admin", is_superuser=True), make_user("ann")
    experiment = fifteen_long_names(annotator)
    workers_alive()
    log_in(page, admin)
    certify(experiment, winner=ranking(experiment)[0].standing.policy)
    for width, height, most in ((1440, 900, 2400), (390, 844, 4100)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"/experiments/{experiment.pk}/")
        assert page.evaluate(HEIGHT) <= most
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(CUT_TABS) == []
        rows = page.locator(".standings tbody tr")
        expect(rows).to_have_count(15)
        hidden = page.evaluate(HIDDEN)
        assert hidden == []
        # The texts to read, without the marks of Markdown.
        expect(page.locator(".example").first).to_contain_text("Answer 1. Try ")
        page.get_by_role("heading", name="Flags and comments").click()
        expect(page.get_by_role("link", name="All open flags and comments")).to_be_visible()
        effects = page.locator("#effects-table")
        if width > 1000:
            expect(effects).to_be_visible()
            assert page.evaluate(FIGURES_BELOW) == 0
        else:
            expect(effects).to_be_hidden()


# Tables that are wider than their box, and of these the ones whose box is as plain as that of the others.
WIDE = """(plain) => [...document.querySelectorAll(".scroll")].filter((box) =>
  box.scrollWidth > box.clientWidth
  && (!plain || getComputedStyle(box).backgroundImage === "none")).length"""


def test_on_a_phone_a_table_that_goes_on_at_the_side_says_so(page: Page):
    """Nothing did: a phone shows no scrollbar before somebody scrolls."""
    annotator = make_user()
    experiment = make_experiment(n_policies=7, ready=True, annotators=(annotator,))
    for _ in range(6):
        click_on(experiment, annotator, 1)
        advance(experiment_id=experiment.pk)
        write_responses()
    admin = make_user(is_superuser=True)
    log_in(page, admin)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/experiments/{experiment.pk}/method/")
    expect(page.get_by_role("heading", name="Win rates")).to_be_visible()
    assert page.evaluate(WIDE, False) > 0
    assert page.evaluate(WIDE, True) == 0


def test_the_ranking_leads_to_a_policy_with_its_prompt_its_rivals_and_its_responses(page: Page):
    admin, annotator = make_user("admin", is_superuser=True), make_user("ann")
    experiment = make_experiment(n_policies=3, ready=True, annotators=(annotator,))
    for _ in range(6):
        advance(experiment_id=experiment.pk)
        write_responses()
        click_for(experiment, annotator, lambda i, j: i < j)
    log_in(page, admin)
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"/experiments/{experiment.pk}/")
        page.locator(".standings tbody a").first.click()
        expect(page.get_by_role("heading", name="Against each rival")).to_be_visible()
        expect(page.locator(".prompt").first).not_to_be_empty()
        expect(page.get_by_role("region", name="Table of rivals").locator("tbody tr")).to_have_count(2)
        expect(page.locator(".example").first.get_by_text("Preferred", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Copy prompt and settings")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_what_takes_long_is_computed_on_demand_and_shown_when_it_is_there(page: Page, monkeypatch):
    admin, ann, ben = make_user("admin", is_superuser=True), make_user("ann"), make_user("ben")
    experiment = make_experiment(n_policies=3, ready=True, annotators=(ann, ben))
    click_on(experiment, ann, 3)
    click_on(experiment, ben, 1)
    log_in(page, admin)
    # As a large experiment: the charts follow their page. Without a cache they always do.
    monkeypatch.setattr(figures, "LARGE", 0)
    page.goto(f"/experiments/{experiment.pk}/quality/")
    expect(page.get_by_role("heading", name="People")).to_be_visible()
    page.get_by_role("button", name="Compute").click()
    section = page.locator("#without")
    expect(section.get_by_role("status")).to_have_text("Computing: 0%.")
    while examine(experiment_id=experiment.pk):
        pass
    rows = section.locator("tbody tr")
    for row, cells in ((rows.nth(0), ["ann", "3", "1"]), (rows.nth(1), ["ben", "1", "3"])):
        expect(row.locator("th, td:not(:last-child)")).to_have_text(cells)
    expect(section.get_by_role("button", name="Compute again")).to_be_visible()
