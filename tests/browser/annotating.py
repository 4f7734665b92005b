"""Shared helpers of the tests of annotators' pages."""

import re

from playwright.sync_api import Page, expect

from engine.generation.worker import write_batch
from engine.models import Experiment, User
from engine.services.planning import advance
from tests.backends import SkilledBackend
from tests.browser.conftest import log_in

# The page refuses keys and taps just as a pair appears.
SETTLE_MS = 620

# For each answer: whether the next pair was on the screen at once, waiting for no reply, and the milliseconds
# until it was painted.
_WATCH = """() => {
  window.answers = [];
  const shown = () => document.getElementById("stage").dataset.token;
  let before, at;
  addEventListener("submit", () => { before = shown(); at = performance.now(); }, true);
  addEventListener("submit", () => {
    const atOnce = shown() !== before && Boolean(document.querySelector("#stage .choices:enabled"));
    const painted = () => window.answers.push([atOnce, performance.now() - at]);
    requestAnimationFrame(() => setTimeout(painted));
  });
}"""


def watch_answers(page: Page) -> None:
    """Note for each answer from now on whether it waited for anything; see :func:`waits`."""
    page.evaluate(_WATCH)


def waits(page: Page) -> list[bool]:
    """For each answer since: whether the next pair waited for a reply."""
    return [not at_once for at_once, _ in page.evaluate("window.answers")]


def write_everything(experiment: Experiment) -> None:
    """Plan and write until as many pairs are ready as the experiment's buffer asks for."""
    advance(experiment_id=experiment.pk)
    while write_batch(worker="test", backend=SkilledBackend(n_policies=experiment.policies.count()))[0]:
        advance(experiment_id=experiment.pk)


def open_pair(page: Page, experiment: Experiment, user: User | None = None) -> None:
    """Open an annotator's page with a pair on it, logging in first where a user is named."""
    if user is not None:
        log_in(page, user)
    page.goto(f"/label/{experiment.pk}/")
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()


def shown_token(page: Page) -> str:
    return page.locator("#stage").get_attribute("data-token") or ""


def settled(page: Page) -> None:
    """Wait until the page takes an answer to the pair on show."""
    expect(page.locator("#choose-left")).to_be_enabled()
    wait_until_heard(page)


def wait_until_heard(page: Page) -> None:
    """Wait until the page no longer takes a key for an answer to the pair before."""
    # Never before the script that hears the key: it says first when it showed something.
    page.wait_for_function(f"() => performance.now() - window.shownAt > {SETTLE_MS}")


def press(page: Page, key: str) -> None:
    """Press a key as soon as the page listens to it."""
    settled(page)
    page.keyboard.press(key)


def tap(page: Page, button: str) -> None:
    """Tap a button of the pair as soon as the page listens to it, after a look at both responses."""
    settled(page)
    if page.locator("#see-b.unread").is_visible():
        page.locator("#see-b").tap()
        expect(page.locator(".unread")).to_have_count(0)
    page.locator(button).tap()


def saved(page: Page, today: int) -> None:
    """Wait until the page says that so many answers of today are saved."""
    expect(page.locator("#today")).to_have_text(str(today))
    expect(page.locator("#said")).to_have_text(re.compile("^Saved"))
