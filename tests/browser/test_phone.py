"""The annotator's page on a phone, and on a slow connection."""

import itertools

import pytest
from playwright.sync_api import Locator, Page, expect

from engine.models import Experiment, Judgment, Response
from engine.selectors.counts import comparison_count
from tests.browser.annotating import (
    open_pair,
    saved,
    settled,
    shown_token,
    tap,
    wait_until_heard,
    write_everything,
)
from tests.browser.conftest import log_in
from tests.factories import click_on, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

N_PAIRS = 40
LATENCY_MS = 2400

# Where everything stands that a thumb aims at or an eye returns to.
PLACES = """() => ["choose-left", "choose-tie", "choose-right", "others", "undo", "task"].map((id) => {
  const box = document.getElementById(id).getBoundingClientRect();
  return [id, box.left, box.top, box.width, box.height];
})"""
# Those just after a tap too, which the measure of the same name leaves out.
SHIFTS = """() => {
  window.shifts = [];
  const moved = (each) => each.sources.map(({node}) => node && (node.id || node.nodeName));
  new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map(moved)))
    .observe({type: "layout-shift", buffered: false});
}"""


@pytest.fixture
def experiment(transactional_db, settings) -> Experiment:
    settings.BUFFER_MIN = settings.BUFFER_MAX = N_PAIRS + 10
    experiment = make_experiment(n_policies=4, n_tasks=20, annotators=(make_user("ann"),), allow_tie=True)
    write_everything(experiment)
    return experiment


