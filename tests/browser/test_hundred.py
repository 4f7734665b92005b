"""A hundred judgments: by keyboard alone, and by touch on a phone."""

import pytest
from playwright.sync_api import Browser, Page, expect

from engine.models import Assignment, Experiment, Judgment
from engine.selectors.counts import comparison_count
from engine.services.judging import rebuild_counts
from tests.browser.annotating import (
    open_pair,
    press,
    saved,
    shown_token,
    tap,
    waits,
    watch_answers,
    write_everything,
)
from tests.browser.conftest import log_in, watch
from tests.factories import make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

N = 100


@pytest.fixture
def annotator(transactional_db):
    return make_user("ann")


@pytest.fixture
def experiment(annotator, settings) -> Experiment:
    settings.BUFFER_MIN = settings.BUFFER_MAX = N + 20
    experiment = make_experiment(
        n_policies=4, n_tasks=20, annotators=(annotator,), allow_tie=True, allow_both_bad=True
    )
    write_everything(experiment)
    return experiment


def assert_all_there(experiment: Experiment, given: list[tuple[str, str]]) -> None:
    """Every answer was stored once, for the pair that was on show, and counted."""
    stored = Judgment.objects.order_by("pk").values_list("token", "choice")
    assert [(str(token), choice) for token, choice in stored] == given
    assert len({token for token, _ in given}) == N
    assert comparison_count(experiment.pk) == N
    assert Assignment.objects.filter(state="judged").count() == N
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_by_keyboard_alone(page: Page, annotator, experiment):
    page.goto("/accounts/login/")
    page.keyboard.type(annotator.username)  # the name has the focus
    page.keyboard.press("Tab")
    page.keyboard.type("a long password")
    page.keyboard.press("Enter")
    page.wait_for_url("**/")
    start = page.get_by_role("link", name="Start labeling")
    for _ in range(20):
        page.keyboard.press("Tab")
        if start.evaluate("link => link === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()
    keys = {
        "ArrowLeft": "left",
        "2": "right",
        "t": "tie",
        "b": "both_bad",
        "1": "left",
        "ArrowRight": "right",
    }
    watch_answers(page)
    given = []
    for number in range(N):
        key = list(keys)[number % len(keys)]
        given.append((shown_token(page), keys[key]))
        press(page, key)
        saved(page, number + 1)
    assert_all_there(experiment, given)
    assert waits(page) == [False] * N


def test_by_touch_on_a_phone(browser: Browser, live_server, problems, annotator, experiment):
    with watch(
        browser.new_context(
            base_url=live_server.url,
            viewport={"width": 390, "height": 844},
            device_scale_factor=2,
            is_mobile=True,
            has_touch=True,
        ),
        live_server,
        problems,
    ) as context:
        page = context.new_page()
        log_in(page, annotator)
        page.goto("/")
        page.get_by_role("link", name="Start labeling").tap()
        expect(page.get_by_role("heading", name="Response A")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        buttons = {"choose-left": "left", "choose-right": "right", "choose-tie": "tie"}
        watch_answers(page)
        given = []
        for number in range(N):
            button = list(buttons)[number % len(buttons)]
            box = page.locator(f"#{button}").bounding_box()
            assert box["width"] >= 44
            assert box["height"] >= 44
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            given.append((shown_token(page), buttons[button]))
            tap(page, f"#{button}")
            saved(page, number + 1)
        assert_all_there(experiment, given)
        assert waits(page) == [False] * N


def test_undo_of_the_last_three_by_key_leaves_the_counts_as_they_were_bit_by_bit(
    page: Page, annotator, experiment
):
    open_pair(page, experiment, annotator)
    for number, key in enumerate(("1", "2", "t", "1", "b")):
        press(page, key)
        saved(page, number + 1)
    before = list(experiment.pair_counts.order_by("pk").values_list("pk", "wins_i", "comparisons"))
    # An answer that is taken back has another token when its pair comes again.
    first = Assignment.objects.get(token=shown_token(page)).comparison
    for number, key in enumerate(("2", "t", "1")):
        press(page, key)
        saved(page, number + 6)
    for number in (7, 6, 5):
        press(page, "u")
        expect(page.locator("#said")).to_have_text("Taken back. Choose again.")
        expect(page.locator("#today")).to_have_text(str(number))
    counts = list(experiment.pair_counts.order_by("pk").values_list("pk", "wins_i", "comparisons"))
    assert counts == before
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    # The oldest of the three is on show again, and what was on show is not lost.
    assert Assignment.objects.get(token=shown_token(page)).comparison == first
    for number in range(3):
        press(page, "1")
        saved(page, 6 + number)
    assert comparison_count(experiment.pk) == 8
