"""Dead networks, back buttons, double clicks and several tabs:
every judgment once, none lost, none doubled.
"""

import re
from urllib.parse import parse_qsl

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import Browser, Page, Route, expect

from engine.models import Assignment, Experiment, Judgment, User
from engine.selectors import counts
from engine.selectors.missing import actively_held
from engine.services.experiments import stop
from engine.services.judging import rebuild_counts
from tests.browser.annotating import open_pair, press, saved, settled, shown_token, write_everything
from tests.browser.conftest import log_in_by_form, watch
from tests.factories import make_experiment, make_user
from tests.workers import wait_until

# A pair that was on show for so long is not taken away.
LONG_ENOUGH_TO_READ_MS = 1600
TOO_QUICK = "The pair had just changed: choose again."
NO_REPLY = "No reply: your answer may or may not be taken back. Press Undo again in a moment."
# What the page says of an answer before the server has replied.
IN_BETWEEN = re.compile("^(Saving …)?$")
# All that the page says, in the order in which a screen reader speaks it.
RECORD = """() => {
  const said = document.getElementById("said");
  window.spoken = [];
  new MutationObserver(() => said.textContent && window.spoken.push(said.textContent))
    .observe(said, {childList: true, characterData: true, subtree: true});
}"""

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def requests_held_up(page: Page, address: str) -> list[Route]:
    """The requests to this address from now on; none gets an answer, unless the test lets it go on."""
    held_up: list[Route] = []

    def hold_up(route: Route) -> None:
        held_up.append(route)

    page.route(address, hold_up)
    return held_up


@pytest.fixture
def people(transactional_db):
    return make_user("ann"), make_user("bob")


@pytest.fixture
def experiment(people, settings) -> Experiment:
    settings.BUFFER_MIN = 60
    experiment = make_experiment(n_policies=4, n_tasks=20, annotators=people)
    write_everything(experiment)
    return experiment


def given_by(user) -> dict[str, str]:
    rows = Judgment.objects.filter(annotator=user).values_list("token", "choice")
    return {str(token): choice for token, choice in rows}


def open_with_the_next(page: Page, experiment: Experiment, user: User) -> None:
    """Open the page and wait until it has the pair that follows, too."""
    with page.expect_response(lambda reply: "after=" in reply.url, timeout=120_000) as ahead:
        open_pair(page, experiment, user)
    ahead.value.finished()


def open_with_two_pairs(page: Page, experiment: Experiment, user: User) -> None:
    """The same of a page that holds no third pair, so that it asks the server for nothing until an answer.

    With a slow server it would hold more, and learn from a request of its own that the experiment has ended.
    """
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => document.getElementById('page').dataset.mostHeld = 2)"
    )
    open_with_the_next(page, experiment, user)


def assert_counted_once(experiment: Experiment, n: int) -> None:
    assert Judgment.objects.count() == n == counts.comparison_count(experiment.pk)
    assert len(set(Judgment.objects.values_list("comparison", flat=True))) == n
    assert rebuild_counts(experiment_id=experiment.pk) == {}


@pytest.mark.slow
def test_two_browsers_one_offline_for_a_minute_and_one_pressing_back(
    browser: Browser, live_server, experiment, people, settings
):
    """A minute that is really waited: longer than an assignment, so that only the page that is online keeps
    its own.
    """
    settings.ASSIGNMENT_SECONDS = 20
    ann, bob = people
    offline, back, sent = [], [], []
    with (
        watch(browser.new_context(base_url=live_server.url), live_server, offline) as first,
        watch(browser.new_context(base_url=live_server.url), live_server, back) as second,
    ):
        hers, his = first.new_page(), second.new_page()
        open_pair(hers, experiment, ann)
        open_pair(his, experiment, bob)
        wanted = {ann: {}, bob: {}}

        def click(page: Page, user, key: str, choice: str) -> None:
            wanted[user][shown_token(page)] = choice
            press(page, key)

        for number in range(3):
            click(hers, ann, "1", "left")
            click(his, bob, "2", "right")
            saved(hers, number + 1)
            saved(his, number + 1)

        first.set_offline(True)
        hers.on("request", lambda request: sent.append(request) if "/judge/" in request.url else None)
        click(hers, ann, "2", "right")
        expect(hers.get_by_role("alert")).to_contain_text("Not saved yet: the connection is down")
        expect(hers.locator("#said")).to_have_text("")
        assert Judgment.objects.filter(annotator=ann).count() == 3

        # Meanwhile he leaves with the back button, comes back, and goes on.
        for number in range(3, 6):
            his.goto("/")
            his.go_back()
            expect(his.get_by_role("heading", name="Response A")).to_be_visible()
            click(his, bob, "1", "left")
            saved(his, number + 1)

        hers.wait_for_timeout(60_000)
        here = Assignment.objects.filter(comparison__in=actively_held(experiment), state="open")
        assert not here.filter(annotator=ann).exists()
        assert here.filter(annotator=bob).count() >= 2
        assert Judgment.objects.filter(annotator=ann).count() == 3
        # At once, after 1, 2 and 4 seconds, and then every 8 seconds: it neither gives up nor hammers.
        assert 4 <= len(sent) <= 13
        # What is on the screen beside the pair may have come while the first attempt was under way.
        answers = [dict(parse_qsl(request.post_data)) for request in sent]
        assert len({(answer["token"], answer["choice"]) for answer in answers}) == 1
        first.set_offline(False)
        saved(hers, 4)
        expect(hers.get_by_role("alert")).to_be_hidden()
        click(hers, ann, "1", "left")
        saved(hers, 5)

        assert given_by(ann) == wanted[ann]
        assert given_by(bob) == wanted[bob]
        assert_counted_once(experiment, 11)
        assert offline
        assert all("ERR_INTERNET_DISCONNECTED" in problem for problem in offline)
        assert back == []
        offline.clear()