def test_on_a_phone_nothing_moves_from_pair_to_pair(phone: Page, experiment):
    """“Saved” moved the page by 26 px, and the next pair moved the button of A by 55."""
    for number, response in enumerate(Response.objects.order_by("pk")):
        response.text = "A paragraph of a response.\n\n" * (1 + 7 * (number % 5))
        response.save(update_fields=["text"])
    for number, task in enumerate(experiment.tasks.order_by("pk")):
        task.prompt = "What is to be done? " * (1 + 9 * (number % 4))
        task.save(update_fields=["prompt"])
    open_pair(phone, experiment, experiment.memberships.get().user)
    phone.evaluate(SHIFTS)
    places, views = [], set()
    for number in range(N_PAIRS):
        token = shown_token(phone)
        places.append(phone.evaluate(PLACES))
        views.add(phone.locator("#see-b").is_visible())
        tap(phone, ("#choose-left", "#choose-right", "#choose-tie")[number % 3])
        expect(phone.locator("#stage")).not_to_have_attribute("data-token", token)
    expect(phone.locator("#today")).to_have_text(str(N_PAIRS))
    assert places.count(places[0]) == N_PAIRS
    assert phone.evaluate("window.shifts") == []
    # Short responses stand below each other; of long ones the second is a tap or a swipe away.
    assert views == {True, False}
    # Never twice in the same place: a second tap soon after is half of a double tap, which answers nothing.
    choices = itertools.cycle(("#choose-right", "#choose-left"))
    while not phone.locator("#see-b").is_visible():
        token = shown_token(phone)
        tap(phone, next(choices))
        expect(phone.locator("#stage")).not_to_have_attribute("data-token", token)
    phone.locator("#see-b").tap()
    expect(phone.locator("#see-b")).to_have_attribute("aria-pressed", "true")
    second = phone.locator(".response").nth(1).bounding_box()
    assert 0 <= second["x"] < second["x"] + second["width"] <= 390
    expect(phone.locator("#skip")).to_be_hidden()
    phone.locator("#others").tap()
    tap(phone, "#skip")
    tap(phone, "#reason")
    expect(phone.locator("#said")).to_contain_text("Skipped")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    # 50 answers were 26,000 px of scrolling.
    phone.get_by_role("link", name="My answers").tap()
    phone.get_by_role("link", name="Older").tap()
    expect(phone.get_by_text("Page 2 of ")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollHeight") <= 5000


def test_under_tabs_an_answer_is_taken_once_both_responses_were_on_the_screen(phone: Page, experiment):
    Response.objects.update(text="A paragraph of a response.\n\n" * 40)
    sent: list[str] = []
    phone.on("request", lambda request: sent.append(request.url) if "/judge/" in request.url else None)
    open_pair(phone, experiment, experiment.memberships.get().user)
    token = shown_token(phone)
    settled(phone)
    expect(phone.locator("#see-b .dot")).to_be_visible()
    phone.locator("#choose-left").tap()
    # The tap shows what was not read; another one soon after is half of a double tap.
    expect(phone.locator("#see-b")).to_have_attribute("aria-pressed", "true")
    expect(phone.locator(".dot:visible")).to_have_count(0)
    phone.locator("#choose-left").tap()
    assert (shown_token(phone), sent) == (token, [])
    # Once for each pair: whichever is on the screen now.
    phone.locator("#see-a").tap()
    phone.evaluate("window.shownAt = performance.now()")
    wait_until_heard(phone)
    phone.locator("#choose-left").tap()
    saved(phone, 1)
    # A swipe does as well as the tab.
    phone.locator("#responses").evaluate("(texts) => texts.scrollBy(texts.clientWidth, 0)")
    expect(phone.locator(".dot:visible")).to_have_count(0)
    settled(phone)
    phone.locator("#choose-left").tap()
    saved(phone, 2)
    # A skip needs no reading, and a pair that comes back was read.
    phone.locator("#others").tap()
    phone.locator("#skip").tap()
    phone.locator("#reason").tap()
    expect(phone.locator("#said")).to_contain_text("Skipped")
    settled(phone)
    phone.locator("#undo").tap()
    expect(phone.locator("#said")).to_have_text("Taken back. Choose again.")
    expect(phone.locator("#see-b")).to_be_visible()
    expect(phone.locator(".dot:visible")).to_have_count(0)
    assert list(Judgment.objects.values_list("in_view", flat=True)) == ["in_turn"] * 2


def test_responses_that_fit_are_in_view_together(phone: Page, experiment):
    Response.objects.update(text="Short.")
    open_pair(phone, experiment, experiment.memberships.get().user)
    tap(phone, "#choose-left")
    saved(phone, 1)
    assert Judgment.objects.get().in_view == "together"


def test_on_a_phone_a_pair_that_was_waited_for_does_not_move(phone: Page, transactional_db):
    """Its task jumped by 6 px, and on a desktop the pair by 18: for a moment, the new heading had the look of
    the heading before it.
    """
    experiment = make_experiment(n_policies=4, annotators=(make_user("ann"),))
    log_in(phone, experiment.memberships.get().user)
    phone.goto(f"/label/{experiment.pk}/")
    expect(phone.get_by_role("heading", name="The next pair is on its way")).to_be_visible()
    phone.evaluate(SHIFTS)
    write_everything(experiment)
    settled(phone)
    assert phone.evaluate("window.shifts") == []


def test_on_a_phone_a_message_leaves_the_task_to_be_unfolded(phone: Page, experiment):
    """The message after an undo covered "Whole task" until the pair was answered again."""
    experiment.tasks.update(prompt="What is to be done? " * 40)
    open_pair(phone, experiment, experiment.memberships.get().user)
    said, unfold = phone.locator("#said"), phone.locator("#unfold")
    phone.evaluate("localStorage.setItem('llmpo-goal', '2')")
    phone.reload()
    tap(phone, "#choose-left")
    saved(phone, 1)
    tap(phone, "#undo")
    expect(said).to_have_text("Taken back. Choose again.")
    expect(said).not_to_have_class("lengthy")
    unfold.tap()
    expect(unfold).to_have_attribute("aria-expanded", "true")
    for choice in ("#choose-left", "#choose-right"):
        tap(phone, choice)
    # What takes more than two lines pushes the task down, and goes away by a tap.
    expect(said).to_have_text("Saved. You have reached your goal for today: time for a break?")
    expect(said).to_have_class("lengthy")
    assert_above(said, phone.locator("#task"))
    unfold.tap()
    expect(unfold).to_have_attribute("aria-expanded", "true")
    said.tap()
    expect(said).to_be_empty()


def test_on_a_phone_without_a_connection_the_task_is_in_sight(phone: Page, experiment, problems: list[str]):
    """Two of its three lines were covered for as long as the connection was down."""
    open_pair(phone, experiment, experiment.memberships.get().user)
    undo = phone.locator("#undo").bounding_box()
    phone.route("**/judge/", lambda route: route.abort())
    tap(phone, "#choose-left")
    problem = phone.get_by_role("alert")
    expect(problem).to_contain_text("the connection is down")
    assert_above(problem, phone.locator("#task"))
    assert phone.locator("#undo").bounding_box() == undo
    phone.unroute("**/judge/")
    saved(phone, 1)
    assert all("ERR_FAILED" in each for each in problems)
    problems.clear()


def assert_above(upper: Locator, lower: Locator) -> None:
    above, below = upper.bounding_box(), lower.bounding_box()
    assert above["y"] + above["height"] <= below["y"]


# Keys as fast as the page takes them, as [token on show, whether the key answered it].
HASTE = """async (keys) => {
  const stage = () => document.getElementById("stage");
  const shown = () => document.querySelector(".choices:enabled") && stage().dataset.token;
  const pressed = [];
  for (const key of keys) {
    await new Promise((done) => setTimeout(done, 620));
    const token = shown();
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    pressed.push([token, token !== null && shown() !== token]);
  }
  return pressed;
}"""


def test_answers_faster_than_the_connection_are_sent_in_order(page: Page, experiment):
    """Three of six were lost."""
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "/judge/" in request.url else None)
    annotator = experiment.memberships.get().user
    log_in(page, annotator)
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": LATENCY_MS, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    # The second request fetches as many as the first one has shown to be needed.
    with page.expect_response(lambda reply: "ahead=" in reply.url and "ahead=1" not in reply.url) as ahead:
        open_pair(page, experiment)
    ahead.value.finished()

    keys = ["1", "2", "1", "t", "2", "1", *"2121212121"]
    pressed = page.evaluate(HASTE, keys)
    assert [answered for _, answered in pressed[:6]] == [True] * 6
    # What is pressed while the next pair is on its way judges nothing.
    wanted = [(token, key) for (token, answered), key in zip(pressed, keys, strict=True) if answered]
    assert 6 <= len(wanted) < len(keys)
    assert len({token for token, _ in wanted}) == len(wanted)
    expect(page.locator("#today")).to_have_text(str(len(wanted)))

    # Undo takes back the last answer, though the server has not heard of it.
    page.wait_for_function("() => document.querySelector('.choices:enabled')")
    (first, _), (second, answered), (taken_back, _) = page.evaluate(HASTE, ["1", "2", "u"])
    wanted.append((first, "1"))
    assert answered
    assert shown_token(page) == second != taken_back
    expect(page.locator("#today")).to_have_text(str(len(wanted)))
    expect(page.locator("#said")).to_have_text("Taken back. Choose again.")
    choices = {"1": "left", "2": "right", "t": "tie"}
    given = Judgment.objects.order_by("pk").values_list("token", "choice")
    assert [(str(token), choice) for token, choice in given] == [(t, choices[key]) for t, key in wanted]
    assert len(sent) == len(wanted) == comparison_count(experiment.pk)


