"""A new admin's whole way: from an empty database to the exported file and to a report that somebody else
reads, with real workers and a server that stands in for a model's.
"""

import csv
import io
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from playwright.sync_api import Browser, Locator, Page, expect

from engine.models import Experiment, Judgment
from engine.selectors.policies import policy_names
from engine.selectors.snapshots import latest_snapshot
from tests.browser.conftest import picture, watch
from tests.factories import connect
from tests.generation.chat_server import MODEL, serve
from tests.servers import adds_up
from tests.workers import Workers

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def write_level(page: Page, field: str, name: str, text: str) -> None:
    page.locator(f"#id_{field}-name").fill(name)
    page.locator(f"#id_{field}-text").fill(text)


def wait_for_the_winner(badge: Locator) -> None:
    """Wait for as long as answers come: a machine that is full has taken more than seven minutes."""
    answers = 0
    while True:
        try:
            return expect(badge).to_have_text("Winner found", timeout=90_000)
        except AssertionError:
            before, answers = answers, Judgment.objects.count()
            if answers == before:
                raise


@pytest.fixture
def model(workers: Workers) -> Iterator[None]:
    """The workers' usual model."""
    with serve(adds_up) as server:
        connect(MODEL, server.url)
        workers.ask(server)
        yield
        workers.stop_all()


@pytest.mark.usefixtures("model")
def test_from_an_empty_database_to_the_exported_file_and_a_shared_report(
    browser: Browser,
    page: Page,
    workers: Workers,
    live_server,
    problems: list[str],
    monkeypatch: pytest.MonkeyPatch,
):
    for queue in ("control", "remote", "analysis", "beat"):
        workers.start(queue)
    page.set_viewport_size({"width": 1280, "height": 860})
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "a long password")
    call_command("createsuperuser", "--noinput", "--username=alice", "--email=alice@example.org", verbosity=0)
    page.goto("/accounts/login/")
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill("a long password")
    page.get_by_role("button", name="Log in", exact=True).click()

    page.get_by_role("link", name="New experiment").click()
    page.get_by_role("link", name="2 prompts × 3 strategies").click()
    page.get_by_label("Name", exact=True).fill("Object Counting")
    page.get_by_role("button", name="Next: Tasks").click()
    tasks = [(f"I have {n} pigs and {2 * n} ducks. How many animals do I have?", 3 * n) for n in range(100)]
    page.locator("#tasks").fill("\n".join(f"{task}\t{reference}" for task, reference in tasks))
    expect(page.locator("#tasks-preview")).to_contain_text("100 tasks, 100 with a reference answer.")
    page.get_by_role("button", name="1. Policies").click()
    write_level(page, "f1-l1", "Careful tutor", "You are a careful tutor. Check every step.")
    write_level(page, "f1-l2", "In a hurry", "You are in a hurry. Just guess quickly.")
    page.locator("#id_f2-l3-text").fill("Give the answer first, then explain.")
    page.get_by_role("button", name="Add a factor").click()
    page.locator("#id_f3-name").fill("Sampling")
    page.locator("#id_f3-kind").select_option("sampling")
    page.locator("#id_f3-l1-temperature").fill("0")
    page.locator("#id_f3-l1-max_tokens").fill("64")
    page.locator("#id_f3-l1-name").fill("Greedy")
    page.get_by_role("button", name="Remove level 2 of factor 3").click()
    expect(page.locator("#id_f3-l2-name")).to_have_count(0)
    expect(page.locator("#size-policies")).to_have_text("6")
    page.locator("#factors-title").scroll_into_view_if_needed()
    picture(page, "path-0-factors")
    page.get_by_role("button", name="3. Judges").click()
    page.get_by_label("Rule (reference answers)").check()
    page.get_by_label("Of two correct responses, the rule prefers").select_option("concise")
    # A rule takes nobody's time.
    expect(page.locator("#size-hours")).to_have_count(0)
    expect(page.locator("#size-comparisons")).to_be_visible()
    page.locator("#size-title").scroll_into_view_if_needed()
    picture(page, "path-1-setup")

    page.get_by_role("button", name="4. Stop and start").click()
    page.get_by_role("button", name="Save and start").click()
    page.wait_for_url("**/experiments/*/")
    experiment = Experiment.objects.get()
    badge = page.locator("#badge")
    expect(badge).to_have_class("badge running")
    expect(page.get_by_role("region", name="Table of policies").get_by_role("row")).to_have_count(7)
    picture(page, "path-2-running")
    wait_for_the_winner(badge)
    experiment.refresh_from_db()
    expect(page.locator(".verdict")).to_contain_text(experiment.finding)
    winner = policy_names(experiment)[experiment.winner.index].name
    expect(page.get_by_role("heading", name=f"Use {winner}")).to_be_visible()
    assert winner in experiment.finding
    assert "loses to no other policy by more than 5 points" in experiment.finding
    picture(page, "path-3-certified")
    page.get_by_role("link", name="Method").click()
    judged = str(latest_snapshot(experiment).comparisons)
    expect(page.locator("#race-table tbody tr").last).to_contain_text(judged)

    page.get_by_role("link", name="Export", exact=True).click()
    page.wait_for_url("**/export/")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert len(rows) == Judgment.objects.count() > 100
    assert {row["judge"] for row in rows} == {"rule"}

    page.get_by_role("link", name="Result").click()
    page.get_by_role("link", name="Report to share").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_label("Link", exact=True).input_value()
    with watch(browser.new_context(base_url=live_server.url), live_server, problems) as anywhere:
        reader = anywhere.new_page()
        reader.goto(link)
        expect(reader.get_by_role("heading", name=f"Use {winner}")).to_be_visible()
        expect(reader.get_by_role("region", name="Table of policies").get_by_role("row")).to_have_count(7)
        expect(reader.locator("article")).not_to_contain_text("alice")
