"""An annotator at work in a real browser."""

import csv
import io
import itertools

import pytest
from playwright.sync_api import Page, expect

from engine.models import Judgment
from engine.services.experiments import pause, start, stop
from tests.backends import ScriptedBackend
from tests.browser.annotating import open_pair, press, saved, settled, write_everything
from tests.browser.conftest import log_in
from tests.factories import make_experiment, make_user, write_responses

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


# Whether something ends above the bar of answers, with a gap of fewer pixels than given.
GAP_ABOVE_BAR = """([selector, most]) => {
  const bottom = document.querySelector(selector).getBoundingClientRect().bottom;
  const gap = document.querySelector(".choices").getBoundingClientRect().top - bottom;
  return 0 <= gap && gap < most;
}"""


def test_twenty_pairs_by_keyboard_and_exactly_those_in_the_export(page: Page, settings):
    settings.BUFFER_MIN = 30
    annotator, admin = make_user("ann"), make_user("admin", is_superuser=True)
    experiment = make_experiment(n_policies=4, annotators=(annotator,))
    write_everything(experiment)

    log_in(page, annotator)
    page.goto("/")
    page.get_by_role("link", name="Start labeling").click()
    shown = []
    for number in range(20):
        token = page.locator("input[name=token]")
        expect(token).to_have_count(1)
        left, right = page.locator(".response .text").all_inner_texts()
        key, chosen = ("ArrowLeft", left) if number % 3 else ("2", right)
        shown.append((left, right, "left" if number % 3 else "right", chosen))
        before = token.input_value()
        press(page, key)
        expect(page.locator(f"input[name=token][value='{before}']")).to_have_count(0)
        saved(page, number + 1)

    page.get_by_role("button", name="Log out", exact=True).click()
    log_in(page, admin)
    page.goto(f"/experiments/{experiment.pk}/export/")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))

    assert len(rows) == 20 == Judgment.objects.count()
    for row, (left, right, choice, chosen) in zip(rows, shown, strict=True):
        responses = {row["policy_i"]: row["response_i"], row["policy_j"]: row["response_j"]}
        assert responses[row["left_policy"]] == left
        assert responses[row["right_policy"]] == right
        assert row["choice"] == choice
        assert row["chosen_policy"] == row[f"{choice}_policy"]
        assert row["chosen_response"] == chosen
        assert float(row["outcome"]) == (1.0 if row["chosen_policy"] == row["policy_i"] else 0.0)
        # A pseudonym: names are exported only where somebody asks for them.
        assert row["annotator"].startswith("annotator-")
        assert row["shown_at"] < row["judged_at"]


def test_skip_then_caught_up_then_the_next_pair_comes_by_itself(page: Page, settings):
    settings.BUFFER_MIN = 1
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    write_everything(experiment)
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()
    press(page, "s")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="The next pair is on its way")).to_be_visible()
    write_everything(experiment)
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()


def test_the_buttons_keep_their_place_whatever_the_length_of_a_pair(page: Page):
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    lengths = itertools.cycle([3, 400, 40])
    write_responses(ScriptedBackend(lambda request: f"{request.seed} " + "word " * next(lengths)))
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    place = """(id) => {
      const box = document.getElementById(id).getBoundingClientRect();
      return [box.x, box.y, box.width, box.height];
    }"""
    places, heights = set(), set()
    for _ in range(4):
        token = page.locator("#stage").get_attribute("data-token")
        places.add(tuple(page.evaluate(place, "choose-left")) + tuple(page.evaluate(place, "choose-right")))
        heights.add(page.evaluate("document.querySelector('.response').offsetHeight"))
        settled(page)
        page.locator("#choose-left").click()
        expect(page.locator("#stage")).not_to_have_attribute("data-token", token)
    assert len(heights) > 1
    assert len(places) == 1


def test_help_opens_and_closes_with_a_key_and_keeps_keys_from_judging(page: Page):
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    write_everything(experiment)
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    press(page, "ArrowLeft")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert not Judgment.objects.exists()