def test_an_answer_that_could_not_be_sent_is_sent_after_a_reload(page: Page, problems, experiment, people):
    open_pair(page, experiment, people[0])
    page.route("**/judge/", lambda route: route.abort())
    token = shown_token(page)
    press(page, "2")
    expect(page.get_by_role("alert")).to_contain_text("Not saved yet")
    page.unroute("**/judge/")
    page.reload()
    saved(page, 1)
    assert given_by(people[0]) == {token: "right"}
    # The pair that was answered is not asked about again.
    expect(page.locator("#stage")).not_to_have_attribute("data-token", token)
    press(page, "1")
    saved(page, 2)
    assert_counted_once(experiment, 2)
    assert problems
    assert all("ERR_FAILED" in problem for problem in problems)
    problems.clear()


COMMENT = "The second one ends too soon."
# htmx keeps the address of the page there, too.
KEPT = "() => Object.values(sessionStorage).filter((each) => !each.startsWith('/'))"


def type_a_comment(page: Page) -> None:
    page.keyboard.press("c")
    page.locator("#comment").fill(COMMENT)


def test_a_comment_outlives_a_reload_and_is_kept_no_longer_than_its_answer(
    page: Page, problems, experiment, people
):
    open_pair(page, experiment, people[0])
    token = shown_token(page)
    sent: list[str | None] = []
    page.on("request", lambda request: sent.append(request.post_data))
    type_a_comment(page)
    page.reload()
    expect(page.locator("#stage")).to_have_attribute("data-token", token)
    # Nobody sends a comment that they do not see.
    expect(page.locator("#comment")).to_be_visible()
    expect(page.locator("#comment")).to_have_value(COMMENT)
    assert not any("too+soon" in (body or "") or "too%20soon" in (body or "") for body in sent)

    # A vote that is not saved keeps it.
    page.route("**/judge/", lambda route: route.abort())
    settled(page)
    page.locator("#choose-left").click()
    expect(page.get_by_role("alert")).to_contain_text("Not saved yet")
    assert page.evaluate(KEPT) == [COMMENT]
    page.unroute("**/judge/")
    saved(page, 1)
    assert page.evaluate(KEPT) == []
    expect(page.locator("#comment")).to_have_value("")
    assert Judgment.objects.get(token=token).comment == COMMENT
    assert all("ERR_FAILED" in problem for problem in problems)
    problems.clear()


def test_a_comment_that_was_emptied_does_not_come_back(page: Page, experiment, people):
    open_pair(page, experiment, people[0])
    type_a_comment(page)
    page.locator("#comment").fill("")
    assert page.evaluate(KEPT) == []
    page.reload()
    expect(page.locator("#comment")).to_be_hidden()


def test_a_comment_is_not_shown_or_left_to_the_next_person_at_a_browser(page: Page, experiment, people):
    ann, bob = people
    open_pair(page, experiment, ann)
    type_a_comment(page)
    # Her login ends elsewhere, and his begins: his page has nothing of hers.
    open_pair(page, experiment, bob)
    expect(page.locator("#comment")).to_be_hidden()
    expect(page.locator("#comment")).to_have_value("")
    open_pair(page, experiment, ann)
    expect(page.locator("#comment")).to_have_value(COMMENT)
    page.get_by_role("button", name="Log out", exact=True).click()
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
    assert page.evaluate(KEPT) == []


