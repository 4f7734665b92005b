"""Reading two long responses: scrolled together by block, differences, code, tables, and everything shown."""

import pytest
from playwright.sync_api import Page, expect

from engine.models import Comparison, Experiment, Response
from tests.browser.annotating import open_pair, press, saved, shown_token, write_everything
from tests.factories import make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

CODE = "```python\nprint('a line of code that is far too long for its box', " + "1, " * 60 + ")\n```"
TABLE = "| Depot | Parcels |\n|:--|--:|\n| Leipzig | 12 |\n| " + "wide" * 60 + " | 1200 |"


def sentences(word: str, n: int) -> str:
    return " ".join(f"{word} {number}." for number in range(n))


def text(day: str, n_before: int, n_after: int) -> str:
    """A heading after ``n_before`` sentences of about ten characters; code and a table after as many more."""
    first = f"One paragraph on the refund of **{day}**.\n\n{sentences('Note', n_before)}"
    return f"{first}\n\n## Next\n\n{sentences('End', n_after)}\n\n{CODE}\n\n{TABLE}"


SHORT, LONG = text("Friday", 40, 350), text("Monday", 350, 40)

# The texts that are marked as different.
MARKED = """() => [...(CSS.highlights.get("llmpo-differences") ?? [])].map((marked) => {
  const range = document.createRange();
  range.setStart(marked.startContainer, marked.startOffset);
  range.setEnd(marked.endContainer, marked.endOffset);
  return range.toString().slice(0, 20);
})"""
# Scroll one side until the line that is kept level is at its heading; returns where both headings are.
LEVEL = """async () => {
  const [a, b] = document.querySelectorAll("#stage .response > .text");
  const top = (box) => box.querySelector("h4").getBoundingClientRect().top - box.getBoundingClientRect().top;
  a.scrollTop = (top(a) + a.scrollTop) * (a.scrollHeight - a.clientHeight) / a.scrollHeight;
  await new Promise((done) => setTimeout(done, 200));
  return [top(a), top(b), b.scrollTop];
}"""
SHIFT = """() => new Promise((done) => {
  const moved = (each) => each.sources.map(({node}) => node && (node.id || node.className || node.nodeName));
  new PerformanceObserver((list) => done(list.getEntries().map(moved)))
    .observe({type: "layout-shift", buffered: true});
  setTimeout(() => done([]), 500);
})"""


def fill(experiment: Experiment, texts: tuple[str, str]) -> None:
    """Give all comparisons these two responses."""
    for comparison in Comparison.objects.filter(experiment=experiment):
        for response, text in ((comparison.response_i_id, texts[0]), (comparison.response_j_id, texts[1])):
            Response.objects.filter(pk=response).update(text=text)


def test_a_page_key_scrolls_both_responses_wherever_the_focus_is(page: Page, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 3
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=2, annotators=(annotator,))
    write_everything(experiment)
    fill(experiment, (SHORT, LONG))
    open_pair(page, experiment, annotator)
    # By hand only one side scrolls, unless they scroll together.
    for together in (False, True):
        page.get_by_label("Scroll together").set_checked(together)
        for key, down in (("PageDown", True), ("PageUp", False)):
            page.keyboard.press(key)
            page.wait_for_function(
                "() => [...document.querySelectorAll('#stage .text')]"
                f".every((text) => (text.scrollTop > 0) === {str(down).lower()})"
            )