def test_the_first_page_of_many_experiments_is_short_and_each_row_is_one_target(phone: Page):
    """24 cards were 6,200 px of scrolling."""
    admin, ann = make_user("admin", is_superuser=True), make_user("ann")
    for number in range(24):
        experiment = make_experiment(
            name=f"Answers of the support desk in the spring, version {number}",
            running=number % 3 > 0,
            ready=True,
            annotators=(ann,),
        )
        if number % 3 == 1:
            click_on(experiment, ann, 4)
    log_in(phone, admin)
    phone.goto("/")
    row = phone.locator(".watched > li", has_text="version 7")
    expect(row).to_contain_text("Leading")
    # A caveat stands last, and a cut sentence would hide it.
    experiment = Experiment.objects.get(name__endswith="version 7")
    Experiment.objects.filter(pk=experiment.pk).update(evidence_stale=True, first_delta=experiment.delta / 2)
    phone.reload()
    expect(row).to_contain_text("The evidence is being recomputed.")
    cut = "(row) => row.scrollHeight > row.clientHeight"
    assert not row.locator(".standing").evaluate(cut)
    assert phone.evaluate("document.documentElement.scrollHeight") <= 3000
    assert not phone.evaluate("document.documentElement.scrollWidth > innerWidth")
    box = row.bounding_box()
    assert box is not None
    assert box["height"] >= 44
    # All of the row leads there, not its name alone.
    phone.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 8)
    expect(phone.get_by_role("heading", name="version 7")).to_be_visible()