def test_an_answer_to_a_busy_database_is_sent_again(page: Page, problems, experiment, people):
    """503 is a reason to wait and send again, and the answer counts once."""
    open_pair(page, experiment, people[0])
    refused = []

    def busy_once(route: Route) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route.request.post_data)
        route.fulfill(status=503, headers={"Retry-After": "2"}, body="One moment, please")

    page.route("**/judge/", busy_once)
    token = shown_token(page)
    press(page, "1")
    saved(page, 1)
    assert len(refused) == 1
    assert given_by(people[0]) == {token: "left"}
    assert_counted_once(experiment, 1)
    assert all("503" in problem for problem in problems)
    problems.clear()


def test_after_another_login_answers_are_sent_by_its_token(page: Page, problems, experiment, people):
    open_with_the_next(page, experiment, people[0])
    Session.objects.all().delete()
    press(page, "1")
    expect(page.get_by_role("alert")).to_contain_text("you were logged out")
    assert not Judgment.objects.exists()
    elsewhere = page.context.new_page()
    log_in_by_form(elsewhere, people[0])
    saved(page, 1)
    expect(page.get_by_role("alert")).to_be_hidden()
    press(page, "2")
    saved(page, 2)
    assert sorted(given_by(people[0]).values()) == ["left", "right"]
    assert_counted_once(experiment, 2)
    assert all("403" in problem for problem in problems)
    problems.clear()


def test_answers_that_wait_are_sent_under_no_other_login(page: Page, problems, experiment, people):
    ann, bob = people
    open_with_the_next(page, experiment, ann)
    Session.objects.all().delete()
    press(page, "1")
    expect(page.get_by_role("alert")).to_contain_text("you were logged out")
    elsewhere = page.context.new_page()
    log_in_by_form(elsewhere, bob)
    expect(page.get_by_role("alert")).to_contain_text("somebody else is logged in")
    open_pair(elsewhere, experiment)  # and his page leaves hers where they are
    elsewhere.get_by_role("button", name="Log out", exact=True).click()
    assert not Judgment.objects.exists()
    log_in_by_form(elsewhere, ann)
    saved(page, 1)
    assert list(given_by(ann).values()) == ["left"]
    assert given_by(bob) == {}
    problems.clear()


def test_a_second_answer_too_soon_for_a_pair_to_be_seen_is_none(page: Page, experiment, people):
    """By the times at which people press: a slow machine may hear of it later."""
    open_with_the_next(page, experiment, people[0])
    settled(page)
    page.keyboard.press("1")
    page.evaluate(
        "const late = new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true, cancelable: true});"
        "Object.defineProperty(late, 'timeStamp', {value: window.shownAt + 500});"
        "document.body.dispatchEvent(late);"
        "const tap = new MouseEvent('click', {detail: 1, bubbles: true, cancelable: true});"
        "Object.defineProperty(tap, 'timeStamp', {value: window.shownAt + 500});"
        "document.getElementById('choose-left').dispatchEvent(tap)"
    )
    saved_or_too_quick = re.compile(f"^(Saved|{TOO_QUICK})")
    expect(page.locator("#said")).to_have_text(saved_or_too_quick)
    expect(page.locator("#today")).to_have_text("1")
    page.wait_for_load_state("networkidle")
    assert_counted_once(experiment, 1)


def test_a_page_of_somebody_else_is_no_reply(page: Page, problems, experiment, people):
    """Networks that want a login, and servers under repair, answer 200 to everything."""
    open_with_the_next(page, experiment, people[0])
    page.route("**/judge/", lambda route: route.fulfill(status=200, body="<h1>Welcome to our hotel</h1>"))
    press(page, "1")
    expect(page.get_by_role("alert")).to_contain_text("Not saved yet")
    press(page, "2")
    page.unroute("**/judge/")
    saved(page, 2)
    assert sorted(given_by(people[0]).values()) == ["left", "right"]
    assert_counted_once(experiment, 2)