def test_long_responses_are_read_side_by_side(page: Page, context, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 3
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=2, annotators=(annotator,))
    write_everything(experiment)
    fill(experiment, (SHORT, LONG))
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_pair(page, experiment, annotator)
    expect(page.locator("#stage .tools")).to_have_count(2)
    assert page.evaluate(SHIFT) == []

    page.get_by_label("Scroll together").check()
    one, other, scrolled = page.evaluate(LEVEL)
    assert scrolled > 0
    assert abs(one - other) < 3
    ends = "() => document.querySelectorAll('#stage .text').forEach((box) => { box.scrollTop = 1e6; })"
    page.evaluate(ends)
    at_end = "(box) => box.scrollHeight - box.clientHeight - box.scrollTop"
    assert all(box.evaluate(at_end) < 2 for box in page.locator("#stage .response > .text").all())

    assert page.evaluate(MARKED) == []
    press(page, "d")
    expect(page.get_by_label("Differences")).to_be_checked()
    page.wait_for_function("() => CSS.highlights.has('llmpo-differences')")
    marked = page.evaluate(MARKED)
    assert {"Friday", "Monday"} <= set(marked)
    assert not any("paragraph" in text or "print" in text for text in marked)

    wide = page.locator("#stage .table").first
    assert wide.evaluate("(box) => box.scrollWidth > box.clientWidth && box.tabIndex === 0")
    assert wide.locator("td").nth(1).evaluate("(cell) => getComputedStyle(cell).textAlign") == "right"
    code = page.locator("#stage .code").first
    assert not code.locator("pre").evaluate("(pre) => pre.scrollWidth > pre.clientWidth")
    code.get_by_role("button", name="Wrap lines").click()
    assert code.locator("pre").evaluate("(pre) => pre.scrollWidth > pre.clientWidth && pre.tabIndex === 0")
    code.get_by_role("button", name="Copy").click()
    expect(code.get_by_role("button", name="Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("print('a line of code")

    # The next pair is read as this one was; beyond the limit one button opens both sides.
    fill(experiment, ("x" * 13_000, "short"))
    page.reload()
    page.wait_for_function("() => document.getElementById('differences').indeterminate")
    assert page.evaluate(MARKED) == []
    assert page.locator("#differences").evaluate("(box) => box.checked")
    assert page.evaluate("document.body.className").split() == ["pairing", "unwrapped"]
    page.get_by_text("Show all of both responses").click()
    whole = page.locator("#stage .all pre").all_inner_texts()
    assert sorted(map(len, whole)) == [5, 13_000]
    press(page, "1")
    saved(page, 1)


def test_keys_guidelines_and_layout_are_as_this_person_likes_them(page: Page, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 6
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=3, annotators=(annotator,), guidelines="Prefer *short*.")
    write_everything(experiment)
    page.set_viewport_size({"width": 1440, "height": 900})
    open_pair(page, experiment, annotator)
    guidelines, stage = page.locator("#guide"), page.locator("#stage")
    assert guidelines.bounding_box()["x"] > stage.bounding_box()["x"] + stage.bounding_box()["width"]
    expect(guidelines.get_by_text("Prefer short.")).to_be_visible()
    narrow = stage.bounding_box()["width"]
    with page.expect_response("**/accounts/guidelines/"):
        guidelines.get_by_text("Guidelines").click()
    assert stage.bounding_box()["width"] > narrow + 100

    page.goto("/accounts/keys/")
    page.get_by_label("A is better").fill("q")
    page.get_by_label("Left-handed").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    open_pair(page, experiment)
    assert page.evaluate(SHIFT) == []
    expect(guidelines.get_by_text("Prefer short.")).to_be_hidden()
    assert guidelines.bounding_box()["x"] < stage.bounding_box()["x"]
    token = shown_token(page)
    press(page, "1")
    assert shown_token(page) == token
    press(page, "q")
    saved(page, 1)
    press(page, "ArrowRight")
    saved(page, 2)

    page.set_viewport_size({"width": 390, "height": 844})
    expect(guidelines).to_be_hidden()
    places = [
        page.locator(f"#{each}").bounding_box()["x"] for each in ("others", "choose-left", "choose-right")
    ]
    assert places == sorted(places)


HEBREW = "שלום עולם\n\nGoogle is a name.\n\n1. אחת\n2. שתיים\n\n```\nx = [1, 2]\n```"
DIRECTIONS = """() => [...document.querySelectorAll("#stage .response")].map((response) =>
  [...response.querySelectorAll(".text > p, .text > ol, .code > pre")].map((part) =>
    [part.localName, getComputedStyle(part).direction].join(" ")))"""


def test_each_paragraph_and_list_has_its_own_direction_and_code_none(page: Page, settings):
    settings.BUFFER_MIN = 10
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=3, annotators=(annotator,))
    write_everything(experiment)
    fill(experiment, (HEBREW, f"{HEBREW}\n\n" + "a line\n" * 500))
    open_pair(page, experiment, annotator)
    parts = ["p rtl", "p ltr", "ol rtl", "pre ltr"]
    assert [side[:4] for side in page.evaluate(DIRECTIONS)] == [parts, parts]


def test_a_name_turns_nothing_beside_it_around(page: Page):
    annotator = make_user("שלום")
    experiment = make_experiment(n_policies=3, annotators=(annotator,))
    Experiment.objects.filter(pk=experiment.pk).update(name="מבחן 7", question="איזו תשובה טובה יותר?")
    write_everything(experiment)
    open_pair(page, experiment, annotator)
    for name in ("שלום", "מבחן 7"):
        expect(page.locator("header bdi", has_text=name)).to_have_css("unicode-bidi", "isolate")
    expect(page.locator("#stage h2").first).to_have_css("direction", "rtl")