def test_a_comment_is_written_above_the_bar_of_answers(page: Page):
    """The key opened a field that the bar at the foot of a small screen covered."""
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    write_responses(ScriptedBackend(lambda request: f"{request.seed} " + "word " * 300))
    page.set_viewport_size({"width": 1280, "height": 720})
    open_pair(page, experiment, annotator)
    page.keyboard.press("c")
    expect(page.locator("#comment")).to_be_focused()
    page.wait_for_function(GAP_ABOVE_BAR, arg=["#more", 1000])


def test_a_long_response_ends_above_the_bar_of_answers_and_says_that_it_goes_on(page: Page):
    """On a small desktop its end was under the bar, and page and response both had to be scrolled."""
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    write_responses(ScriptedBackend(lambda request: f"{request.seed} " + "word " * 900))
    for height in (720, 1080):
        page.set_viewport_size({"width": 1280, "height": height})
        if height == 720:
            open_pair(page, experiment, annotator)
        page.wait_for_function(GAP_ABOVE_BAR, arg=[".response", 16])
    # The covers of the shadows scroll with the text.
    attached = page.locator(".text").first.evaluate("(box) => getComputedStyle(box).backgroundAttachment")
    assert attached == "local, local, scroll, scroll"


def test_what_is_concluded_offers_no_undo(page: Page):
    """A tap on it was refused by a message that covered the thanks."""
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    pause(experiment_id=experiment.pk)
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    expect(page.locator("#undo")).to_be_visible()
    stop(experiment_id=experiment.pk)
    page.reload()
    expect(page.get_by_role("heading", name="Stopped. Thank you!")).to_be_visible()
    expect(page.locator("#undo")).to_be_hidden()


def test_a_goal_of_ones_own_is_counted_and_kept_in_this_browser(page: Page, settings):
    settings.BUFFER_MIN = 10
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=3, annotators=(annotator,))
    write_everything(experiment)
    open_pair(page, experiment, annotator)
    expect(page.locator("#of-goal")).to_be_hidden()
    # The counter leads to the goal, which stood unseen below the guidelines.
    page.get_by_role("button", name="0 today").click()
    expect(page.get_by_label("My goal for a day")).to_be_focused()
    page.keyboard.type("2")
    page.get_by_role("button", name="Back to the pair").click()
    press(page, "1")
    saved(page, 1)
    expect(page.locator("#said")).to_have_text("Saved")
    press(page, "2")
    expect(page.locator("#said")).to_have_text(
        "Saved. You have reached your goal for today: time for a break?"
    )
    page.reload()
    expect(page.locator(".progress-line")).to_contain_text("2 of 2 today")


def test_the_lesson_of_practice_opens_the_next_pair(page: Page):
    annotator = make_user("ann")
    experiment = make_experiment(ready=True, annotators=(annotator,), practice=2, n_gold=2)
    open_pair(page, experiment, annotator)
    for number in range(2):
        expect(page.locator("#task-title")).to_have_text(f"Practice {number + 1} of 2: not counted")
        press(page, "1")
        expect(page.locator("#stage .feedback")).to_contain_text(f"Reason {number}.")
        expect(page.locator("#said")).to_have_text("Saved")
    expect(page.locator("#task-title")).to_have_text("Task")


def test_letter_keys_can_be_switched_off_and_stay_off(page: Page, settings):
    settings.BUFFER_MIN = 10
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=3, annotators=(annotator,))
    write_everything(experiment)
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    page.get_by_role("button", name="Guidelines and keys").click()
    page.get_by_label("Letters and digits work as keys").uncheck()
    page.get_by_role("button", name="Back to the pair").click()
    page.reload()

    first = page.locator("input[name=token]").input_value()
    for key in ("1", "s", "?", "c"):
        press(page, key)
    expect(page.locator("#help")).to_be_hidden()
    assert page.locator("input[name=token]").input_value() == first
    press(page, "ArrowLeft")
    saved(page, 1)
    assert [judgment.choice for judgment in Judgment.objects.all()] == ["left"]