def test_a_reply_that_is_lost_leaves_one_judgment(page: Page, problems, experiment, people):
    open_pair(page, experiment, people[0])
    lost = []

    def lose_the_first(route: Route) -> None:
        if lost:
            route.continue_()
            return
        lost.append(route.fetch())  # it reaches the server, and the reply never comes back
        route.abort()

    page.route("**/judge/", lose_the_first)
    token = shown_token(page)
    press(page, "1")
    saved(page, 1)
    assert given_by(people[0]) == {token: "left"}
    assert_counted_once(experiment, 1)
    assert len(lost) == 1
    problems.clear()


def test_on_a_slow_network_that_loses_every_third_request_nothing_is_lost(
    page: Page, problems, experiment, people
):
    open_pair(page, experiment, people[0])
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 800, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    sent: list[str] = []

    def lose_every_third(route: Route) -> None:
        sent.append(route.request.url)
        if len(sent) % 3:
            route.continue_()
            return
        if len(sent) % 2:
            route.fetch()  # it reaches the server, and the reply never comes back
        route.abort()

    page.route("**/label/**", lose_every_third)
    wanted = {}
    for number in range(8):
        token = shown_token(page)
        wanted[token] = "left" if number % 2 else "right"
        press(page, "1" if number % 2 else "2")
        expect(page.locator("#stage:has(#choose-left)")).not_to_have_attribute("data-token", token)
    saved(page, 8)
    assert given_by(people[0]) == wanted
    assert_counted_once(experiment, 8)
    page.unroute_all(behavior="wait")
    page.goto("/")
    assert len(sent) >= 9
    assert problems
    assert all("ERR_FAILED" in problem for problem in problems)
    problems.clear()


def test_double_clicks_and_hasty_keys_are_one_answer_each_and_the_page_says_so(
    page: Page, experiment, people
):
    # Quick answers are meant for the next pair, so it has to be there.
    open_with_the_next(page, experiment, people[0])
    for number in range(6):
        token = shown_token(page)
        settled(page)
        if number == 1:
            page.locator("#choose-left").dblclick()
        elif number == 3:
            page.locator("#choose-left").click()
            # The second half comes late, when the next pair has settled. By its own time, so that on a slow
            # machine it comes no later.
            page.evaluate(
                "const half = new MouseEvent('click', {detail: 2, bubbles: true, cancelable: true});"
                "Object.defineProperty(half, 'timeStamp', {value: window.shownAt + 900});"
                "document.getElementById('choose-left').dispatchEvent(half)"
            )
        elif number == 5:
            # Two thumbs at once: the second one is no half of a double click, and has seen no more.
            page.evaluate(
                "['choose-left', 'choose-right'].map((id) => [id, new MouseEvent('click', "
                "{detail: 1, bubbles: true, cancelable: true})])"
                ".forEach(([id, tap]) => document.getElementById(id).dispatchEvent(tap))"
            )
        else:
            # Made before the first one is heard: on a slow machine, later ones would be answers of their own.
            page.evaluate(
                "[1, 2, 3].map(() => new KeyboardEvent('keydown', {key: '1', bubbles: true}))"
                ".forEach((key) => document.body.dispatchEvent(key))"
            )
        expect(page.locator("#stage")).not_to_have_attribute("data-token", token)
        expect(page.locator("#today")).to_have_text(str(number + 1))
        expect(page.locator("#said")).to_have_text(TOO_QUICK)
        # Green says that an answer is saved.
        expect(page.locator("#said")).to_have_class("warn")
    assert_counted_once(experiment, 6)


def test_a_click_on_a_pair_that_was_read_counts_though_the_system_calls_it_a_double_click(
    page: Page, experiment, people
):
    """A system may be set to take clicks seconds apart for one double click."""
    open_pair(page, experiment, people[0])
    settled(page)
    page.locator("#choose-left").click()
    saved(page, 1)
    page.wait_for_function(f"() => performance.now() - window.shownAt > {LONG_ENOUGH_TO_READ_MS}")
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    saved(page, 2)
    assert_counted_once(experiment, 2)


def test_a_double_click_on_undo_takes_back_one_answer(page: Page, experiment, people):
    open_pair(page, experiment, people[0])
    for number in range(3):
        press(page, "1")
        saved(page, number + 1)
    settled(page)
    page.locator("#undo").dblclick()
    expect(page.locator("#said")).to_have_text(re.compile(f"^(Taken back|{TOO_QUICK})"))
    expect(page.locator("#today")).to_have_text("2")
    page.wait_for_load_state("networkidle")
    assert counts.comparison_count(experiment.pk) == 2


def test_two_tabs_of_one_annotator_never_judge_a_pair_twice(page: Page, context, experiment, people):
    open_pair(page, experiment, people[0])
    other = context.new_page()
    open_pair(other, experiment)
    for number in range(4):
        press(page if number % 2 else other, "1")
        expect((page if number % 2 else other).locator("#said")).not_to_have_text(IN_BETWEEN)
    tokens = list(Judgment.objects.values_list("token", flat=True))
    assert len(set(tokens)) == len(tokens) >= 2
    assert_counted_once(experiment, len(tokens))


def test_nobody_waits_for_who_closed_the_page_and_its_pair_is_there_again(page: Page, experiment, people):
    open_with_the_next(page, experiment, people[0])
    page.wait_for_load_state("networkidle")
    token = shown_token(page)
    assert len(actively_held(experiment)) >= 2
    page.goto("/")
    wait_until(lambda: not actively_held(experiment), 120, "word that the page was closed")
    open_pair(page, experiment)
    assert shown_token(page) == token


def test_a_second_tab_shows_the_same_pair(page: Page, context, experiment, people):
    open_with_the_next(page, experiment, people[0])
    other = context.new_page()
    open_pair(other, experiment)
    assert shown_token(other) == shown_token(page)


def test_the_next_pair_is_on_show_before_the_server_has_answered(page: Page, experiment, people):
    open_with_the_next(page, experiment, people[0])
    held_up = requests_held_up(page, "**/judge/")
    token = shown_token(page)
    press(page, "1")
    expect(page.locator("#stage")).not_to_have_attribute("data-token", token)
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()
    # Shown, but not yet said to be saved: nothing is, before it is committed.
    expect(page.locator("#said")).to_have_text("Saving …")
    assert not Judgment.objects.exists()
    held_up[0].continue_()
    saved(page, 1)


def test_an_answer_is_one_request_which_brings_the_next_pair(page: Page, experiment, people):
    open_with_two_pairs(page, experiment, people[0])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.split("?")[0].rsplit("/", maxsplit=2)[1]))
    for number in range(6):
        press(page, "1")
        saved(page, number + 1)
    assert asked == ["judge"] * 6


def test_an_answer_that_is_saved_soon_is_spoken_of_once(page: Page, experiment, people):
    """A screen reader spoke of "Saving …" and of "Saved" for each answer."""
    # However slow this machine is, the page's clock stands still.
    page.add_init_script(
        "const usual = setTimeout; window.setTimeout = (act, ms) => ms === 700 ? 0 : usual(act, ms);"
    )
    open_pair(page, experiment, people[0])
    page.evaluate(RECORD)
    for number in range(3):
        press(page, "1")
        saved(page, number + 1)
    assert page.evaluate("window.spoken") == ["Saved"] * 3


def test_an_undo_of_an_answer_that_was_never_sent_says_so(page: Page, experiment, people):
    """Its pair came back without a word."""
    open_with_the_next(page, experiment, people[0])
    held_up = requests_held_up(page, "**/judge/")
    press(page, "1")
    unsent = shown_token(page)
    press(page, "2")
    press(page, "u")
    expect(page.locator("#stage")).to_have_attribute("data-token", unsent)
    expect(page.locator("#said")).to_have_text("Taken back. Choose again.")
    held_up[0].continue_()
    expect(page.locator("#today")).to_have_text("1")
    assert_counted_once(experiment, 1)


def test_an_undo_whose_reply_is_lost_and_that_is_pressed_again_takes_back_one_answer(
    page: Page, problems, experiment, people
):
    open_pair(page, experiment, people[0])
    tokens = []
    for number in range(3):
        tokens.append(shown_token(page))
        press(page, "1")
        saved(page, number + 1)
    [newest] = Judgment.objects.filter(token=tokens[-1])

    def lose(route: Route) -> None:
        route.fetch()  # it reaches the server, and the reply never comes back
        route.abort()

    page.route("**/undo/", lose)
    on_show = shown_token(page)
    press(page, "u")
    expect(page.get_by_role("alert")).to_have_text(NO_REPLY)
    page.unroute("**/undo/")
    press(page, "u")
    expect(page.locator("#today")).to_have_text("2")
    expect(page.locator("#said")).to_have_text("That answer does not count any more.")
    expect(page.locator("#stage")).not_to_have_attribute("data-token", on_show)
    shown = Assignment.objects.get(token=shown_token(page))
    assert (shown.comparison, shown.annotator) == (newest.comparison, people[0])
    standing = Judgment.objects.filter(standing=True).values_list("token", flat=True)
    assert {str(token) for token in standing} == set(tokens[:2])
    # The next one goes one further back.
    press(page, "u")
    expect(page.locator("#today")).to_have_text("1")
    assert [str(each.token) for each in Judgment.objects.filter(standing=True)] == tokens[:1]
    assert all("ERR_FAILED" in problem for problem in problems)
    problems.clear()