def test_keys_work_under_any_alphabet_and_a_composition_keeps_its_own(page: Page, settings):
    settings.BUFFER_MIN = 10
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=3, annotators=(annotator,), allow_tie=True)
    write_everything(experiment)
    open_pair(page, experiment, annotator)

    def down(**event: object) -> None:
        settled(page)
        page.evaluate(
            "(event) => document.body.dispatchEvent("
            "new KeyboardEvent('keydown', {...event, bubbles: true, cancelable: true}))",
            event,
        )

    # Of no answer: a key of an input method, Shift and a digit, a letter of Dvorak's in the place of a "t".
    for event in (
        {"key": "t", "code": "KeyT", "isComposing": True},
        {"key": "!", "code": "Digit1", "shiftKey": True},
        {"key": "y", "code": "KeyT"},
    ):
        down(**event)
    expect(page.locator("#today")).to_have_text("0")
    keys = (
        {"key": "е", "code": "KeyT"},  # Russian
        {"key": "τ", "code": "KeyT"},  # Greek
        {"key": "T", "code": "KeyT"},  # Caps Lock
        {"key": "&", "code": "Digit1"},  # AZERTY
        {"key": "２", "code": "Digit2"},  # full width
    )
    for number, event in enumerate(keys, start=1):
        down(**event)
        saved(page, number)
    choices = list(Judgment.objects.order_by("pk").values_list("choice", flat=True))
    assert choices == ["tie", "tie", "tie", "left", "right"]

    # Escape that ends a composition in the comment keeps the comment's focus.
    press(page, "c")
    page.evaluate(
        "document.getElementById('comment').dispatchEvent(new KeyboardEvent('keydown', "
        "{key: 'Escape', code: 'Escape', isComposing: true, bubbles: true}))"
    )
    expect(page.locator("#comment")).to_be_focused()


def test_without_javascript_the_page_works_all_the_same(browser, live_server):
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    write_everything(experiment)
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    page.get_by_role("button", name="A is better").click()
    expect(page.locator("#today")).to_have_text("1")
    context.close()
    assert Judgment.objects.get().choice == "left"


def test_a_paused_tab_goes_on_by_itself(page: Page, settings):
    """It said "Paused" until somebody reloaded it."""
    settings.BUFFER_MIN = 8
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=4, annotators=(annotator,))
    write_everything(experiment)
    pause(experiment_id=experiment.pk)
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    expect(page.get_by_role("heading", name="Paused")).to_be_visible()
    with page.expect_response(lambda reply: "waited=5" in reply.url, timeout=120_000):
        pass
    expect(page.locator("#stage")).to_have_attribute("hx-trigger", "every 10s, focus from:window")
    start(experiment_id=experiment.pk)
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()
    press(page, "1")
    saved(page, 1)


def test_a_paused_tab_that_was_logged_out_leads_to_the_login_and_back(page: Page, settings):
    settings.BUFFER_MIN = 8
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=4, annotators=(annotator,))
    write_everything(experiment)
    pause(experiment_id=experiment.pk)
    log_in(page, annotator)
    page.goto(f"/label/{experiment.pk}/")
    page.context.clear_cookies()
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.wait_for_url(f"**/accounts/login/?next=/label/{experiment.pk}/")
    expect(page.get_by_label("Password")).to_be_visible()


def test_earlier_messages_of_a_conversation_are_open_on_a_desk_and_folded_on_a_phone(page: Page):
    annotator = make_user("ann")
    experiment = make_experiment(annotators=(annotator,))
    write_everything(experiment)
    turns = [
        {"role": role, "content": text}
        for role, text in (("user", "Hello!"), ("assistant", "Hi, *you*."), ("user", "Which tea?"))
    ]
    experiment.tasks.update(messages=turns)
    log_in(page, annotator)
    for width, is_open in ((1280, True), (390, False)):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"/label/{experiment.pk}/")
        expect(page.get_by_text("Which tea?")).to_be_visible()
        expect(page.get_by_text("Hello!")).to_be_visible(visible=is_open)
        page.get_by_text("2 earlier messages").click()
        expect(page.get_by_text("Hello!")).to_be_visible(visible=not is_open)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