def test_an_undo_takes_back_the_answer_of_its_own_tab(page: Page, context, experiment, people):
    open_pair(page, experiment, people[0])
    mine = shown_token(page)
    press(page, "1")
    saved(page, 1)
    other = context.new_page()
    open_pair(other, experiment)
    theirs = shown_token(other)
    press(other, "2")
    saved(other, 2)
    press(page, "u")
    expect(page.locator("#said")).to_have_text("Taken back. Choose again.")
    assert {str(each.token) for each in Judgment.objects.filter(standing=True)} == {theirs}
    assert mine != theirs


def test_an_undo_of_an_answer_that_did_not_count_takes_back_no_other(page: Page, experiment, people):
    open_with_the_next(page, experiment, people[0])
    press(page, "1")
    saved(page, 1)
    held_up = requests_held_up(page, "**/judge/")
    token = shown_token(page)
    press(page, "2")
    expect(page.locator("#stage")).not_to_have_attribute("data-token", token)
    press(page, "u")
    expect(page.locator("#choose-left")).to_be_disabled()
    Assignment.objects.filter(token=token).update(state="skipped")
    held_up[0].continue_()
    expect(page.locator("#said")).to_contain_text("was not counted")
    expect(page.locator("#choose-left")).to_be_enabled()
    assert Judgment.objects.filter(standing=True).count() == 1


def test_an_undo_without_any_reply_says_so(page: Page, experiment, people):
    """A dead connection that stays open, and a network's own page where the pair should be."""
    page.add_init_script(
        "const usual = AbortSignal.timeout.bind(AbortSignal);"
        "AbortSignal.timeout = (ms) => usual(window.impatient ? 300 : ms);"
    )
    open_pair(page, experiment, people[0])
    press(page, "1")
    saved(page, 1)
    silent = requests_held_up(page, "**/undo/")
    page.evaluate("window.impatient = true")
    press(page, "u")
    expect(page.get_by_role("alert")).to_have_text(NO_REPLY)
    assert len(silent) == 1
    page.evaluate("window.impatient = false; document.getElementById('problem').hidden = true")
    page.unroute("**/undo/")
    page.route("**/undo/", lambda route: route.fulfill(status=200, body="<h1>Welcome to our hotel</h1>"))
    press(page, "u")
    expect(page.get_by_role("alert")).to_have_text(NO_REPLY)
    assert len(given_by(people[0])) == 1


def test_the_step_after_the_conclusion_is_its_outcome(page: Page, experiment, people):
    """Pairs that had been fetched ahead were still asked, one click each, and for nothing."""
    ann, _ = people
    open_with_two_pairs(page, experiment, ann)
    stop(experiment_id=experiment.pk)
    press(page, "ArrowLeft")
    expect(page.get_by_role("heading", name="Stopped. Thank you!")).to_be_visible()
    expect(page.locator("#said")).to_have_text("Saved")
    assert_counted_once(experiment, 1)
    wait_until(lambda: not actively_held(experiment), 60, "word that nobody reads a pair")


def test_a_pair_that_is_being_read_at_the_conclusion_is_the_last_and_its_answer_is_kept(
    page: Page, experiment, people
):
    ann, _ = people
    open_with_two_pairs(page, experiment, ann)
    first = shown_token(page)
    stop(experiment_id=experiment.pk)
    slow: list[Route] = []

    def hold_back(route: Route) -> None:
        slow.append(route)

    page.route("**/label/**", hold_back)
    press(page, "ArrowLeft")
    expect(page.locator("#stage")).not_to_have_attribute("data-token", first)
    page.wait_for_timeout(LONG_ENOUGH_TO_READ_MS)
    page.route("**/label/**", lambda route: route.continue_())
    for route in slow:
        route.continue_()
    expect(page.locator("#said")).to_have_text(re.compile("^The experiment has ended. This is the last pair"))
    last = shown_token(page)
    press(page, "ArrowRight")
    expect(page.get_by_role("heading", name="Stopped. Thank you!")).to_be_visible()
    assert given_by(ann) == {first: "left", last: "right"}
    assert_counted_once(experiment, 2)
